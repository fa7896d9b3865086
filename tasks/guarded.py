"""Runs a program for as long as somebody holds this process's standard input open.

Whoever starts a server beside a batch may be killed at any moment; the pipe then closes, and the server ends with it.
Started as `python -m tasks.guarded [--again] [--remove FOLDER] PROGRAM ARGUMENT …`; with `--again` a program that ends
is started anew, and FOLDER is removed when it has ended for good.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence

#: Seconds that a program has to end by itself.
GRACE = 5.0
#: Seconds before a program that ended is started anew.
BREATH = 0.5


class Guarded:
    """The program, one process at a time."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        # The command comes from whoever started this process, as from a shell.
        return subprocess.Popen(self._command, stdin=subprocess.DEVNULL)  # noqa: S603  # see above

    def run(self, *, again: bool) -> int:
        """Wait for the program's end; returns its exit status."""
        while True:
            status = self._process.wait()
            if not again or self._over.wait(BREATH):
                return status
            with self._lock:
                if not self._over.is_set():
                    self._process = self._start()

    def end(self) -> None:
        """End the program for good."""
        with self._lock:
            self._over.set()
            process = self._process
        process.terminate()
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()


def main(arguments: Sequence[str]) -> int:
    """Run the program until it ends, or standard input does; returns its exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--remove")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args(arguments)
    guarded = Guarded(given.command)

    def end_with_whoever_started_it() -> None:
        # Not through `sys.stdin`, whose lock would be held when the process ends.
        while os.read(0, 1024):
            pass
        guarded.end()

    threading.Thread(target=end_with_whoever_started_it, daemon=True).start()
    try:
        return guarded.run(again=given.again)
    finally:
        if given.remove:
            shutil.rmtree(given.remove, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
