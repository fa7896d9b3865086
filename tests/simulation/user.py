"""The user: writes batches, comes back to what stands still, and sometimes pays for another run."""

from __future__ import annotations

from collections import Counter

from runner.core.types import JobState, OutcomeKind
from runner.store.batches import BatchStore, NewBatch, NewJob
from runner.store.engine import Database
from tests.simulation.database import look
from tests.simulation.router import RouterModel
from tests.simulation.runs import BASE_URL, MODEL
from tests.simulation.workers import Parts
from tests.simulation.world import World

_RETRIED = (JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED)


class User:
    """Gives commands as the command line would."""

    def __init__(self, world: World, parts: Parts, database: Database) -> None:
        self._world = world
        self._policy = parts.policy
        self._database = database
        self._batches = BatchStore(database)
        self.credential = 0
        self.ids: list[str] = []
        #: New runs that were asked for, by job.
        self.retries: Counter[int] = Counter()

    def submit(self) -> None:
        """Write the scenario's batches."""
        world, window = self._world, self._world.scenario.window
        self.credential = self._batches.credential("fingerprint", BASE_URL, window)
        self._batches.remember_model(MODEL, "yes", None, None, world.now)
        for number, count in enumerate(world.scenario.batches):
            batch = NewBatch(
                id=f"{number:032x}",
                name=f"batch-{number}",
                fingerprint=f"manifest {number}",
                credential_id=self.credential,
                simulated=False,
                manifest="rows.csv",
                asset_store="files",
                output_dir="out",
            )
            self._batches.create(batch, world.now)
            rows = (
                NewJob(row, f"row-{row}", MODEL, b'{"prompt":"%d/%d"}' % (number, row), "{}")
                for row in range(1, count + 1)
            )
            list(self._batches.write_rows(batch, rows, world.now))
            self._batches.complete(batch.id, count, "[]", world.now)
            self.ids.append(batch.id)

    def command(self, router: RouterModel) -> None:
        """Put something back to work: a retry of what failed, or a resume."""
        world = self._world
        now = world.now + world.offset
        router.forget_promises()
        batch = world.rng.choice(self.ids)
        if world.scenario.retries and world.rng.random() < 0.5:
            states = (*_RETRIED, JobState.HELD) if world.rng.random() < 0.3 else _RETRIED
            world.tell("user", f"retries {batch[-1]}: {', '.join(states)}")
            wanted = ", ".join(f"'{state.value}'" for state in states)
            question = f"SELECT id FROM job WHERE batch_id = :id AND state IN ({wanted})"
            chosen = [row["id"] for row in look(self._database, question, {"id": batch})]
            self.retries.update(chosen)
            if chosen:
                self._batches.move(batch, OutcomeKind.RETRY, states, now, self._policy)
                self._batches.unblock(self.credential)
        else:
            world.tell("user", f"resumes {batch[-1]}")
            self._batches.unblock(self.credential)
            self._batches.resume(batch, now, self._policy)

    def resume_all(self, router: RouterModel) -> None:
        """Put every batch back to work."""
        world = self._world
        router.forget_promises()
        world.tell("user", "resumes everything")
        self._batches.unblock(self.credential)
        for batch in self.ids:
            self._batches.resume(batch, world.now + world.offset, self._policy)
