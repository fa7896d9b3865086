"""Who may act on a job, and when: the right that keeps a second message from a second charge."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from runner.core.types import IN_FLIGHT, JobState, Outcome, OutcomeKind, Step
from runner.store.engine import Database
from runner.store.jobs import GRACE, LONGEST_COUNTDOWN
from runner.store.records import Claim, Wake
from tests.support.fakes import (
    START,
    Stores,
    accepted,
    admit,
    do,
    job,
    open_stores,
    seed_batch,
    settle,
    submit_and_accept,
    take,
)

UNAUTHORIZED = Outcome(OutcomeKind.UNAUTHORIZED, http_status=401)
NO_CREDIT = Outcome(OutcomeKind.INSUFFICIENT_CREDITS, http_status=402)


@pytest.fixture
def stores(database: Database) -> Stores:
    return open_stores(database)


def claim(stores: Stores, job_id: int, step: Step, now: float, owner: str = "worker-2") -> Claim | Wake | None:
    return stores.jobs.claim(job_id, step, owner=owner, now=now, lease=60.0)


def test_a_claim_carries_all_that_acting_needs(stores: Stores) -> None:
    seeded = seed_batch(stores, 2)
    admit(stores, seeded)
    found = take(stores, seeded.jobs[1], Step.SUBMIT, START)
    assert (found.batch, found.row, found.custom_id, found.model) == ("cats", 2, "row-2", "acme/paint")
    assert found.idempotency_key == f"cb-{seeded.batch.id}-2-1"
    assert (found.job.state, found.step, found.until) == (JobState.SUBMITTING, Step.SUBMIT, START + 60)
    assert found.job.first_sent_at == START
    assert stores.jobs.body(found.job.id) == b'{"prompt":"cat 2"}'


def test_a_job_is_claimed_once(stores: Stores) -> None:
    seeded = seed_batch(stores, 1)
    admit(stores, seeded)
    take(stores, seeded.jobs[0], Step.SUBMIT)
    assert claim(stores, seeded.jobs[0], Step.SUBMIT, START) is None


def test_sixteen_threads_racing_for_200_jobs_get_each_job_once(stores: Stores) -> None:
    seeded = seed_batch(stores, 200, window=200)
    assert len(admit(stores, seeded)) == 200

    def race(number: int) -> list[str]:
        got = []
        # Half of the threads come from the other end, so that they all meet.
        for job_id in seeded.jobs if number % 2 else reversed(seeded.jobs):
            found = claim(stores, job_id, Step.SUBMIT, START, f"worker-{number}")
            if isinstance(found, Claim):
                got.append(found.idempotency_key)
        return got

    with ThreadPoolExecutor(16) as pool:
        taken = Counter(key for keys in pool.map(race, range(16)) for key in keys)
    assert len(taken) == 200
    assert set(taken.values()) == {1}


def test_a_pending_job_cannot_be_claimed(stores: Stores) -> None:
    seeded = seed_batch(stores, 1)
    assert claim(stores, seeded.jobs[0], Step.SUBMIT, START) is None


def test_a_job_that_does_not_exist_cannot_be_claimed(stores: Stores) -> None:
    assert claim(stores, 4711, Step.SUBMIT, START) is None


def test_a_message_for_a_step_that_is_past_finds_nothing_to_do(stores: Stores) -> None:
    seeded = seed_batch(stores, 1)
    admit(stores, seeded)
    submit_and_accept(stores, seeded.jobs[0])
    assert claim(stores, seeded.jobs[0], Step.SUBMIT, START + 1) is None


def test_a_message_that_comes_a_little_early_is_told_how_long_to_wait(stores: Stores) -> None:
    seeded = seed_batch(stores, 1)
    admit(stores, seeded)
    busy = Outcome(OutcomeKind.KEY_BUSY, http_status=409, retry_after=7.0)
    do(stores, seeded.jobs[0], Step.SUBMIT, busy, START)
    early = claim(stores, seeded.jobs[0], Step.SUBMIT, START + 6.5)
    assert early == Wake(seeded.jobs[0], Step.SUBMIT, "cats", 1, delay=0.5)
    assert job(stores, seeded.jobs[0])["claim_token"] is None
    assert isinstance(claim(stores, seeded.jobs[0], Step.SUBMIT, START + 7), Claim)


def test_one_that_comes_far_too_early_ends_there_and_the_sweeper_knows_the_time(stores: Stores) -> None:
    seeded = seed_batch(stores, 1)
    admit(stores, seeded)
    busy = Outcome(OutcomeKind.KEY_BUSY, http_status=409, retry_after=7.0)
    do(stores, seeded.jobs[0], Step.SUBMIT, busy, START)
    assert claim(stores, seeded.jobs[0], Step.SUBMIT, START + 3) is None
    assert [wake.step for wake in admit(stores, seeded, START + 7 + GRACE)] == [Step.SUBMIT]


def test_a_live_claim_keeps_everyone_else_away_and_a_claim_that_ran_out_nobody(stores: Stores) -> None:
    seeded = seed_batch(stores, 1)
    admit(stores, seeded)
    first = take(stores, seeded.jobs[0], Step.SUBMIT, START, lease=60.0)
    assert claim(stores, seeded.jobs[0], Step.SUBMIT, START + 59.9) is None
    second = claim(stores, seeded.jobs[0], Step.SUBMIT, START + 60.1)
    assert isinstance(second, Claim)
    assert second.token != first.token
    assert second.idempotency_key == first.idempotency_key


def test_a_claim_again_after_a_lost_send_marks_the_charge_as_possible(stores: Stores) -> None:
    seeded = seed_batch(stores, 1)
    admit(stores, seeded)
    first = take(stores, seeded.jobs[0], Step.SUBMIT, START)
    second = take(stores, seeded.jobs[0], Step.SUBMIT, START + 61)
    assert (first.job.charge, second.job.charge) == ("unbilled", "possible")
    assert second.job.first_sent_at == START


def test_a_released_key_counts_as_never_sent(stores: Stores) -> None:
    seeded = seed_batch(stores, 1)
    admit(stores, seeded)
    do(stores, seeded.jobs[0], Step.SUBMIT, Outcome(OutcomeKind.UNREACHABLE), START)
    assert job(stores, seeded.jobs[0])["first_sent_at"] is None
    again = take(stores, seeded.jobs[0], Step.SUBMIT, START + 100)
    assert (again.job.charge, again.job.first_sent_at) == ("unbilled", START + 100)


def test_while_the_account_cools_down_nothing_is_claimed_and_the_message_waits(stores: Stores) -> None:
    seeded = seed_batch(stores, 2)
    admit(stores, seeded)
    submit_and_accept(stores, seeded.jobs[1])
    limited = Outcome(OutcomeKind.RATE_LIMITED, http_status=429, retry_after=30.0)
    do(stores, seeded.jobs[1], Step.COLLECT, limited, START)
    early = claim(stores, seeded.jobs[0], Step.SUBMIT, START + 10)
    assert isinstance(early, Wake)
    # They do not all come back in the same moment.
    assert 20.0 <= early.delay <= 21.0
    assert isinstance(claim(stores, seeded.jobs[0], Step.SUBMIT, START + 10 + early.delay), Claim)


def test_a_long_cool_down_waits_in_the_database(stores: Stores) -> None:
    seeded = seed_batch(stores, 2)
    admit(stores, seeded)
    limited = Outcome(OutcomeKind.RATE_LIMITED, http_status=429, retry_after=3600.0)
    assert do(stores, seeded.jobs[0], Step.SUBMIT, limited, START) == []
    assert claim(stores, seeded.jobs[1], Step.SUBMIT, START + 1) is None
    kept = job(stores, seeded.jobs[1])
    assert kept["wake_at"] == kept["due_at"] > START + 3600 > START + LONGEST_COUNTDOWN


def test_under_a_blocked_credential_nothing_is_claimed_and_no_message_is_owed(stores: Stores) -> None:
    seeded = seed_batch(stores, 3)
    admit(stores, seeded)
    submit_and_accept(stores, seeded.jobs[1])
    do(stores, seeded.jobs[0], Step.SUBMIT, UNAUTHORIZED, START)
    assert claim(stores, seeded.jobs[2], Step.SUBMIT, START + 1) is None
    assert claim(stores, seeded.jobs[1], Step.COLLECT, START + 1) is None
    stores.batches.unblock(seeded.credential)
    assert isinstance(claim(stores, seeded.jobs[1], Step.COLLECT, START + 1), Claim)


def test_a_block_of_one_credential_is_none_of_anothers(stores: Stores) -> None:
    mine, other = seed_batch(stores, 1), seed_batch(stores, 1, name="dogs", credential="another")
    admit(stores, mine)
    admit(stores, other)
    do(stores, mine.jobs[0], Step.SUBMIT, UNAUTHORIZED, START)
    assert isinstance(claim(stores, other.jobs[0], Step.SUBMIT, START + 1), Claim)


def test_while_a_batch_is_paused_it_is_collected_but_not_submitted(stores: Stores) -> None:
    seeded = seed_batch(stores, 3)
    admit(stores, seeded)
    submit_and_accept(stores, seeded.jobs[0])
    do(stores, seeded.jobs[1], Step.SUBMIT, NO_CREDIT, START)
    assert claim(stores, seeded.jobs[2], Step.SUBMIT, START + 1) is None
    assert isinstance(claim(stores, seeded.jobs[0], Step.COLLECT, START + 1), Claim)


def test_a_pause_of_one_batch_does_not_stop_another(stores: Stores) -> None:
    cats, dogs = seed_batch(stores, 1), seed_batch(stores, 1, name="dogs")
    admit(stores, cats)
    do(stores, cats.jobs[0], Step.SUBMIT, NO_CREDIT, START)
    assert isinstance(claim(stores, dogs.jobs[0], Step.SUBMIT, START + 1), Claim)


def test_a_late_answer_under_a_lost_claim_leaves_the_new_holder_alone(stores: Stores) -> None:
    seeded = seed_batch(stores, 1)
    admit(stores, seeded)
    late = take(stores, seeded.jobs[0], Step.SUBMIT, START)
    take(stores, seeded.jobs[0], Step.SUBMIT, START + 61, owner="worker-2")
    assert settle(stores, late, accepted(), START + 62) is None
    kept = job(stores, seeded.jobs[0])
    assert (kept["state"], kept["claim_owner"], kept["request_id"]) == ("submitting", "worker-2", None)
    assert JobState(kept["state"]) in IN_FLIGHT


def test_a_message_sent_at_once_gets_its_grace_before_the_sweeper_sends_another(stores: Stores) -> None:
    seeded = seed_batch(stores, 1)
    admit(stores, seeded)
    do(stores, seeded.jobs[0], Step.SUBMIT, accepted(), START)
    assert job(stores, seeded.jobs[0])["wake_at"] == START + GRACE
