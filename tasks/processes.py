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


def is_busy() -> bool:
    """Whether threads of this process still make calls, which Python would wait for at its end."""
    here = threading.current_thread()
    return any(thread is not here and not thread.daemon for thread in threading.enumerate())


def leave(status: int) -> NoReturn:
    """End this process now, whatever its threads do. All that matters is in the database by then."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
