"""The hot path's way to the database: statements prepared once, run on the driver itself.

A job takes some twenty statements. Through SQLAlchemy's layers each costs five times what SQLite needs for it, and that
would be a third of all the processor time of a run; so what every job does goes straight to the driver, in the same
transactions, with the same pool. Everything else stays with SQLAlchemy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

#: A row by column name.
Row = Mapping[str, Any]
Values = Mapping[str, Any]

#: States in which a job takes a place in the window; the same set as `runner.core.types.IN_FLIGHT`.
IN_FLIGHT_SQL = "state IN ('submitting', 'queued', 'running')"

_NAMED = re.compile(r"(?<![:\w]):([a-z_][a-z0-9_]*)")


class Sql:
    """One statement in the spellings of both drivers. Parameters are written `:name`."""

    def __init__(self, statement: str, *, postgresql_suffix: str = "") -> None:
        self.sqlite = statement
        self.postgresql = _NAMED.sub(r"%(\1)s", statement) + postgresql_suffix


class Cursor(Protocol):
    """What both drivers' cursors have."""

    @property
    def rowcount(self) -> int:
        """Rows that the latest statement changed."""
        ...

    def execute(self, statement: str, values: Values, /) -> Any:
        """Run one statement."""
        ...

    def executemany(self, statement: str, values: Sequence[Values], /) -> Any:
        """Run one statement for each of `values`."""
        ...

    def fetchall(self) -> list[Any]:
        """All rows."""
        ...


class Hot:
    """A transaction, or a moment of reading, on the driver's own cursor."""

    def __init__(self, cursor: Cursor, dialect: str) -> None:
        self._cursor = cursor
        self._dialect = dialect

    def rows(self, statement: Sql, values: Values) -> list[Row]:
        """All rows of a statement that returns some."""
        self._cursor.execute(getattr(statement, self._dialect), values)
        return self._cursor.fetchall()

    def row(self, statement: Sql, values: Values) -> Row | None:
        """The first row, if any."""
        found = self.rows(statement, values)
        return found[0] if found else None

    def run(self, statement: Sql, values: Values) -> int:
        """Run a statement; returns how many rows it changed."""
        self._cursor.execute(getattr(statement, self._dialect), values)
        return self._cursor.rowcount

    def run_many(self, statement: Sql, values: Sequence[Values]) -> None:
        """Run a statement for each of `values`."""
        if values:
            self._cursor.executemany(getattr(statement, self._dialect), values)
