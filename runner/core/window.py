"""How much may be in flight: less after a refusal for too much, more again with every success."""

from __future__ import annotations

#: What a refusal leaves of the window.
SHRINK_FACTOR = 0.75
#: Refusals that come within this many seconds of the last cut are echoes of the same crowd.
SHRINK_INTERVAL = 2.0


def grown(window: float, largest: int) -> float:
    """One place more for each window's worth of successes, up to `largest`."""
    return min(float(largest), window + 1.0 / max(window, 1.0))


def shrunk(window: float, in_flight: int, shrunk_at: float | None, now: float) -> float:
    """Three quarters of what is in flight now, at least one; unchanged right after another cut."""
    if shrunk_at is not None and 0 <= now - shrunk_at < SHRINK_INTERVAL:
        return window
    return max(1.0, min(window, float(in_flight)) * SHRINK_FACTOR)
