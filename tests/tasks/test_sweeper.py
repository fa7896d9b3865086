"""The sweeper: who is shown as alive, who sweeps, whom it takes for dead, and when it gives up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from runner.core.errors import StoreError
from runner.core.types import Step
from runner.store.engine import Database
from runner.store.records import Wake
from runner.store.upkeep import WORKER_TIMEOUT, HeldClaim, UpkeepStore, WorkerInfo
from tasks.acting import Acting
from tasks.upkeep import INTERVAL, LEASE, Sweeper
from tests.support.fakes import START, Clock, Stores, admit, job, open_stores, seed_batch, take


class Outbox:
    """Keeps what was published."""

    def __init__(self) -> None:
        self.wakes: list[Wake] = []

    def publish(self, wakes: Iterable[Wake]) -> int:
        taken = list(wakes)
        self.wakes += taken
        return len(taken)


@pytest.fixture
def stores(sqlite_database: Database) -> Stores:
    return open_stores(sqlite_database)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def sweeper(
    stores: Stores, clock: Clock, name: str = "worker-1", outbox: Outbox | None = None, only: str | None = None
) -> Sweeper:
    worker = WorkerInfo(name, 1, "host", 42, 8)
    return Sweeper(stores.upkeep, worker, outbox or Outbox(), clock, only)


def test_a_look_shows_the_worker_and_sends_what_is_due(stores: Stores, clock: Clock) -> None:
    seeded, outbox = seed_batch(stores, 2), Outbox()
    assert sweeper(stores, clock, outbox=outbox).tick() == 2
    assert [wake.job_id for wake in outbox.wakes] == list(seeded.jobs)
    assert [worker.id for worker in stores.upkeep.live_workers(seeded.credential, START)] == ["worker-1"]


def test_one_at_a_time_sweeps_and_another_takes_over_when_it_is_gone(stores: Stores, clock: Clock) -> None:
    seed_batch(stores, 2)
    first, second = sweeper(stores, clock), sweeper(stores, clock, "worker-2")
    assert (first.tick(), second.tick()) == (2, 0)
    clock.advance(LEASE + 5.1)
    assert second.tick() == 2


def test_sweepers_of_one_batch_each_keep_others_of_the_same_batch_only_waiting(stores: Stores, clock: Clock) -> None:
    one, other = seed_batch(stores, 1, name="one"), seed_batch(stores, 1, name="other")
    assert sweeper(stores, clock, only=one.batch.id).tick() == 2
    clock.advance(6)
    assert sweeper(stores, clock, "worker-2", only=other.batch.id).tick() == 2
    assert sweeper(stores, clock, "worker-3", only=other.batch.id).tick() == 0


def test_after_an_outage_the_others_have_time_to_show_themselves(stores: Stores, clock: Clock) -> None:
    seeded = seed_batch(stores, 1)
    me = sweeper(stores, clock)
    admit(stores, seeded)
    stores.upkeep.seen(WorkerInfo("worker-2", 1, "host", 43, 8), clock())
    take(stores, seeded.jobs[0], Step.SUBMIT, owner="worker-2", lease=1000)
    me.tick()
    clock.advance(WORKER_TIMEOUT * 3)
    me.tick()
    assert job(stores, seeded.jobs[0])["claim_owner"] == "worker-2"
    for _ in range(int(WORKER_TIMEOUT / INTERVAL) + 1):
        clock.advance(INTERVAL)
        me.tick()
    assert job(stores, seeded.jobs[0])["claim_owner"] is None


def test_a_claim_of_its_own_that_no_thread_acts_on_is_freed(stores: Stores, clock: Clock) -> None:
    seeded, acting, outbox = seed_batch(stores, 2), Acting(), Outbox()
    worker = WorkerInfo("worker-1", 1, "host", 42, 8)
    me = Sweeper(stores.upkeep, worker, outbox, clock, acting=acting)
    me.tick()
    for job_id in seeded.jobs:
        take(stores, job_id, Step.SUBMIT, owner="worker-1", lease=1000)
    with acting.on(seeded.jobs[0]):
        me.tick()
    assert job(stores, seeded.jobs[0])["claim_owner"] == "worker-1"
    forgotten = job(stores, seeded.jobs[1])
    # It may have been sent before it was forgotten.
    assert (forgotten["claim_owner"], forgotten["charge"]) == (None, "possible")
    assert [wake.job_id for wake in outbox.wakes[-1:]] == [seeded.jobs[1]]


class Failing(UpkeepStore):
    """A store whose database is at fault."""

    def __init__(self, stores: Stores, error: StoreError) -> None:
        super().__init__(stores.database, stores.jobs)
        self._error = error

    def seen(self, worker: WorkerInfo, now: float, forgotten: Sequence[HeldClaim] = ()) -> None:
        raise self._error


@pytest.mark.parametrize("lasting", [True, False])
def test_a_fault_that_lasts_ends_the_work_and_a_passing_one_does_not(
    stores: Stores, clock: Clock, lasting: bool
) -> None:
    error = StoreError("the disk is full", lasting=lasting)
    ended: list[bool] = []
    worker = WorkerInfo("worker-1", 1, "host", 42, 8)
    failing = Sweeper(Failing(stores, error), worker, Outbox(), clock, on_failure=lambda: ended.append(True))
    failing.start()
    failing.stop()
    assert failing.failure is (error if lasting else None)
    assert bool(ended) is lasting


def test_a_worker_that_stops_gives_its_claims_and_its_office_back(stores: Stores, clock: Clock) -> None:
    seeded = seed_batch(stores, 1)
    me = sweeper(stores, clock)
    me.start()
    take(stores, seeded.jobs[0], Step.SUBMIT, owner="worker-1", lease=1000)
    me.stop()
    assert job(stores, seeded.jobs[0])["claim_token"] is None
    assert stores.upkeep.take_lease("sweep:1", "another", clock(), LEASE)
