"""The test's end of the nursery: programs to start, to watch, to stop."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.acceptance.harness import PATIENCE, Ended
from tests.support.programs import end

#: Seconds between two looks at a database: many cases look at a time.
LOOK = 0.15
ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Program:
    """One program that the nursery started."""

    connection: socket.socket
    pid: int
    out: Path
    err: Path
    code: int | None = None
    _received: bytes = field(default=b"", repr=False)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        if self.running:
            self.connection.sendall(bytes([number]))

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._look(0.0) is None

    def wait(self, seconds: float = PATIENCE) -> Ended:
        """Wait for its end; one that takes longer is killed, and fails the test."""
        code = self._look(seconds)
        if code is None:
            self.close()
            raise AssertionError(f"it did not end in {seconds:.0f} s: {_text(self.err)}")
        return Ended(code, _text(self.out), _text(self.err))

    def wait_while(self, going_on: Callable[[], bool], seconds: float = PATIENCE) -> None:
        """Wait for its end, or until a look now and then says that nothing goes on any more."""
        deadline = time.monotonic() + seconds
        while going_on() and self._look(LOOK) is None:
            assert time.monotonic() < deadline, f"it still goes on after {seconds:.0f} s: {_text(self.err)}"

    def _look(self, seconds: float) -> int | None:
        deadline = time.monotonic() + seconds
        while self.code is None:
            self.connection.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                piece = self.connection.recv(64)
            except TimeoutError:
                return None
            assert piece, "the nursery is gone"
            self._received += piece
            if self._received.endswith(b"\n"):
                self.code = int(self._received)
                self.connection.close()
        return self.code

    def close(self) -> None:
        """Kill it, if it has not ended."""
        self.connection.close()


class Nursery:
    """The warm process, while the block lasts."""

    def __enter__(self) -> Self:
        # The path of a socket must be short.
        self._folder = Path(tempfile.mkdtemp(prefix="cb-nursery-"))
        self._socket = self._folder / "socket"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.nursery", str(self._socket)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n", "the nursery does not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        end(self._process)
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self, order: dict[str, Any]) -> Program:
        """Start a program; `tests.crash.nursery` says what an order holds."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(str(self._socket))
        connection.sendall(json.dumps(order).encode() + b"\n")
        received = b""
        while not received.endswith(b"\n"):
            received += connection.recv(1)
        return Program(connection, int(received), Path(order["out"]), Path(order["err"]))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
