"""Processes: whether another one lives, and how this one ends in time."""

from __future__ import annotations

import os
import sys
import threading
from typing import NoReturn


def is_running(pid: int) -> bool:
    """Whether a process of this machine lives."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


_left_behind = threading.Event()


def leave_behind() -> None:
    """Threads of this process still make calls, and nobody waits for them any more."""
    _left_behind.set()


def is_busy() -> bool:
    """Whether there are such threads: Python would wait for them at its end, daemons or not."""
    return _left_behind.is_set()


def leave(status: int) -> NoReturn:
    """End this process now, whatever its threads do. All that matters is in the database by then."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
