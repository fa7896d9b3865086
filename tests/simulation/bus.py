"""The message bus: it takes what the real code publishes, and loses, doubles, delays and reorders it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from runner.store.records import Wake
from tasks.app import Publisher
from tests.simulation.world import World


class Bus(Publisher):
    """Stands where a publisher to a broker stands; `deliver` is handed each message at its time."""

    def __init__(self, world: World, deliver: Callable[[Wake], None]) -> None:
        self._world = world
        self._deliver = deliver
        #: How many messages it was given, taken or not.
        self.given = 0
        #: Counts how often everything was forgotten.
        self._life = 0

    def forget(self) -> None:
        """Lose every message that is on its way."""
        self._life += 1

    def publish(self, wakes: Iterable[Wake]) -> int:
        """See `Publisher.publish`."""
        pending = list(wakes)
        self.given += len(pending)
        for sent, wake in enumerate(pending):
            self._world.boundary("before publish", wake.step)
            if self._world.strikes("broker away"):
                return sent
            self._take(wake)
            self._world.boundary("after publish", wake.step)
        return len(pending)

    def _take(self, wake: Wake) -> None:
        world = self._world
        world.tell("sends", f"{wake.step} {wake.job_id} in {wake.delay:.6f} s")
        if world.strikes("message lost"):
            return
        for _ in range(2 if world.strikes("message doubled") else 1):
            late = world.rng.uniform(1.0, 30.0) if world.strikes("message late") else world.rng.uniform(0.0, 0.05)
            world.after(wake.delay + late, self._arrival(wake, self._life))

    def _arrival(self, wake: Wake, life: int) -> Callable[[], None]:
        def arrive() -> None:
            if life == self._life:
                self._deliver(wake)

        return arrive
