"""Calls a second over all workers, and failures alike over all jobs."""

from __future__ import annotations

import pytest

from runner.core.breaker import PAUSE_REASON
from runner.core.types import JobState, Outcome, OutcomeKind, Policy, Step
from runner.store.engine import Database
from runner.store.jobs import JobStore
from runner.store.records import Claim, Wake
from runner.store.upkeep import UpkeepStore
from tests.support.fakes import (
    START,
    Seeded,
    Stores,
    admit,
    do,
    fail,
    job,
    open_stores,
    row_of,
    seed_batch,
    states,
    submit_and_accept,
    succeed,
)


@pytest.fixture
def stores(database: Database) -> Stores:
    return open_stores(database, breaker=3)


class TestCallsASecond:
    RATE = 2.0

    def claim(self, stores: Stores, job_id: int, now: float, step: Step = Step.SUBMIT) -> Claim | Wake | None:
        return stores.jobs.claim(job_id, step, owner="w", now=now, lease=60.0, per_second=self.RATE)

    def test_each_call_has_its_place_and_keeps_it(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 3)
        admit(stores, seeded)
        assert isinstance(self.claim(stores, seeded.jobs[0], START), Claim)
        second, third = (self.claim(stores, job_id, START) for job_id in seeded.jobs[1:])
        assert isinstance(second, Wake)
        assert isinstance(third, Wake)
        assert (second.delay, third.delay) == (0.5, 1.0)
        # Too early, it keeps the place that it has; at its time it needs no other.
        early = self.claim(stores, seeded.jobs[2], START + 0.9)
        assert isinstance(early, Wake)
        assert early.delay == pytest.approx(0.1)
        assert isinstance(self.claim(stores, seeded.jobs[1], START + 0.5), Claim)
        assert isinstance(self.claim(stores, seeded.jobs[2], START + 1.0), Claim)

    def test_a_place_that_is_far_off_waits_in_the_database(self, database: Database) -> None:
        stores = open_stores(database)
        seeded = seed_batch(stores, 2)
        admit(stores, seeded)
        slow = {"owner": "w", "lease": 60.0, "per_second": 0.01}
        assert isinstance(stores.jobs.claim(seeded.jobs[0], Step.SUBMIT, now=START, **slow), Claim)  # type: ignore[arg-type]
        assert stores.jobs.claim(seeded.jobs[1], Step.SUBMIT, now=START, **slow) is None  # type: ignore[arg-type]
        assert job(stores, seeded.jobs[1])["wake_at"] == START + 100

    def test_a_message_for_nothing_takes_no_place(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 2)
        admit(stores, seeded)
        assert self.claim(stores, seeded.jobs[0], START, Step.COLLECT) is None
        assert isinstance(self.claim(stores, seeded.jobs[1], START), Claim)

    def test_without_a_limit_nothing_waits(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 20)
        admit(stores, seeded)
        for job_id in seeded.jobs:
            assert isinstance(stores.jobs.claim(job_id, Step.SUBMIT, owner="w", now=START, lease=60.0), Claim)


