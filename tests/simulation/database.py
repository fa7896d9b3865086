"""One database for all seeds of a process: emptied between them, with a record of every change of state."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from runner.store.engine import Database
from runner.store.hot import Row, Sql
from runner.store.migrate import migrate

#: In an order that foreign keys allow.
_TABLES = (
    *("asset_content", "asset", "result", "event", "payload", "job", "batch"),
    *("model", "worker", "lease", "credential", "change"),
)
#: What the jobs' states were, one after the other, whoever changed them.
_RECORD = (
    "CREATE TABLE change (id INTEGER PRIMARY KEY, job_id INTEGER, run INTEGER, before TEXT, after TEXT)",
    """CREATE TRIGGER changed AFTER UPDATE OF state ON job WHEN OLD.state <> NEW.state BEGIN
       INSERT INTO change (job_id, run, before, after) VALUES (NEW.id, NEW.run, OLD.state, NEW.state); END""",
)


def _folder() -> str | None:
    # In memory where the system offers that: durable commits are not what is tested.
    shared = Path("/dev/shm")
    return str(shared) if shared.is_dir() else None


@contextmanager
def open_database() -> Iterator[Database]:
    """A database with all tables."""
    with tempfile.TemporaryDirectory(prefix="comfy-simulation-", dir=_folder(), ignore_cleanup_errors=True) as folder:
        database = Database(f"sqlite:///{folder}/jobs.db")
        try:
            migrate(database)
            with database.write("record") as connection:
                for statement in _RECORD:
                    connection.exec_driver_sql(statement)
            yield database
        finally:
            database.close()


def empty(database: Database) -> None:
    """Remove every row."""
    with database.hot_write("empty") as hot:
        for table in _TABLES:
            hot.run(_sql(f"DELETE FROM {table}"), {})


_sql = cache(Sql)


def look(database: Database, statement: str, values: Mapping[str, Any] | None = None) -> list[Row]:
    """Rows as they stand."""
    with database.hot_read() as hot:
        return hot.rows(_sql(statement), values or {})
