"""Deadlines, clocks that were put back, and what is overdue."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from runner.core.errors import StoreError
from runner.core.expiry import RETENTION
from runner.core.types import MediaSource, Outcome, OutcomeKind, Step
from runner.store.engine import Database
from runner.store.queries import OVERDUE, Queries
from runner.store.upkeep import CLOCKS_APART, WORKER_TIMEOUT, WorkerInfo
from tests.support.fakes import (
    START,
    Seeded,
    Stores,
    admit,
    do,
    job,
    open_stores,
    plain_result,
    row_of,
    seed_batch,
    submit_and_accept,
    succeed,
    take,
)

SHORT_LIVED = MediaSource("/sample", "https://delivery.bfl.ai/a.jpg")
LONG_LIVED = MediaSource("/url", "https://media.invalid/a.png")
HOUR = 3600.0


@pytest.fixture
def stores(database: Database) -> Stores:
    return open_stores(database)


def collected(stores: Stores, job_id: int, source: MediaSource, now: float = START) -> None:
    submit_and_accept(stores, job_id, now)
    outcome, result = plain_result([source])
    do(stores, job_id, Step.COLLECT, outcome, now, result=result)


class TestDeadlines:
    def test_a_request_has_the_retention_of_its_result_and_then_the_life_of_its_links(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 1)
        admit(stores, seeded)
        assert job(stores, seeded.jobs[0])["deadline"] is None
        submit_and_accept(stores, seeded.jobs[0])
        assert job(stores, seeded.jobs[0])["deadline"] == START + RETENTION
        outcome, result = plain_result([LONG_LIVED, SHORT_LIVED])
        do(stores, seeded.jobs[0], Step.COLLECT, outcome, START + 5, result=result)
        assert job(stores, seeded.jobs[0])["deadline"] == START + 5 + 600

    def test_what_has_ended_ends_no_more(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 1)
        admit(stores, seeded)
        succeed(stores, seeded.jobs[0])
        assert job(stores, seeded.jobs[0])["deadline"] is None

    def test_what_ends_first_is_woken_first_and_submits_come_last(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 4, now=START - 20 * HOUR)
        admit(stores, seeded, START - 20 * HOUR)
        submit_and_accept(stores, seeded.jobs[3], START)
        submit_and_accept(stores, seeded.jobs[2], START - 20 * HOUR)
        collected(stores, seeded.jobs[1], SHORT_LIVED)
        woken = admit(stores, seeded, START + 100)
        rows = [(wake.row, wake.step) for wake in woken]
        assert rows == [(2, Step.FETCH), (3, Step.COLLECT), (4, Step.COLLECT), (1, Step.SUBMIT)]

    def test_what_ends_soon_and_was_not_collected_is_counted(self, stores: Stores) -> None:
        queries = Queries(stores.database)
        seeded = seed_batch(stores, 3)
        admit(stores, seeded)
        submit_and_accept(stores, seeded.jobs[0])
        collected(stores, seeded.jobs[1], SHORT_LIVED)
        assert queries.expiring(seeded.batch.id, START + 60) is None
        soon = queries.expiring(seeded.batch.id, START + HOUR)
        assert soon is not None
        assert (soon.jobs, soon.first) == (1, START + 600)
        later = queries.expiring(seeded.batch.id, START + 25 * HOUR)
        assert later is not None
        assert later.jobs == 2


class TestOverdue:
    def test_a_step_that_nobody_takes_shows_after_a_while(self, stores: Stores) -> None:
        queries = Queries(stores.database)
        seeded = seed_batch(stores, 2)
        admit(stores, seeded)
        due = job(stores, seeded.jobs[0])["wake_at"]
        assert queries.overdue(seeded.batch.id, due + OVERDUE) is None
        found = queries.overdue(seeded.batch.id, due + OVERDUE + 1)
        assert found is not None
        assert (found.jobs, found.seconds) == (2, OVERDUE + 1)

    def test_a_step_that_is_being_taken_is_not_overdue(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 1)
        admit(stores, seeded)
        take(stores, seeded.jobs[0], Step.SUBMIT, lease=1000)
        assert Queries(stores.database).overdue(seeded.batch.id, START + 500) is None


class TestAClockThatWasPutBack:
    BACK = 2 * HOUR

    def waiting(self, stores: Stores, seconds: float) -> Seeded:
        """A batch whose only job was told to wait."""
        seeded = seed_batch(stores, 1)
        admit(stores, seeded)
        busy = Outcome(OutcomeKind.KEY_BUSY, http_status=409, retry_after=seconds)
        do(stores, seeded.jobs[0], Step.SUBMIT, busy, START)
        return seeded

    def test_a_wait_counts_from_when_it_was_written(self, stores: Stores) -> None:
        seeded = self.waiting(stores, 30.0)
        now = START - self.BACK
        stores.upkeep.set_clock_right(seeded.credential, now)
        assert job(stores, seeded.jobs[0])["due_at"] == now + 30
        assert [wake.step for wake in admit(stores, seeded, now + 31)] == [Step.SUBMIT]

    def test_one_that_is_right_changes_nothing(self, stores: Stores) -> None:
        seeded = self.waiting(stores, 30.0)
        before = job(stores, seeded.jobs[0])
        stores.upkeep.set_clock_right(seeded.credential, START - CLOCKS_APART)
        assert job(stores, seeded.jobs[0]) == before

    def test_a_job_that_waits_to_come_in_again_does_not_wait_for_the_old_clock(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 1)
        admit(stores, seeded)
        full = Outcome(OutcomeKind.BACKLOG_FULL, http_status=429, retry_after=20.0)
        do(stores, seeded.jobs[0], Step.SUBMIT, full, START)
        now = START - self.BACK
        stores.upkeep.set_clock_right(seeded.credential, now)
        assert admit(stores, seeded, now + 19) == []
        assert len(admit(stores, seeded, now + 21)) == 1

    def test_a_cool_down_is_shortened_too(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 1)
        admit(stores, seeded)
        limited = Outcome(OutcomeKind.RATE_LIMITED, http_status=429, retry_after=40.0)
        do(stores, seeded.jobs[0], Step.SUBMIT, limited, START)
        now = START - self.BACK
        stores.upkeep.set_clock_right(seeded.credential, now)
        assert row_of(stores.database, "credential")["cool_down_until"] == now + 40

    def test_a_worker_seen_in_the_future_is_dead_and_its_claim_free(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 1)
        admit(stores, seeded)
        stores.upkeep.seen(WorkerInfo("worker-1", seeded.credential, "here", 1, 4), START)
        take(stores, seeded.jobs[0], Step.SUBMIT)
        now = START - self.BACK
        assert stores.upkeep.live_workers(seeded.credential, now) == []
        stores.upkeep.sweep(seeded.credential, now)
        assert job(stores, seeded.jobs[0])["claim_token"] is None

    def test_the_sweepers_office_is_free_again(self, stores: Stores) -> None:
        assert stores.upkeep.take_lease("sweep:1", "old", START, 5.0)
        assert not stores.upkeep.take_lease("sweep:1", "new", START - 1, 5.0)
        assert stores.upkeep.take_lease("sweep:1", "new", START - self.BACK, 5.0)


def test_after_an_outage_nobody_is_taken_for_dead_at_once(stores: Stores) -> None:
    seeded = seed_batch(stores, 1)
    admit(stores, seeded)
    stores.upkeep.seen(WorkerInfo("worker-1", seeded.credential, "here", 1, 4), START)
    take(stores, seeded.jobs[0], Step.SUBMIT, lease=1000)
    later = START + WORKER_TIMEOUT + 100
    stores.upkeep.sweep(seeded.credential, later, bury=False)
    assert job(stores, seeded.jobs[0])["claim_owner"] == "worker-1"
    stores.upkeep.sweep(seeded.credential, later)
    assert job(stores, seeded.jobs[0])["claim_owner"] is None


def test_a_full_disk_is_said_to_last(sqlite_database: Database) -> None:
    def fill() -> None:
        with sqlite_database.write("test") as connection:
            connection.execute(text("PRAGMA max_page_count = 1"))
            connection.execute(text("CREATE TABLE filler AS SELECT zeroblob(10000000) AS x"))

    with pytest.raises(StoreError) as full:
        fill()
    assert full.value.lasting
    assert "free some space" in (full.value.advice or "")
