"""Who listens at the boundaries of a program under test: one that writes them down, and one that kills it there."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from runner.core.boundaries import observed_by


class Recorder:
    """Writes every boundary into a file as it is crossed, so that even a killed program leaves a whole list."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def __call__(self, boundary: str, detail: str) -> None:
        # One small write to a file opened for appending is whole, whatever other threads write.
        os.write(self._file, f"{boundary}\t{detail}\n".encode())


class Killer:
    """Kills its process at the `crossing`-th time that it crosses one boundary."""

    def __init__(self, boundary: str, detail: str, crossing: int) -> None:
        self._point = (boundary, detail)
        self._left = crossing
        self._lock = threading.Lock()

    def __call__(self, boundary: str, detail: str) -> None:
        if (boundary, detail) != self._point:
            return
        with self._lock:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def watching(order: dict[str, Any]) -> AbstractContextManager[None]:
    """What an order says: `record` names a file, `kill` a boundary, its detail and the crossing."""
    if "record" in order:
        return observed_by(Recorder(order["record"]))
    if "kill" in order:
        return observed_by(Killer(*order["kill"]))
    return nullcontext()


def read_trace(path: Path) -> list[tuple[str, str]]:
    """What a recorder wrote: boundaries and details in the order in which they were crossed."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [(boundary, detail) for boundary, _, detail in (line.partition("\t") for line in lines)]
