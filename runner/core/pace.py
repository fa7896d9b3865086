"""The allowed calls a second, given out one after the other: the generic cell rate algorithm without a burst."""

from __future__ import annotations


def next_place(given_until: float | None, now: float, per_second: float) -> tuple[float, float]:
    """When the next call may go out, and up to when places are then given away; Unix seconds.

    `given_until` is what the last place left; `None` before the first. Places that nobody took are not saved up.
    """
    place = max(given_until or 0.0, now)
    return place, place + 1.0 / per_second
