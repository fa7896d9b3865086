"""Opening the database: SQLite in WAL mode with serialised writers, or PostgreSQL."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from runner.core.boundaries import reach
from runner.core.errors import SettingsError, StoreError
from runner.store.hot import Hot

#: How long a writer waits for another process to finish its transaction, in seconds.
BUSY_TIMEOUT = 30.0


class Database:
    """An engine, and the only ways to a connection: `read()` and `write()`.

    SQLite has one writer at a time and an unfair queue for it, so threads of this process line up on a lock of our
    own; every writing transaction starts with `BEGIN IMMEDIATE`, since an upgrade from reading cannot wait.
    """

    def __init__(self, url: str) -> None:
        self.url = _parse(url)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self.engine = _sqlite_engine(self.url) if self.is_sqlite else _postgres_engine(self.url)
        self._writer = threading.Lock()
        #: One that commits as usual, and one whose commits survive a power cut.
        self._hot_writers: dict[bool, sqlite3.Connection] = {}
        self._hot_readers = threading.local()
        self._raw: list[sqlite3.Connection] = []
        self._raw_lock = threading.Lock()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection for reading."""
        with _translated(self.url), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def write(self, name: str, *, durable: bool = False) -> Iterator[Connection]:
        """A transaction that commits at the end of the block, and rolls back if it raises.

        `name` says what is written, for those who listen at its boundaries. `durable` waits until a power cut cannot
        undo it: for what makes an idempotency key, and for what says that one goes out. Other commits may be lost
        with the power, never torn, and every one of them can be repeated without another charge.
        """
        if not self.is_sqlite:
            with _translated(self.url), self.engine.begin() as connection:
                yield connection
                reach("before commit", name)
            reach("after commit", name)
            return
        with self._writer, _translated(self.url), self.engine.connect() as connection:
            if durable:
                connection.exec_driver_sql("PRAGMA synchronous=FULL")
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            try:
                yield connection
                reach("before commit", name)
                connection.exec_driver_sql("COMMIT")
            except BaseException:
                connection.connection.rollback()
                raise
            finally:
                if durable:
                    connection.exec_driver_sql("PRAGMA synchronous=NORMAL")
        reach("after commit", name)

    @contextmanager
    def hot_write(self, name: str, *, durable: bool = False) -> Iterator[Hot]:
        """Like `write`, for the statements that every job runs."""
        if not self.is_sqlite:
            with self._hot_postgres() as hot:
                yield hot
                reach("before commit", name)
            reach("after commit", name)
            return
        with self._writer, _translated(self.url):
            if durable not in self._hot_writers:
                self._hot_writers[durable] = self._raw_sqlite(durable=durable)
            connection = self._hot_writers[durable]
            cursor = connection.cursor()
            cursor.execute("BEGIN IMMEDIATE")
            try:
                yield Hot(cursor, "sqlite")
                reach("before commit", name)
                cursor.execute("COMMIT")
            except BaseException:
                # Also where the commit itself fails: the connection is kept, and must not stay in a transaction. Some
                # faults have rolled back already.
                connection.rollback()
                raise
            finally:
                cursor.close()
        reach("after commit", name)

    @contextmanager
    def hot_read(self) -> Iterator[Hot]:
        """Like `read`, for the questions that every job asks."""
        if not self.is_sqlite:
            with self._hot_postgres() as hot:
                yield hot
            return
        with _translated(self.url):
            reader = getattr(self._hot_readers, "connection", None)
            if reader is None:
                reader = self._hot_readers.connection = self._raw_sqlite()
            cursor = reader.cursor()
            try:
                yield Hot(cursor, "sqlite")
            finally:
                cursor.close()

    def _raw_sqlite(self, *, durable: bool = False) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.url.database or ":memory:", timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False
        )
        connection.row_factory = sqlite3.Row
        _set_pragmas(connection)
        if durable:
            connection.execute("PRAGMA synchronous=FULL")
        with self._raw_lock:
            self._raw.append(connection)
        return connection

    @contextmanager
    def _hot_postgres(self) -> Iterator[Hot]:
        from psycopg.rows import dict_row

        with _translated(self.url):
            connection = self.engine.raw_connection()
            try:
                with connection.driver_connection.cursor(row_factory=dict_row) as cursor:  # type: ignore[union-attr]
                    yield Hot(cursor, "postgresql")
                connection.commit()
            finally:
                # What was not committed is rolled back by the pool.
                connection.close()

    def close(self) -> None:
        """Give back every connection."""
        with self._raw_lock:
            for connection in self._raw:
                connection.close()
            self._raw.clear()
        self._hot_writers = {}
        self._hot_readers = threading.local()
        self.engine.dispose()

    def forget_connections(self) -> None:
        """In a forked child: the parent's connections are not ours to use or to close."""
        self.engine.dispose(close=False)


