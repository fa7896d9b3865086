"""What a command works with: settings, the database and the questions that can be put to it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.markup import escape

from config.settings import Settings, load_settings, misspelt_settings
from runner.cli.output import err
from runner.core.errors import CredentialChanged, UsageError
from runner.store.batches import BatchRecord, BatchStore
from runner.store.editing import EditStore
from runner.store.engine import Database
from runner.store.jobs import JobStore
from runner.store.migrate import migrate
from runner.store.queries import Queries
from runner.store.upkeep import UpkeepStore

#: Stands for a key where the bundled simulator stands for the Router.
SIMULATED = "simulator"


@dataclass(frozen=True)
class Context:
    """One command's view of everything."""

    settings: Settings
    database: Database
    batches: BatchStore
    edits: EditStore
    queries: Queries
    jobs: JobStore
    upkeep: UpkeepStore

    def credential(self, *, simulated: bool, keeps_window: bool = False) -> int:
        """The credential in force, as the database knows it. Raises `UsageError` when there is no API key.

        With `keeps_window` what another command said of the window stands, unless this one was told otherwise.
        """
        settings = self.settings
        if simulated:
            return self.batches.credential(SIMULATED, SIMULATED, settings.max_in_flight)
        if settings.api_key is None:
            raise UsageError(
                "COMFY_API_KEY is not set, and every generation is paid for by its account",
                advice="export COMFY_API_KEY=…, or try the bundled simulator with --simulate",
            )
        return self.batches.credential(
            settings.credential_fingerprint,
            settings.router_base_url,
            settings.max_in_flight,
            keeps_window=keeps_window and "max_in_flight" not in settings.model_fields_set,
        )

    def check_credential(self, batch: BatchRecord) -> None:
        """Raises `CredentialChanged` when the batch was begun under another key or at another Router: its keys mean
        nothing there, so that going on could pay a second time."""
        current = SIMULATED if batch.simulated else self.settings.credential_fingerprint
        if current == batch.credential_fingerprint:
            return
        if batch.router != self.settings.router_base_url:
            raise CredentialChanged(
                f"the batch `{batch.name}` was begun at {batch.router}, but the Router is now "
                f"{self.settings.router_base_url}",
                advice=f"COMFY_ROUTER_BASE_URL={batch.router} comfy-batch resume {batch.name}",
            )
        raise CredentialChanged(
            f"the batch `{batch.name}` was begun under another API key; under this one its rows could be paid twice",
            advice=f"set COMFY_API_KEY to the key it was begun with, then comfy-batch resume {batch.name}",
        )


def set_up_logging(level: str) -> None:
    """Plain lines on stderr."""
    # A connection that breaks is met, and told of, where it was used.
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
    logging.basicConfig(level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True)


@contextmanager
def open_context(**overrides: object) -> Iterator[Context]:
    """Settings in force and the database, brought up to date."""
    settings = load_settings(**overrides)
    set_up_logging(settings.log_level)
    for name, meant in misspelt_settings(os.environ).items():
        hint = f"; {meant} is one" if meant else ""
        err.print(f"[bold yellow]Note:[/] {escape(name)} is no setting{hint}. config/example.env lists them all.")
    database = Database(settings.effective_database_url)
    try:
        migrate(database)
        jobs = JobStore(database)
        yield Context(
            settings,
            database,
            BatchStore(database),
            EditStore(database),
            Queries(database),
            jobs,
            UpkeepStore(database, jobs),
        )
    finally:
        database.close()
