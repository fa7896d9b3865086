"""The boundaries of a job's way: moments before and after everything that outlives the process.

A process can die at any moment, and it makes a difference only between two of these: before or after a commit, a send,
an answer, a publish, a write, a rename. The code announces each as it passes; usually nobody listens. The tests listen:
they kill at each in turn, and let a scheduler go on elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Told the boundary's name, and what of several things it was this time (a step, a transaction).
Observer = Callable[[str, str], None]


class _Watch:
    def __init__(self) -> None:
        self.observer: Observer | None = None


_watch = _Watch()


def reach(boundary: str, detail: str = "") -> None:
    """Announce a boundary. Each call site names its own with a literal."""
    if _watch.observer is not None:
        _watch.observer(boundary, detail)


@contextmanager
def observed_by(observer: Observer) -> Iterator[None]:
    """Let `observer` hear of every boundary, from whatever thread, inside the block; it may raise or never return."""
    before, _watch.observer = _watch.observer, observer
    try:
        yield
    finally:
        _watch.observer = before
