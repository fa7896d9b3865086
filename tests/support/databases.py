"""A database for each test: SQLite in a file, and PostgreSQL on a server that is given, or started for the session."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy.engine import URL, make_url

from runner.store.engine import Database
from runner.store.migrate import migrate
from tests.support.programs import end, not_tested, wait_until

#: Names the server to use; its user must be allowed to create databases.
VARIABLE = "COMFY_BATCH_TEST_POSTGRES_URL"
BOTH = ["sqlite", pytest.param("postgresql", marks=pytest.mark.service)]


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[URL]:
    """The address of a PostgreSQL server, or no test."""
    given = os.environ.get(VARIABLE)
    if given:
        yield make_url(given).set(drivername="postgresql+psycopg")
        return
    programs = postgres_programs()
    if programs is None:
        not_tested("PostgreSQL", f"{VARIABLE} is not set and no initdb and postgres were found")
    try:
        server = PrivatePostgres(programs)
    except (OSError, subprocess.SubprocessError) as error:
        not_tested("PostgreSQL", f"a private server does not start: {error}")
    try:
        yield server.url
    finally:
        server.stop()


@pytest.fixture
def own_postgres() -> Iterator[PrivatePostgres]:
    """A server of the test's own, which it may kill, with this version's tables in its only database; or no test."""
    programs = postgres_programs()
    if programs is None:
        not_tested("PostgreSQL", "no initdb and postgres were found")
    server = PrivatePostgres(programs)
    try:
        database = Database(server.url.render_as_string(hide_password=False))
        migrate(database)
        database.close()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with this version's tables and nothing in them."""
    path = tmp_path_factory.mktemp("template") / "empty.db"
    database = Database(f"sqlite:///{path}")
    migrate(database)
    database.close()
    return path


@pytest.fixture(scope="session")
def postgres_template(postgres_server: URL) -> Iterator[str]:
    """The name of a database with this version's tables and nothing in them."""
    with new_postgres_database(postgres_server) as url:
        database = Database(url)
        migrate(database)
        database.close()
        yield str(make_url(url).database)


@pytest.fixture
def sqlite_database(tmp_path: Path, sqlite_template: Path) -> Iterator[Database]:
    """A fresh SQLite database with all tables."""
    path = tmp_path / "jobs.db"
    shutil.copyfile(sqlite_template, path)
    database = Database(f"sqlite:///{path}")
    yield database
    database.close()


@pytest.fixture
def postgres_database(postgres_server: URL, postgres_template: str) -> Iterator[Database]:
    """A fresh PostgreSQL database with all tables."""
    with new_postgres_database(postgres_server, postgres_template) as url:
        database = Database(url)
        yield database
        database.close()


@pytest.fixture(params=BOTH)
def database(request: pytest.FixtureRequest) -> Database:
    """A fresh database with all tables: the test runs on SQLite and on PostgreSQL."""
    found = request.getfixturevalue(f"{'sqlite' if request.param == 'sqlite' else 'postgres'}_database")
    assert isinstance(found, Database)
    return found


@pytest.fixture(params=BOTH)
def empty_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database without tables: the test runs on SQLite and on PostgreSQL."""
    if request.param == "sqlite":
        database = Database(f"sqlite:///{tmp_path / 'empty.db'}")
        yield database
        database.close()
        return
    with new_postgres_database(request.getfixturevalue("postgres_server")) as url:
        database = Database(url)
        yield database
        database.close()


@contextmanager
def new_postgres_database(server: URL, template: str = "template1") -> Iterator[str]:
    """The address of a database on the server that lasts as long as the block."""
    name = f"comfy_batch_test_{secrets.token_hex(8)}"
    _command(server, f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
    try:
        yield server.set(database=name).render_as_string(hide_password=False)
    finally:
        _command(server, f'DROP DATABASE "{name}" WITH (FORCE)')


def _command(server: URL, statement: str) -> None:
    address = server.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(statement.encode())


# ---- a private server ----


def postgres_programs() -> Path | None:
    """The folder with `initdb` and `postgres`, the newest where there are several."""
    told = shutil.which("pg_config")
    folders = []
    if told:
        asked = subprocess.run([told, "--bindir"], capture_output=True, text=True, check=False)
        folders.append(Path(asked.stdout.strip()))
    packaged = Path("/usr/lib/postgresql").glob("*/bin")
    folders.extend(sorted(packaged, key=lambda folder: _version(folder.parent.name), reverse=True))
    for folder in folders:
        if (folder / "initdb").is_file() and (folder / "postgres").is_file():
            return folder
    return None


def _version(name: str) -> int:
    return int(name) if name.isdigit() else 0


class PrivatePostgres:
    """A server with one client in mind: on a socket in a temporary folder, and careless of power cuts."""

    def __init__(self, programs: Path) -> None:
        # The system's own folder for temporary files: the path of a socket must be short, and its user must get there.
        self._folder = Path(tempfile.mkdtemp(prefix="cb-pg-"))
        self._programs = programs
        try:
            self._how = self._make()
            self._process = self._start()
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self.url = URL.create("postgresql+psycopg", "postgres", database="postgres", query={"host": str(self._folder)})

    def _make(self) -> dict[str, Any]:
        how: dict[str, Any] = {"cwd": self._folder, "env": {"PATH": os.defpath, "LC_ALL": "C"}}
        if os.geteuid() == 0:
            # The server refuses to run as root.
            user = _somebody()
            os.chown(self._folder, user.pw_uid, user.pw_gid)
            how |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        subprocess.run(
            [self._programs / "initdb", "-D", self._folder / "data", *options],
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=120,
            **how,
        )
        return how

    def _start(self) -> subprocess.Popen[bytes]:
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self._folder),
            "fsync": "off",
            "synchronous_commit": "off",
            "full_page_writes": "off",
            "max_connections": "200",
        }
        arguments = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        process = subprocess.Popen(
            [self._programs / "postgres", "-D", self._folder / "data", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **self._how,
        )
        wait_until(self._answers, process)
        return process

    def _answers(self) -> bool:
        try:
            with psycopg.connect(host=str(self._folder), user="postgres", dbname="postgres"):
                return True
        except psycopg.OperationalError:
            return False

    def kill(self) -> None:
        """End it as a crash would, with everything that is connected."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(10)

    def start_again(self) -> None:
        """Start it on what it has written."""
        self._process = self._start()

    def stop(self) -> None:
        """Stop the server and remove all that it wrote."""
        # "Fast" in the server's own words: clients are not waited for.
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            end(self._process)
        shutil.rmtree(self._folder, ignore_errors=True)


def _somebody() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise OSError("root may not run it, and there is neither a user postgres nor nobody")