def _parse(url: str) -> URL:
    advice = "use sqlite:///path/to/file.db or postgresql://user:password@host/name"
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise SettingsError("COMFY_BATCH_DATABASE_URL is not a database URL", advice=advice) from error
    if parsed.drivername in {"postgres", "postgresql", "postgresql+psycopg"}:
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername not in {"sqlite", "sqlite+pysqlite"}:
        raise SettingsError(
            f"COMFY_BATCH_DATABASE_URL names {parsed.drivername}, which is not supported", advice=advice
        )
    if not parsed.database or parsed.database == ":memory:":
        raise SettingsError("COMFY_BATCH_DATABASE_URL names no file, and the record must last", advice=advice)
    return parsed


def _sqlite_engine(url: URL) -> Engine:
    if url.database and url.database != ":memory:":
        _make_folder(Path(url.database).expanduser().parent)
    # "autocommit" to the driver: the transactions of `write` are the only ones, and they are spelt out.
    engine = create_engine(
        url,
        connect_args={"timeout": BUSY_TIMEOUT, "check_same_thread": False, "isolation_level": None},
        isolation_level="AUTOCOMMIT",
        pool_size=8,
        max_overflow=64,
    )

    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: object) -> None:
        _set_pragmas(connection)

    return engine


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(
            f"the folder {folder} of the database cannot be made: {error.strerror}",
            advice="name another with COMFY_BATCH_HOME or COMFY_BATCH_DATABASE_URL",
        ) from error


def _set_pragmas(connection: Any) -> None:
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON", "cache_size=-16000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _postgres_engine(url: URL) -> Engine:
    return create_engine(url, pool_size=8, max_overflow=64, pool_pre_ping=True, connect_args={"connect_timeout": 10})


#: Errors of the drivers that speak of the database's state and not of the statement.
_FAULTS = frozenset(
    {
        "OperationalError",
        "InterfaceError",
        "DatabaseError",
        "AdminShutdown",
        "CannotConnectNow",
        "ConnectionTimeout",
        "DeadlockDetected",
        "DiskFull",
        "IdleInTransactionSessionTimeout",
        "LockNotAvailable",
        "SerializationFailure",
        "TooManyConnections",
    }
)


#: Faults that waiting does not mend: codes of SQLite and of PostgreSQL, and what does.
_LASTING: Mapping[object, str] = {
    sqlite3.SQLITE_FULL: "free some space on the disk of the database, then resume the batch",
    sqlite3.SQLITE_IOERR_WRITE: "look after the disk of the database: it refuses writes; then resume the batch",
    sqlite3.SQLITE_READONLY: "make the database and its folder writable for this user, then resume the batch",
    sqlite3.SQLITE_CORRUPT: "restore the database from a copy; `sqlite3 FILE .recover` may save what is left",
    sqlite3.SQLITE_NOTADB: "name another file with COMFY_BATCH_DATABASE_URL or COMFY_BATCH_HOME",
    "53100": "free some space on the disk of the database server, then resume the batch",
}


def _cure_of_what_lasts(fault: BaseException) -> str | None:
    code = getattr(fault, "sqlite_errorcode", None)
    if code is None:
        return _LASTING.get(getattr(fault, "sqlstate", None))
    # The lower byte is the kind, the rest says where it was met (https://sqlite.org/rescode.html).
    return _LASTING.get(code) or _LASTING.get(code & 0xFF)


@contextmanager
def _translated(url: URL) -> Iterator[None]:
    """Faults of the database itself become an error that a user can act on; faults of statements stay as they are."""
    try:
        yield
    except Exception as error:
        fault = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
        of_driver = type(fault).__module__.partition(".")[0] in {"sqlite3", "psycopg"}
        if not of_driver or type(fault).__name__ not in _FAULTS:
            raise
        where = url.render_as_string(hide_password=True)
        said = str(fault).strip().partition("\n")[0] or type(fault).__name__
        advice = _cure_of_what_lasts(fault)
        raise StoreError(
            f"the database {where} does not work: {said}",
            advice=advice or "comfy-batch doctor",
            lasting=advice is not None,
        ) from error


def ping(database: Database) -> None:
    """Raises `StoreError` when the database cannot be reached."""
    with database.read() as connection:
        connection.execute(text("SELECT 1"))
