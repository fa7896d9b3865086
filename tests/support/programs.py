"""Programs that tests start, and what to do where they are missing."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from typing import NoReturn

import pytest

#: How long a server may take to start or to stop, in seconds.
PATIENCE = 20.0


def not_tested(what: str, why: str) -> NoReturn:
    """Skip the test, saying what was not tested; where everything must be there (`CI` is set), fail it."""
    message = f"{what} was not tested: {why}"
    if os.environ.get("CI"):
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


def wait_until(ready: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    """Wait for a server's first answer. Raises `OSError` when it ends before, or takes too long."""
    deadline = time.monotonic() + PATIENCE
    while not ready():
        if process.poll() is not None:
            raise OSError(f"it ended at once with status {process.returncode}")
        if time.monotonic() > deadline:
            end(process)
            raise OSError(f"it did not answer within {PATIENCE:.0f} s")
        time.sleep(0.02)


def end(process: subprocess.Popen[bytes]) -> None:
    """Stop the very process that was started."""
    process.terminate()
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(PATIENCE)
