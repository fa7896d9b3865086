"""Giving up a batch, in the store."""

from __future__ import annotations

import pytest

from runner.core.types import BatchState, Charge, JobState, Outcome, OutcomeKind, Policy, Reason, Step
from runner.store.cancelling import CHUNK
from runner.store.engine import Database
from runner.store.records import Claim
from tests.support.fakes import (
    START,
    Seeded,
    Stores,
    accepted,
    admit,
    do,
    job,
    open_stores,
    row_of,
    rows_of,
    seed_batch,
    settle,
    states,
    story,
    submit_and_accept,
    succeed,
    take,
)

ASKED = Outcome(OutcomeKind.CANCEL_ASKED, http_status=202)
CANCELLED = Outcome(OutcomeKind.RUN_FAILED, http_status=200, error_type="cancelled")


@pytest.fixture
def stores(database: Database) -> Stores:
    return open_stores(database)


def cancel(stores: Stores, seeded: Seeded, now: float = START) -> dict[JobState, int]:
    return stores.batches.cancel(seeded.batch.id, seeded.batch.name, now)


def test_rows_that_were_not_sent_end_at_once_and_unbilled(stores: Stores) -> None:
    seeded = seed_batch(stores, 5, window=2)
    admit(stores, seeded)
    assert cancel(stores, seeded) == {JobState.PENDING: 3, JobState.SUBMITTING: 2}
    assert states(stores, seeded) == {JobState.CANCELLED: 5}
    assert {row["charge"] for row in rows_of(stores.database, "job")} == {Charge.UNBILLED}
    assert {row["reason"] for row in rows_of(stores.database, "job")} == {Reason.CANCELLED_BY_USER}
    assert row_of(stores.database, "batch")["state"] == BatchState.FINISHED
    assert story(stores, seeded.jobs[0])[-1] == ("cancel", "cancelled")


def test_what_the_router_holds_is_asked_for_once_and_read_to_its_end(stores: Stores) -> None:
    seeded = seed_batch(stores, 1)
    admit(stores, seeded)
    submit_and_accept(stores, seeded.jobs[0])
    cancel(stores, seeded)
    assert row_of(stores.database, "batch")["state"] == BatchState.CANCELLING
    (wake,) = admit(stores, seeded, START + 1)
    assert wake.step is Step.CANCEL
    (wake,) = do(stores, seeded.jobs[0], Step.CANCEL, ASKED, START + 1)
    assert wake.step is Step.COLLECT
    assert job(stores, seeded.jobs[0])["cancel_asked_at"] == START + 1
    # The sweeper looks again at a batch that is being cancelled, and does not ask again.
    admit(stores, seeded, START + 2)
    assert job(stores, seeded.jobs[0])["step"] == Step.COLLECT
    do(stores, seeded.jobs[0], Step.COLLECT, CANCELLED, START + 10)
    ended = job(stores, seeded.jobs[0])
    assert (ended["state"], ended["charge"]) == (JobState.CANCELLED, Charge.POSSIBLE)
    assert row_of(stores.database, "batch")["state"] == BatchState.FINISHED


def test_a_request_that_had_finished_is_collected_and_paid_for(stores: Stores) -> None:
    seeded = seed_batch(stores, 2)
    admit(stores, seeded)
    succeed(stores, seeded.jobs[0])
    submit_and_accept(stores, seeded.jobs[1])
    cancel(stores, seeded)
    admit(stores, seeded, START + 1)
    too_late = Outcome(OutcomeKind.CANCEL_TOO_LATE, http_status=409)
    (wake,) = do(stores, seeded.jobs[1], Step.CANCEL, too_late, START + 1)
    assert (wake.step, wake.delay) == (Step.COLLECT, 0.0)
    assert states(stores, seeded) == {JobState.SUCCEEDED: 1, JobState.QUEUED: 1}


def test_a_submit_that_is_under_way_is_let_finish_and_then_asked_for(stores: Stores) -> None:
    seeded = seed_batch(stores, 1)
    admit(stores, seeded)
    claim = take(stores, seeded.jobs[0], Step.SUBMIT)
    cancel(stores, seeded)
    assert states(stores, seeded) == {JobState.SUBMITTING: 1}
    assert settle(stores, claim, accepted(), START + 1) is not None
    woken = admit(stores, seeded, START + 2)
    assert [wake.step for wake in woken] == [Step.CANCEL]


def test_a_send_that_was_never_answered_may_have_cost_one_run(stores: Stores) -> None:
    seeded = seed_batch(stores, 1)
    admit(stores, seeded)
    do(stores, seeded.jobs[0], Step.SUBMIT, Outcome(OutcomeKind.UNKNOWN))
    cancel(stores, seeded)
    ended = job(stores, seeded.jobs[0])
    assert (ended["state"], ended["charge"]) == (JobState.CANCELLED, Charge.POSSIBLE)


def test_more_rows_than_one_transaction_takes_all_end(stores: Stores) -> None:
    seeded = seed_batch(stores, CHUNK + 5, window=1)
    cancel(stores, seeded)
    assert states(stores, seeded) == {JobState.CANCELLED: CHUNK + 5}


def test_a_new_run_may_be_cancelled_anew(stores: Stores) -> None:
    seeded = seed_batch(stores, 1)
    admit(stores, seeded)
    submit_and_accept(stores, seeded.jobs[0])
    cancel(stores, seeded)
    do(stores, seeded.jobs[0], Step.CANCEL, ASKED, START)
    do(stores, seeded.jobs[0], Step.COLLECT, CANCELLED, START + 10)
    stores.batches.move(seeded.batch.id, OutcomeKind.RETRY, [JobState.CANCELLED], START + 20, Policy())
    assert job(stores, seeded.jobs[0])["cancel_asked_at"] is None


class TestPausing:
    def test_a_paused_batch_is_not_sent_and_still_collected(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 3, window=2)
        admit(stores, seeded)
        submit_and_accept(stores, seeded.jobs[0])
        assert stores.batches.pause(seeded.batch.id)
        assert not stores.batches.pause(seeded.batch.id)
        assert stores.jobs.claim(seeded.jobs[1], Step.SUBMIT, owner="w", now=START, lease=60.0) is None
        assert isinstance(stores.jobs.claim(seeded.jobs[0], Step.COLLECT, owner="w", now=START + 1, lease=60.0), Claim)
        assert stores.batches.find("cats").pause_reason == "user"

    def test_resuming_sends_the_rest(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 2)
        stores.batches.pause(seeded.batch.id)
        assert admit(stores, seeded) == []
        stores.batches.resume(seeded.batch.id, START, Policy())
        assert len(admit(stores, seeded)) == 2