class TestFailuresAlike:
    def batch(self, stores: Stores, count: int = 6) -> Seeded:
        seeded = seed_batch(stores, count)
        admit(stores, seeded)
        return seeded

    def paused(self, stores: Stores) -> str | None:
        reason: str | None = row_of(stores.database, "batch")["pause_reason"]
        return reason

    def test_so_many_of_one_kind_in_a_row_pause_the_batch_with_their_reason(self, stores: Stores) -> None:
        seeded = self.batch(stores)
        for job_id in seeded.jobs[:2]:
            fail(stores, job_id)
        assert self.paused(stores) is None
        fail(stores, seeded.jobs[2])
        batch = row_of(stores.database, "batch")
        assert (batch["state"], batch["pause_reason"]) == ("paused", PAUSE_REASON)
        assert batch["pause_detail"] == "3 submits in a row were refused with invalid_input: no such size"

    def test_the_rest_is_not_failed_and_not_sent(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 6, window=3)
        admit(stores, seeded)
        wakes = [wake for job_id in seeded.jobs[:3] for wake in fail(stores, job_id)]
        assert states(stores, seeded)[JobState.FAILED] == 3
        for wake in wakes:
            assert stores.jobs.claim(wake.job_id, Step.SUBMIT, owner="w", now=START, lease=60.0) is None
        assert admit(stores, seeded, START + 100) == []

    @pytest.mark.parametrize("between", ["another kind", "an accepted submit"])
    def test_something_else_in_between_starts_the_count_anew(self, stores: Stores, between: str) -> None:
        seeded = self.batch(stores)
        fail(stores, seeded.jobs[0])
        fail(stores, seeded.jobs[1])
        if between == "another kind":
            fail(stores, seeded.jobs[2], error_type="model_not_found")
        else:
            submit_and_accept(stores, seeded.jobs[2])
        fail(stores, seeded.jobs[3])
        fail(stores, seeded.jobs[4])
        assert self.paused(stores) is None
        fail(stores, seeded.jobs[5])
        assert self.paused(stores) == PAUSE_REASON

    def test_failed_runs_count_until_one_succeeds(self, stores: Stores) -> None:
        seeded = self.batch(stores)
        broken = Outcome(OutcomeKind.RUN_FAILED, http_status=200, error_type="provider_error")
        for job_id in seeded.jobs[:2]:
            submit_and_accept(stores, job_id)
            do(stores, job_id, Step.COLLECT, broken)
        succeed(stores, seeded.jobs[2])
        for job_id in seeded.jobs[3:5]:
            submit_and_accept(stores, job_id)
            do(stores, job_id, Step.COLLECT, broken)
        assert self.paused(stores) is None
        submit_and_accept(stores, seeded.jobs[5])
        do(stores, seeded.jobs[5], Step.COLLECT, broken)
        assert self.paused(stores) == PAUSE_REASON

    def test_resuming_gives_as_many_tries_again(self, stores: Stores) -> None:
        seeded = self.batch(stores)
        for job_id in seeded.jobs[:3]:
            fail(stores, job_id)
        stores.batches.resume(seeded.batch.id, START, Policy())
        assert self.paused(stores) is None
        for job_id in seeded.jobs[3:5]:
            fail(stores, job_id, START + 1)
        assert self.paused(stores) is None


def test_places_of_a_paused_batch_that_it_did_not_use_are_given_back(stores: Stores) -> None:
    seeded = seed_batch(stores, 5, window=2)
    other = seed_batch(stores, 1, name="others", window=2)
    admit(stores, seeded)
    broke = Outcome(OutcomeKind.INSUFFICIENT_CREDITS, http_status=402)
    do(stores, seeded.jobs[0], Step.SUBMIT, broke)
    woken = admit(stores, other)
    assert [wake.job_id for wake in woken] == [other.jobs[0]]
    assert states(stores, seeded) == {JobState.PENDING: 5}


class TestOneBatchOnly:
    def limited(self, stores: Stores, seeded: Seeded) -> Stores:
        jobs = JobStore(stores.database, breaker=0, only_batch=seeded.batch.id)
        return Stores(stores.database, jobs, stores.batches, UpkeepStore(stores.database, jobs))

    def test_no_other_batchs_rows_are_let_in_or_sent(self, stores: Stores) -> None:
        other = seed_batch(stores, 2, name="others")
        mine = seed_batch(stores, 2, name="mine")
        limited = self.limited(stores, mine)
        woken = limited.upkeep.sweep(mine.credential, START)
        assert [wake.job_id for wake in woken] == list(mine.jobs)
        assert set(states(stores, other)) == {JobState.PENDING}

    def test_what_the_others_have_paid_for_is_collected(self, stores: Stores) -> None:
        other = seed_batch(stores, 1, name="others")
        admit(stores, other)
        submit_and_accept(stores, other.jobs[0])
        mine = seed_batch(stores, 1, name="mine")
        woken = self.limited(stores, mine).upkeep.sweep(mine.credential, START + 100)
        assert next((wake.job_id, wake.step) for wake in woken) == (other.jobs[0], Step.COLLECT)

    def test_places_that_the_others_took_and_did_not_use_are_given_back(self, stores: Stores) -> None:
        other = seed_batch(stores, 2, name="others", window=2)
        admit(stores, other)
        sent = stores.jobs.claim(other.jobs[1], Step.SUBMIT, owner="dead", now=START, lease=1.0)
        assert isinstance(sent, Claim)
        mine = seed_batch(stores, 2, name="mine", window=2)
        limited = self.limited(stores, mine)
        assert limited.jobs.claim(other.jobs[0], Step.SUBMIT, owner="w", now=START, lease=1.0) is None
        woken = limited.upkeep.sweep(mine.credential, START + 100)
        # One place is of a key that may have gone out.
        assert [wake.job_id for wake in woken] == [mine.jobs[0]]
        assert states(stores, other) == {JobState.PENDING: 1, JobState.SUBMITTING: 1}
