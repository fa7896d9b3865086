"""One seed: a world is set up, things go wrong in it, they stop going wrong, and the promises are checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

from runner.core.boundaries import observed_by
from runner.core.types import IN_FLIGHT
from runner.store.engine import Database
from tests.simulation.database import empty, look
from tests.simulation.media import MediaModel, MemorySink
from tests.simulation.promises import check
from tests.simulation.router import RouterModel
from tests.simulation.scenario import Scenario, draw
from tests.simulation.user import User
from tests.simulation.workers import LONGEST_GAP, Cluster, Parts, Surroundings
from tests.simulation.world import BEGIN, Violation, World

#: No seed takes longer than this, in seconds of its own time.
_LONGEST = 40 * 86400.0
_NEVER = float("inf")
_IN_FLIGHT = {state.value for state in IN_FLIGHT}
_MOMENTS = """
SELECT wake_at, CASE WHEN state = 'pending' THEN due_at END AS due_at, claim_owner, claim_until FROM job
"""
_CREDENTIAL = (
    "SELECT cool_down_until, (SELECT until FROM lease) AS until, (SELECT holder FROM lease) AS holder FROM credential"
)
#: States that a user does not leave alone.
_STANDING = "SELECT 1 FROM job WHERE state <> 'succeeded' LIMIT 1"


@dataclass(frozen=True)
class Result:
    """What a seed came to."""

    seed: int
    #: The promise that was broken, or the error that nobody expected.
    failure: str | None
    #: What happened, in order, where that was asked for.
    trace: tuple[str, ...]
    #: How far the world came, in its own seconds.
    seconds: float


class Simulation:
    """A world with everything in it."""

    def __init__(
        self, database: Database, seed: int, parts: Parts, where: Mapping[str, object], *, traced: bool
    ) -> None:
        self.database = database
        rng = Random(seed)
        self.scenario: Scenario = replace(draw(rng), **where)  # type: ignore[arg-type]  # fields by name
        self.world = World(rng, self.scenario, traced=traced)
        self.parts = parts
        self.user = User(self.world, parts, database)
        self.media = MediaModel(self.world)
        self.router = RouterModel(self.world, self.media, self._in_window)
        self.sinks: dict[str, MemorySink] = {}

    def run(self) -> None:
        """From the first row to the last check."""
        world, rng = self.world, self.world.rng
        world.tell("scenario", str(self.scenario))
        self.user.submit()
        self.sinks = {batch: MemorySink(world) for batch in self.user.ids}
        around = Surroundings(self.database, self.router, self.media, self.sinks, self.user.credential)
        self.cluster = Cluster(world, self.parts, around)
        world.next_tick = self._next_tick
        self._plan(rng)
        for _ in range(self.scenario.workers):
            world.after(rng.uniform(0.0, 1.0), self.cluster.start)
        end = BEGIN + _LONGEST
        world.run(end)
        self._visit(end)
        check(self.database, self.router, self.user, self.sinks)

    def _plan(self, rng: Random) -> None:
        """What comes from outside while things go wrong."""
        world, calm_at = self.world, self.scenario.calm_at
        if rng.random() < 0.3:
            number, row = rng.randrange(len(self.scenario.batches)), 1
            self.router.refused[f"{number}/{row}"] = rng.choice(((422, "invalid_input"), (404, "model_not_found")))
        for _ in range(rng.choice((0, 0, 1, 3))):
            world.after(rng.uniform(1.0, calm_at), lambda: self._touch(lambda: self.user.command(self.router)))
        if rng.random() < 0.3:
            world.after(rng.uniform(1.0, calm_at), self.cluster.leave)
        if self.scenario.clock_jumps:
            world.after(rng.uniform(1.0, calm_at), lambda: self._touch(self._jump))

    def _touch(self, event: object) -> None:
        assert callable(event)
        event()
        self.cluster.quiet = False

    def _jump(self) -> None:
        self.world.jump_clock(self.world.rng.uniform(-20.0, 20.0))
        self.router.forget_promises()

    def _visit(self, end: float) -> None:
        """The user comes back to what stands still, as often as the scenario says."""
        world = self.world
        for _ in range(self.scenario.visits):
            if not look(self.database, _STANDING):
                return
            world.after(
                world.rng.uniform(1.0, self.scenario.longest_absence),
                lambda: self._touch(lambda: self.user.command(self.router)),
            )
            world.run(end)

    # ---- what the models ask ----

    def _in_window(self, keys: set[str]) -> int:
        rows = look(self.database, "SELECT idempotency_key, state FROM job")
        return sum(row["idempotency_key"] in keys and row["state"] in _IN_FLIGHT for row in rows)

    def _next_tick(self) -> float:
        """When sweepers look next: every few seconds while there is something to see, else when there will be."""
        world, cluster = self.world, self.cluster
        awake = [worker for worker in cluster.living if worker.stalled_until <= world.now]
        if not awake:
            return _NEVER
        at = max(worker.last_tick for worker in awake) + world.rng.uniform(1.0, LONGEST_GAP)
        if not cluster.quiet:
            return at
        # The slowest clock of all: by then every sweeper sees it.
        slowest = min(worker.offset for worker in awake)
        moments = [moment - slowest for moment in self._moments()]
        return max(at, min((moment for moment in moments if moment > world.now), default=_NEVER))

    def _moments(self) -> list[float]:
        """Every time in the database at which a sweeper could find something."""
        living = {worker.name for worker in self.cluster.living}
        moments = []
        for row in look(self.database, _MOMENTS):
            moments += [row["wake_at"], row["due_at"], row["claim_until"]]
            if row["claim_owner"] and row["claim_owner"] not in living:
                moments.append(self.world.now + 2.0)
        for row in look(self.database, _CREDENTIAL):
            moments += [row["cool_down_until"], row["until"] if row["holder"] not in living else None]
        return [moment for moment in moments if moment is not None]


def simulate(
    database: Database,
    seed: int,
    parts: Parts | None = None,
    where: Mapping[str, object] | None = None,
    *,
    traced: bool = False,
) -> Result:
    """Run one seed on a database that this module may empty. `where` sets parts of the scenario that are else drawn."""
    empty(database)
    simulation = Simulation(database, seed, parts or Parts(), where or {}, traced=traced)
    world = simulation.world
    failure = None
    with observed_by(world.boundary):
        try:
            simulation.run()
        except Violation as violation:
            failure = str(violation)
        except Exception as error:  # noqa: BLE001  # whatever a step raises is a finding
            failure = f"{type(error).__name__}: {error}"
        finally:
            world.close()
    if failure is not None:
        # A transaction may have been left open.
        database.close()
        world.tell("BROKEN", failure)
    return Result(seed, failure, tuple(world.trace or ()), world.now - BEGIN)
