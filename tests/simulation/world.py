"""The simulated world's clock and order: tasks are greenlets, and only here it is chosen which of them goes on.

A task may lose its turn at every boundary that the code announces, except inside a transaction, which holds the
database: there it can only die.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from greenlet import getcurrent, greenlet

from tests.simulation.scenario import Scenario

#: When the world begins, in Unix seconds.
BEGIN = 1_800_000_000.0
#: Turns after which a seed counts as going round in circles.
MOST_TURNS = 15_000
#: How often a task loses its turn at a boundary.
_YIELDS = 0.4
#: A boundary inside a transaction.
BEFORE_COMMIT = "before commit"


class Died(BaseException):
    """The worker's process was killed: no code of it runs any more."""


class Violation(AssertionError):
    """A promise was broken."""


class Process(Protocol):
    """What the world must know of a worker."""

    name: str
    alive: bool
    stalled_until: float


class Listener(Protocol):
    """Whoever follows what tasks do at boundaries."""

    def at_boundary(self, task: Task, boundary: str, detail: str) -> None:
        """A task has come to a boundary."""
        ...


@dataclass(eq=False)
class Task:
    """One thread of a worker while it does one thing."""

    name: str
    process: Process
    job_id: int | None
    strand: greenlet = field(repr=False)
    #: It makes its exchange, and nobody else may for the same job.
    acting: bool = False
    #: Its claim may be another's by now: it stood still, or the clock did not.
    outdated: bool = False
    claimed_at: float = 0.0
    #: It has looked for what is lost.
    swept: bool = False
    #: To call when its answer has been written: the wait that the answer asked for counts from then on.
    on_applied: list[Callable[[], None]] = field(default_factory=list)


class World:
    """Time, chance, turns, and the record of what happened."""

    def __init__(self, rng: Random, scenario: Scenario, *, traced: bool) -> None:
        self.rng = rng
        self.scenario = scenario
        self.now = BEGIN
        #: What the clock on the wall is wrong by.
        self.offset = 0.0
        #: Every worker's clock says the same, but for a little skew.
        self.clocks_agree = True
        self.trace: list[str] | None = [] if traced else None
        self.listeners: list[Listener] = []
        self.tasks: list[Task] = []
        #: Told of a worker that must die.
        self.on_death: Callable[[Process, str], None] = lambda process, boundary: None
        #: When a sweeper looks next, and how.
        self.next_tick: Callable[[], float] = lambda: float("inf")
        self.tick: Callable[[], None] = lambda: None
        self._ready: list[Task] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._turns = 0
        self._hub = getcurrent()
        self._by_strand: dict[greenlet, Task] = {}
        self._dying: tuple[Process, str] | None = None

    # ---- chance and the record ----

    @property
    def calm(self) -> bool:
        """Nothing goes wrong any more."""
        return self.now >= BEGIN + self.scenario.calm_at

    def strikes(self, fault: str) -> bool:
        """Whether a fault happens now."""
        chance = self.scenario.faults.get(fault, 0.0)
        if not chance or self.calm or self.rng.random() >= chance:
            return False
        self.tell("fault", fault)
        return True

    def tell(self, who: str, what: str) -> None:
        """Write a line into the record."""
        if self.trace is not None:
            task = self.current
            self.trace.append(f"{self.now - BEGIN:12.3f}  {task.name if task else '-':<22} {who}: {what}")

    def binds(self, task: Task) -> bool:
        """Whether the task has no excuse: its claim is its own, by any worker's clock."""
        return self.clocks_agree and not task.outdated

    # ---- tasks ----

    @property
    def current(self) -> Task | None:
        """The task whose turn it is; `None` for the world itself."""
        return self._by_strand.get(getcurrent())

    def spawn(self, process: Process, name: str, job_id: int | None, run: Callable[[], None]) -> Task:
        """A new task, which gets its turn some time."""

        def body() -> None:
            try:
                run()
            except Died:
                self.tell("died", name)
            finally:
                self.tasks.remove(task)
                del self._by_strand[task.strand]

        task = Task(f"{process.name} {name}", process, job_id, greenlet(body, parent=self._hub))
        self.tasks.append(task)
        self._by_strand[task.strand] = task
        self._ready.append(task)
        return task

    def sleep(self, seconds: float) -> None:
        """The current task waits."""
        task = self.current
        assert task is not None
        self.after(seconds, lambda: self._ready.append(task))
        self._hub.switch()

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        """Let something happen later."""
        self._number += 1
        heapq.heappush(self._events, (self.now + seconds, self._number, event))

    def boundary(self, name: str, detail: str = "") -> None:
        """A task has come to a boundary: it may go on, lose its turn, stand still or die."""
        task = self.current
        if task is None:
            return
        self.tell("at", f"{name} {detail}")
        if self.strikes("worker dies"):
            self._dying = (task.process, name)
            raise Died
        for listener in self.listeners:
            listener.at_boundary(task, name, detail)
        if name == BEFORE_COMMIT:
            return
        if self.strikes("worker stalls"):
            self._stall(task.process)
        if task.process.stalled_until > self.now or self.rng.random() < _YIELDS:
            self._ready.append(task)
            self._hub.switch()

    def _stall(self, process: Process) -> None:
        process.stalled_until = self.now + self.rng.choice((5.0, 20.0, 180.0))
        self.tell(process.name, f"stands still for {process.stalled_until - self.now:.0f} s")
        self.outdate(process)

    def outdate(self, process: Process) -> None:
        """Others may take a process for dead, and its claims."""
        for task in self.tasks:
            if task.process is process:
                task.outdated = True

    def end(self, process: Process) -> None:
        """Every task of a dead process ends where it stands."""
        for task in [task for task in self.tasks if task.process is process]:
            if task in self._ready:
                self._ready.remove(task)
            if task.strand:
                task.strand.throw(Died)
            else:
                self.tasks.remove(task)
                del self._by_strand[task.strand]

    def jump_clock(self, seconds: float) -> None:
        """Somebody sets the clock."""
        self.offset += seconds
        self.clocks_agree = False
        self.tell("clock", f"set by {seconds:+.1f} s")

    # ---- turns ----

    def run(self, until: float) -> None:
        """Let everything happen until nothing is left. Raises `Violation` where that is not before `until`."""
        while self._turn():
            self._turns += 1
            if self.now > until:
                raise Violation("the world does not come to rest")
            if self._turns > MOST_TURNS:
                raise Violation("the world goes round in circles")

    def _turn(self) -> bool:
        if self._ready:
            self._resume(self._ready.pop(self.rng.randrange(len(self._ready))))
            return True
        at = self._events[0][0] if self._events else float("inf")
        tick_at = self.next_tick()
        if min(at, tick_at) == float("inf"):
            return False
        self.now = max(self.now, min(at, tick_at))
        if tick_at <= at:
            self.tick()
        else:
            heapq.heappop(self._events)[2]()
        return True

    def _resume(self, task: Task) -> None:
        process = task.process
        if not task.strand.dead and process.alive:
            if process.stalled_until > self.now:
                self.after(process.stalled_until - self.now, lambda: self._ready.append(task))
                return
            task.strand.switch()
        if self._dying is not None:
            dying, self._dying = self._dying, None
            self.on_death(*dying)

    def close(self) -> None:
        """End every task that is left."""
        for task in list(self.tasks):
            if task.strand:
                task.strand.throw(Died)
        self.tasks.clear()
