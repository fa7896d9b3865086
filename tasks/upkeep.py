"""The sweeper: a thread of every worker, of which one at a time finds what has been lost."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Container, Iterable
from typing import Protocol

from runner.core.errors import StoreError
from runner.store.records import Wake
from runner.store.upkeep import WORKER_TIMEOUT, HeldClaim, UpkeepStore, WorkerInfo

_log = logging.getLogger("comfy_batch.upkeep")

#: Seconds between two looks.
INTERVAL = 1.0
#: How long the sweeper keeps its office without showing itself, in seconds.
LEASE = 5.0


def join(thread: threading.Thread, seconds: float, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Wait for a thread in slices: a signal that comes as a long wait begins would be heard only at its end."""
    for _ in range(int(seconds * 20)):
        meanwhile()
        thread.join(0.05)
        if not thread.is_alive():
            return


class Publishes(Protocol):
    """What sends wake-ups."""

    def publish(self, wakes: Iterable[Wake]) -> int:
        """Send a message for each; returns how many were taken."""
        ...


class Sweeper:
    """Shows the worker as alive and, while it holds the credential's lease, sweeps."""

    def __init__(
        self,
        store: UpkeepStore,
        worker: WorkerInfo,
        publisher: Publishes,
        clock: Callable[[], float],
        only_batch: str | None = None,
        acting: Container[int] | None = None,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._worker = worker
        self._publisher = publisher
        self._clock = clock
        # Who sends one batch only would not find what the others owe.
        self._acting = acting
        self._lease = f"sweep:{worker.credential_id}" + (f":{only_batch}" if only_batch else "")
        self._last_tick: float | None = None
        #: Before then nobody is taken for dead.
        self._patient_until = 0.0
        #: What no waiting will mend, such as a full disk; `on_failure` was called when it was met.
        self.failure: StoreError | None = None
        self._on_failure = on_failure
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sweeper", daemon=True)

    def tick(self) -> int:
        """One look; returns how many messages were sent."""
        now = self._clock()
        self._store.seen(self._worker, now, self._forgotten())
        if self._last_tick is not None and now - self._last_tick > WORKER_TIMEOUT / 2:
            # The database was away, or this machine asleep: the others could not show themselves either.
            self._patient_until = now + WORKER_TIMEOUT
        self._last_tick = now
        if not self._store.take_lease(self._lease, self._worker.id, now, LEASE):
            return 0
        bury = now >= self._patient_until
        return self._publisher.publish(self._store.sweep(self._worker.credential_id, now, bury=bury))

    def _forgotten(self) -> list[HeldClaim]:
        """This worker's claims that none of its threads acts on: a fault of the database made it forget them."""
        if self._acting is None:
            return []
        # The threads are looked at after the claims: what was claimed since is not among these.
        return [claim for claim in self._store.claims_of(self._worker.id) if claim.job_id not in self._acting]

    def start(self) -> None:
        """Look now, so that the worker is known, and then every `INTERVAL` seconds until `stop`."""
        self._look()
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL):
            self._look()

    def _look(self) -> None:
        try:
            self.tick()
        except StoreError as error:
            _log.warning("no look this time: %s", error.message)
            if error.lasting:
                self.failure = error
                self._on_failure()
        except Exception:  # noqa: BLE001  # logged with its trace, and the next look is a second away
            # A sweeper that dies of one bad look would leave every later loss unfound.
            _log.exception("the sweeper stumbled")

    def stop(self) -> None:
        """Stop looking, and give the office and the worker's claims back."""
        self._stop.set()
        if self._thread.is_alive():
            join(self._thread, INTERVAL)
        try:
            self._store.drop_lease(self._lease, self._worker.id)
            self._store.gone(self._worker.id, self._clock())
        except StoreError as error:
            _log.warning("the worker could not take its leave: %s", error.message)
