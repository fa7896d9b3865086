"""The time of a process: set once by the wall clock, then by a clock that nobody sets."""

from __future__ import annotations

import time
from collections.abc import Callable


def elapsed() -> float:
    """Seconds since some moment, by a clock that never jumps and, where there is one, also counts while the machine
    sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class SteadyClock:
    """Unix seconds that go on evenly, whatever becomes of the wall clock.

    A wall clock that is put back would leave every poll waiting, and every claim held, for as long as it jumped; one
    that is put forward would make keys look old and waits look over. Where no clock counts the machine's sleep
    (`counts_sleep` is false), a wall clock that is ahead is followed all the same: a key must never look too young.
    """

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = elapsed,
        *,
        counts_sleep: bool = hasattr(time, "CLOCK_BOOTTIME"),
    ) -> None:
        self._wall = wall
        self._steady = steady
        self._counts_sleep = counts_sleep
        self._offset = wall() - steady()

    def __call__(self) -> float:
        now = self._steady() + self._offset
        if self._counts_sleep or (ahead := self._wall() - now) <= 0:
            return now
        self._offset += ahead
        return now + ahead
