"""What finds the work again when messages, workers or sweepers are lost."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text

from runner.core.types import JobState, MediaSource, Outcome, OutcomeKind, Step
from runner.store.engine import Database
from runner.store.jobs import GRACE
from runner.store.upkeep import LONGEST_WAIT, SHORTEST_WAIT, WORKER_TIMEOUT, WorkerInfo
from tests.support.fakes import (
    START,
    Stores,
    accepted,
    admit,
    do,
    job,
    open_stores,
    plain_result,
    rows_of,
    seed_batch,
    settle,
    states,
    submit_and_accept,
    take,
)


@pytest.fixture
def stores(database: Database) -> Stores:
    return open_stores(database)


def worker(credential: int, name: str = "worker-1") -> WorkerInfo:
    return WorkerInfo(name, credential, "host", 42, 8)


class TestLostMessages:
    def test_a_job_is_found_after_the_grace_and_not_before(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 1)
        admit(stores, seeded, START)
        assert admit(stores, seeded, START + GRACE - 0.1) == []
        (wake,) = admit(stores, seeded, START + GRACE)
        assert (wake.job_id, wake.step, wake.delay) == (seeded.jobs[0], Step.SUBMIT, 0.0)

    def test_a_message_sent_again_gets_its_own_grace(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 1)
        admit(stores, seeded, START)
        assert len(admit(stores, seeded, START + GRACE)) == 1
        assert admit(stores, seeded, START + GRACE + 1) == []
        assert len(admit(stores, seeded, START + 4 * GRACE)) == 1

    def test_a_job_with_a_delay_is_found_after_delay_and_grace(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 1)
        admit(stores, seeded)
        busy = Outcome(OutcomeKind.KEY_BUSY, http_status=409, retry_after=20.0)
        do(stores, seeded.jobs[0], Step.SUBMIT, busy, START)
        assert admit(stores, seeded, START + 20 + GRACE - 0.1) == []
        assert [wake.step for wake in admit(stores, seeded, START + 20 + GRACE)] == [Step.SUBMIT]

    def test_collecting_and_downloading_are_woken_before_submitting(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 3)
        admit(stores, seeded)
        for job_id in seeded.jobs[1:]:
            submit_and_accept(stores, job_id)
        outcome, result = plain_result([MediaSource("/url", "https://media.invalid/a.png")])
        do(stores, seeded.jobs[2], Step.COLLECT, outcome, result=result)
        woken = admit(stores, seeded, START + 100)
        assert [wake.step for wake in woken] == [Step.FETCH, Step.COLLECT, Step.SUBMIT]

    def test_an_ended_job_is_not_woken(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 1)
        admit(stores, seeded)
        do(stores, seeded.jobs[0], Step.SUBMIT, Outcome(OutcomeKind.REJECTED, http_status=422))
        assert admit(stores, seeded, START + 1000) == []

    def test_a_job_under_a_live_claim_is_not_woken_and_one_whose_claim_ran_out_is(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 1)
        admit(stores, seeded)
        stores.upkeep.seen(worker(seeded.credential), START)
        take(stores, seeded.jobs[0], Step.SUBMIT, START, lease=60.0)
        stores.upkeep.seen(worker(seeded.credential), START + 59)
        assert admit(stores, seeded, START + 59) == []
        stores.upkeep.seen(worker(seeded.credential), START + 61)
        assert [wake.job_id for wake in admit(stores, seeded, START + 61)] == [seeded.jobs[0]]

    def test_a_job_that_the_sweeper_wakes_can_be_claimed_in_that_moment(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 1)
        admit(stores, seeded)
        stores.upkeep.seen(worker(seeded.credential), START)
        take(stores, seeded.jobs[0], Step.SUBMIT, START, lease=60.0)
        stores.upkeep.seen(worker(seeded.credential), START + 60)
        woken = admit(stores, seeded, START + 60)
        assert all(take(stores, wake.job_id, wake.step, START + 60) for wake in woken)

    def test_no_message_is_sent_while_the_credential_cools_down_or_is_blocked(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 2)
        admit(stores, seeded)
        submit_and_accept(stores, seeded.jobs[0])
        do(stores, seeded.jobs[0], Step.COLLECT, Outcome(OutcomeKind.RATE_LIMITED, retry_after=40.0), START)
        assert admit(stores, seeded, START + 39) == []
        assert {wake.job_id for wake in admit(stores, seeded, START + 50)} == set(seeded.jobs)
        do(stores, seeded.jobs[0], Step.COLLECT, Outcome(OutcomeKind.UNAUTHORIZED), START + 50)
        assert admit(stores, seeded, START + 1000) == []

    def test_jobs_of_another_credential_are_left_to_their_own_sweeper(self, stores: Stores) -> None:
        mine = seed_batch(stores, 1)
        other = seed_batch(stores, 1, name="dogs", credential="another")
        admit(stores, other)
        assert {wake.job_id for wake in admit(stores, mine, START + 100)} == set(mine.jobs)

    def test_a_broker_that_was_emptied_costs_one_sweep(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 30, window=10)
        admit(stores, seeded)
        for job_id in seeded.jobs[:5]:
            submit_and_accept(stores, job_id)
        woken = admit(stores, seeded, START + 60)
        assert {wake.job_id for wake in woken} == set(seeded.jobs[:10])


class TestDeadWorkers:
    def test_the_claims_of_a_worker_that_was_not_seen_are_freed_and_its_jobs_woken(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 1)
        admit(stores, seeded)
        stores.upkeep.seen(worker(seeded.credential), START)
        take(stores, seeded.jobs[0], Step.SUBMIT, START, lease=600.0)
        assert admit(stores, seeded, START + WORKER_TIMEOUT) == []
        (wake,) = admit(stores, seeded, START + WORKER_TIMEOUT + 0.1)
        assert wake.job_id == seeded.jobs[0]
        again = take(stores, seeded.jobs[0], Step.SUBMIT, START + WORKER_TIMEOUT + 0.1, owner="worker-2")
        # It may have been sent by the one that died.
        assert again.job.charge == "possible"
        assert stores.upkeep.workers() == []

    def test_a_worker_that_is_seen_keeps_its_claims(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 1)
        admit(stores, seeded)
        claim = take(stores, seeded.jobs[0], Step.SUBMIT, START, lease=600.0)
        for seconds in range(0, 60, 2):
            stores.upkeep.seen(worker(seeded.credential), START + seconds)
            assert admit(stores, seeded, START + seconds) == []
        assert settle(stores, claim, accepted(), START + 60) is not None

    def test_a_dead_workers_late_answer_is_not_applied(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 1)
        admit(stores, seeded)
        stores.upkeep.seen(worker(seeded.credential), START)
        claim = take(stores, seeded.jobs[0], Step.SUBMIT, START, lease=600.0)
        admit(stores, seeded, START + 60)
        assert settle(stores, claim, accepted(), START + 61) is None

    def test_a_worker_that_takes_its_leave_frees_its_claims_and_leases_at_once(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 2)
        admit(stores, seeded)
        stores.upkeep.seen(worker(seeded.credential), START)
        take(stores, seeded.jobs[0], Step.SUBMIT, START)
        mine = take(stores, seeded.jobs[1], Step.SUBMIT, START, owner="worker-2")
        assert stores.upkeep.take_lease("sweep", "worker-1", START, 5)
        stores.upkeep.gone("worker-1", START + 1)
        assert job(stores, seeded.jobs[0])["claim_token"] is None
        assert job(stores, seeded.jobs[1])["claim_token"] == mine.token
        assert stores.upkeep.take_lease("sweep", "worker-2", START + 1, 5)
        assert stores.upkeep.workers() == []

    @pytest.mark.parametrize(("named", "waits"), [(1.0, SHORTEST_WAIT), (7.0, 7.0), (300.0, LONGEST_WAIT)])
    def test_a_read_whose_answer_may_be_lost_is_repeated_after_the_wait_of_before(
        self, stores: Stores, named: float, waits: float
    ) -> None:
        seeded = seed_batch(stores, 1)
        admit(stores, seeded)
        submit_and_accept(stores, seeded.jobs[0])
        do(
            stores,
            seeded.jobs[0],
            Step.COLLECT,
            Outcome(OutcomeKind.NOT_READY, status="IN_PROGRESS", retry_after=named),
        )
        read = START + named
        take(stores, seeded.jobs[0], Step.COLLECT, read)
        # When the process dies, the Router may have named such a wait once more.
        died = read + 0.5
        stores.upkeep.gone("worker-1", died)
        assert admit(stores, seeded, died + waits - 0.1) == []
        (wake,) = admit(stores, seeded, died + waits)
        assert (wake.job_id, wake.step) == (seeded.jobs[0], Step.COLLECT)
        take(stores, seeded.jobs[0], Step.COLLECT, died + waits)

    def test_after_a_week_a_read_is_repeated_at_once(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 1)
        admit(stores, seeded)
        submit_and_accept(stores, seeded.jobs[0])
        take(stores, seeded.jobs[0], Step.COLLECT)
        week = START + 7 * 86_400
        stores.upkeep.gone("worker-1", week)
        take(stores, seeded.jobs[0], Step.COLLECT, week)

    def test_only_workers_seen_lately_count_as_alive(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 1)
        stores.upkeep.seen(worker(seeded.credential, "old"), START)
        stores.upkeep.seen(worker(seeded.credential, "new"), START + WORKER_TIMEOUT)
        assert len(stores.upkeep.live_workers(seeded.credential, START + WORKER_TIMEOUT + 1)) == 1
        assert {one.id for one in stores.upkeep.workers()} == {"old", "new"}


class TestLeases:
    def test_a_second_sweeper_is_kept_out_until_the_lease_ends(self, stores: Stores) -> None:
        assert stores.upkeep.take_lease("sweep", "a", START, 5)
        assert not stores.upkeep.take_lease("sweep", "b", START + 4.9, 5)
        assert stores.upkeep.take_lease("sweep", "b", START + 5.1, 5)
        assert not stores.upkeep.take_lease("sweep", "a", START + 5.2, 5)

    def test_its_holder_renews_it(self, stores: Stores) -> None:
        assert stores.upkeep.take_lease("sweep", "a", START, 5)
        assert stores.upkeep.take_lease("sweep", "a", START + 4, 5)
        assert not stores.upkeep.take_lease("sweep", "b", START + 8, 5)

    def test_one_given_back_is_free_at_once_and_only_its_holder_gives_it_back(self, stores: Stores) -> None:
        assert stores.upkeep.take_lease("sweep", "a", START, 5)
        stores.upkeep.drop_lease("sweep", "b")
        assert not stores.upkeep.take_lease("sweep", "b", START + 1, 5)
        stores.upkeep.drop_lease("sweep", "a")
        assert stores.upkeep.take_lease("sweep", "b", START + 1, 5)

    def test_different_works_have_different_leases(self, stores: Stores) -> None:
        assert stores.upkeep.take_lease("sweep:1", "a", START, 5)
        assert stores.upkeep.take_lease("sweep:2", "b", START, 5)

    def test_of_many_who_ask_at_once_one_gets_it(self, stores: Stores) -> None:
        with ThreadPoolExecutor(8) as pool:
            got = list(pool.map(lambda n: stores.upkeep.take_lease("sweep", f"w{n}", START, 5), range(8)))
        assert got.count(True) == 1


class TestSweepingWhileWorkersWork:
    def test_answers_applied_during_sweeps_are_neither_lost_nor_refused(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 40, window=40)
        admit(stores, seeded)
        claims = [take(stores, job_id, Step.SUBMIT, START, lease=10) for job_id in seeded.jobs]
        late = START + 10.5  # every claim has just run out, so the sweeper looks at the very same jobs

        def finish(number: int) -> bool:
            refused = Outcome(OutcomeKind.REJECTED, http_status=422)
            return settle(stores, claims[number], refused, late) is not None

        for seconds in (0.0, 2.0, 4.0, 6.0, 8.0, 10.0):
            stores.upkeep.seen(worker(seeded.credential), START + seconds)
        with ThreadPoolExecutor(8) as pool:
            finished = [pool.submit(finish, number) for number in range(40)]
            swept = [pool.submit(admit, stores, seeded, late) for _ in range(10)]
            assert all(future.result(60) for future in finished)
            for future in swept:
                future.result(60)
        assert states(stores, seeded) == {JobState.FAILED: 40}
        assert rows_of(stores.database, "batch")[0]["state"] == "finished"

    @pytest.mark.service
    def test_a_sweep_and_an_answer_that_want_the_same_rows_do_not_block_each_other(
        self, postgres_database: Database
    ) -> None:
        stores = open_stores(postgres_database)
        seeded = seed_batch(stores, 1)
        admit(stores, seeded)
        claim = take(stores, seeded.jobs[0], Step.SUBMIT, START, lease=10)
        late = START + 10.5
        stores.upkeep.seen(worker(seeded.credential), late)
        refused = Outcome(OutcomeKind.REJECTED, http_status=422)
        with ThreadPoolExecutor(2) as pool:
            # Whoever holds the credential makes both line up for it: first the sweep, then the answer.
            with postgres_database.write("test") as connection:
                connection.execute(text("SELECT id FROM credential FOR UPDATE"))
                swept = pool.submit(admit, stores, seeded, late)
                wait_for_waiting(postgres_database, 1)
                applied = pool.submit(settle, stores, claim, refused, late)
                wait_for_waiting(postgres_database, 2)
            assert applied.result(60) is not None
            swept.result(60)
        assert states(stores, seeded) == {JobState.FAILED: 1}


def wait_for_waiting(database: Database, count: int) -> None:
    """Until so many transactions of this database wait for a lock."""
    deadline = time.monotonic() + 20
    waiting = text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    while time.monotonic() < deadline:
        with database.read() as connection:
            if connection.execute(waiting).scalar_one() >= count:
                return
    raise AssertionError(f"never were {count} transactions waiting")
