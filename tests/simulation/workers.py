"""Workers that take messages, die, stand still, leave and come back, each with a sweeper of its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from runner.assets import AssetSink
from runner.core.errors import StoreError
from runner.core.types import Policy, Step
from runner.store.engine import Database
from runner.store.jobs import JobStore
from runner.store.records import Wake
from runner.store.upkeep import WORKER_TIMEOUT, UpkeepStore, WorkerInfo
from tasks.pacing import FirstRead
from tasks.steps import STEPS, Router, Runtime
from tasks.upkeep import Sweeper
from tests.simulation.bus import Bus
from tests.simulation.media import MediaModel
from tests.simulation.world import BEFORE_COMMIT, Process, Task, Violation, World

CLAIM_SECONDS = 135.0
DOWNLOAD_CLAIM_SECONDS = 660.0
#: A worker is seen at least so often, and no sweeper thinks that it was asleep, in seconds.
LONGEST_GAP = 3.5

StepOfJob = Callable[[Runtime, int], list[Wake]]


@dataclass(frozen=True)
class Parts:
    """The real parts that are simulated; a test that breaks a rule puts another in the place of one."""

    steps: Mapping[Step, StepOfJob] = field(default_factory=lambda: dict(STEPS))
    jobs: type[JobStore] = JobStore
    upkeep: type[UpkeepStore] = UpkeepStore
    policy: Policy = field(default_factory=Policy)
    sweeps: bool = True
    router: Callable[[Router], Router] = lambda router: router
    sink: Callable[[AssetSink], AssetSink] = lambda sink: sink


@dataclass(eq=False)
class Worker:
    """One process."""

    name: str
    info: WorkerInfo
    runtime: Runtime
    sweeper: Sweeper
    #: What its clock is ahead of the world's.
    offset: float
    alive: bool = True
    stalled_until: float = 0.0
    last_tick: float = 0.0
    seen_at: float = 0.0
    #: Takes no new messages.
    leaving: bool = False


@dataclass(frozen=True)
class Surroundings:
    """What workers work with, real and modelled."""

    database: Database
    router: Router
    media: MediaModel
    sinks: Mapping[str, AssetSink]
    credential: int


class Cluster:
    """All workers, and the messages on their way to them."""

    def __init__(self, world: World, parts: Parts, around: Surroundings) -> None:
        self._world = world
        self._parts = parts
        self._around = around
        self._scenario = world.scenario
        self._jobs = parts.jobs(
            around.database, longest_countdown=world.scenario.longest_countdown, breaker=world.scenario.breaker
        )
        self.upkeep = parts.upkeep(around.database, self._jobs)
        self._bus = Bus(world, self.deliver)
        self.workers: list[Worker] = []
        self._born = 0
        self._backlog: list[Wake] = []
        #: The latest look of a sweeper found nothing to do, and nothing has changed since.
        self.quiet = False
        world.listeners.append(self)
        world.on_death = self._on_death
        world.tick = self._tick

    # ---- birth and death ----

    @property
    def living(self) -> list[Worker]:
        """Workers whose processes run."""
        return [worker for worker in self.workers if worker.alive]

    def start(self) -> None:
        """A new worker, as a process starts one."""
        world, around = self._world, self._around
        self._born += 1
        name = f"worker-{self._born}"
        offset = world.offset + world.rng.choice((-0.5, 0.5)) * self._scenario.skew
        runtime = Runtime(
            jobs=self._jobs,
            router=self._parts.router(around.router),
            media=around.media,
            owner=name,
            clock=lambda: world.now + offset,
            sleep=world.sleep,
            policy=self._parts.policy,
            claim_seconds=CLAIM_SECONDS,
            download_claim_seconds=DOWNLOAD_CLAIM_SECONDS,
            max_asset_bytes=10_000,
            first_read=FirstRead(),
            schemas={},
            sinks={batch: self._parts.sink(sink) for batch, sink in around.sinks.items()},
            calls_per_second=self._scenario.calls_per_second,
        )
        info = WorkerInfo(name, around.credential, "host", self._born, self._scenario.threads)
        worker = Worker(name, info, runtime, Sweeper(self.upkeep, info, self._bus, runtime.clock), offset)
        world.tell(name, "starts")
        self._show_the_living()
        self._bury(runtime.clock())
        self.upkeep.set_clock_right(around.credential, runtime.clock())
        self.workers.append(worker)
        self.quiet = False
        self._look(worker)
        self._hand_out()

    def _bury(self, now: float) -> None:
        if self._world.rng.random() < 0.5:
            # The dead were of this machine, so that the new worker knows.
            names = {worker.name for worker in self.living}
            for info in self.upkeep.workers():
                if info.id not in names:
                    self.upkeep.gone(info.id, now)

    def _on_death(self, process: Process, boundary: str) -> None:
        worker = next(worker for worker in self.workers if worker.name == process.name)
        self._world.tell(worker.name, f"is killed at: {boundary}")
        worker.alive = False
        self._world.end(worker)
        # The connections of a dead process are closed, which rolls back what they had begun.
        self._around.database.close()
        self._lose_messages()
        self.quiet = False
        longest = self._world.rng.choice((1.0, 1.0, 20.0, 20.0, 20.0, 20.0, 300.0, 300.0, 40 * 3600.0))
        self._world.after(self._world.rng.uniform(0.5, longest), self.start)

    def _lose_messages(self) -> None:
        if self._scenario.embedded:
            self._backlog.clear()
            self._bus.forget()

    def leave(self) -> None:
        """One worker stops as it should, after the calls under way, and another comes some time."""
        takers = [worker for worker in self.living if not worker.leaving]
        if not takers:
            return
        worker = self._world.rng.choice(takers)
        worker.leaving = True
        self._world.tell(worker.name, "leaves")
        self._world.after(10.0, lambda: self._left(worker))

    def _left(self, worker: Worker) -> None:
        if not worker.alive:
            return
        worker.alive = False
        self._world.end(worker)
        worker.sweeper.stop()
        self._lose_messages()
        self.quiet = False
        self._world.tell(worker.name, "has left")
        self._world.after(self._world.rng.uniform(0.5, 30.0), self.start)

    # ---- messages ----

    def deliver(self, wake: Wake) -> None:
        """A message comes to a worker with a free thread, or waits for one."""
        self._backlog.append(wake)
        self._hand_out()

    def _hand_out(self) -> None:
        free = [worker for worker in self.living if not worker.leaving and self._has_room(worker)]
        while self._backlog and free:
            worker = self._world.rng.choice(free)
            wake = self._backlog.pop(self._world.rng.randrange(len(self._backlog)))
            self._world.spawn(worker, f"{wake.step} {wake.job_id}", wake.job_id, self._work(worker, wake))
            free = [worker for worker in free if self._has_room(worker)]

    def _has_room(self, worker: Worker) -> bool:
        busy = sum(task.process is worker and task.job_id is not None for task in self._world.tasks)
        return busy < self._scenario.threads

    def _work(self, worker: Worker, wake: Wake) -> Callable[[], None]:
        def run() -> None:
            try:
                self._bus.publish(self._parts.steps[wake.step](worker.runtime, wake.job_id))
            except StoreError as error:
                self._world.tell("failed", error.message)
            # The thread is free only once its task has ended.
            self._world.after(0.0, self._hand_out)

        return run

    # ---- sweepers ----

    def _tick(self) -> None:
        now = self._world.now
        for worker in self.living:
            if worker.stalled_until <= now:
                self._look(worker)
            if now - worker.seen_at > WORKER_TIMEOUT and worker.seen_at:
                self._world.outdate(worker)

    def _show_the_living(self) -> None:
        """Time that was passed over has been ticked all the same."""
        for worker in self.living:
            if worker.stalled_until <= self._world.now:
                worker.seen_at = self._world.now
                self.upkeep.seen(worker.info, worker.runtime.clock())

    def _look(self, worker: Worker) -> None:
        worker.last_tick = self._world.now
        if not self._parts.sweeps:
            self.quiet = True
            return

        def run() -> None:
            self.quiet = False
            try:
                before, now = self._bus.given, self._world.now
                worker.sweeper.tick()
                self.quiet = task.swept and self._bus.given == before and self._world.now == now
            except StoreError as error:
                self._world.tell("failed", error.message)

        task = self._world.spawn(worker, "sweep", None, run)

    # ---- boundaries ----

    def at_boundary(self, task: Task, boundary: str, detail: str) -> None:
        """Holds two promises of every exchange, and notes what is written."""
        world = self._world
        if boundary == BEFORE_COMMIT and world.strikes("commit fails"):
            raise sqlite3.OperationalError("disk I/O error")
        if boundary == "after commit":
            self._note_commit(task, detail)
        elif boundary in ("before call", "before download"):
            task.acting = True
            others = (other for other in world.tasks if other is not task and other.job_id == task.job_id)
            if world.binds(task) and any(other.acting and not other.outdated for other in others):
                raise Violation(f"two at once act on job {task.job_id}")

    def _note_commit(self, task: Task, transaction: str) -> None:
        if transaction == "sweep":
            task.swept = True
        elif transaction == "seen":
            next(worker for worker in self.workers if worker is task.process).seen_at = self._world.now
        elif transaction in ("claim", "apply"):
            self.quiet = False
        if transaction == "claim":
            task.claimed_at = self._world.now
        elif transaction == "apply":
            task.acting = False
            for call in task.on_applied:
                if not task.outdated:
                    call()
            task.on_applied.clear()
