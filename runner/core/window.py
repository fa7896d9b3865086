"""How much may be in flight: less after a refusal for too much, more again with every success."""

from __future__ import annotations

import math

#: What a refusal leaves of the window.
SHRINK_FACTOR = 0.75
#: Refusals that come within this many seconds of the last cut are echoes of the same crowd.
SHRINK_INTERVAL = 2.0


def room(window: float, in_flight: int, downloading: int) -> int:
    """How many more jobs may be sent.

    While more downloads wait than the window has places, nothing is: links die within minutes, and what is paid for
    now could only queue up behind them.
    """
    places = int(window)
    return min(places - in_flight, 2 * places - in_flight - downloading)


def affordable(max_cost: float, quoted: float, dearest: float | None, unanswered: int) -> int | None:
    """How many more jobs of a batch may be sent so that its quotes cannot add up to more than `max_cost`.

    `None` stands for any number.

    `quoted` is what they add up to by now, `dearest` the largest of them (0 where sends are answered without a quote,
    `None` where none was answered yet), `unanswered` how many sends are under way. Amounts are of one currency.
    """
    if dearest is None:
        return 1 - unanswered
    if dearest == 0:
        return None
    # A hair's breadth more, since sums of decimal fractions in binary fall short.
    return math.floor((max_cost - quoted) / dearest + 1e-9) - unanswered


def grown(window: float, largest: int) -> float:
    """One place more for each window's worth of successes, up to `largest`."""
    return min(float(largest), window + 1.0 / max(window, 1.0))


def shrunk(window: float, in_flight: int, shrunk_at: float | None, now: float) -> float:
    """Three quarters of what is in flight now, at least one; unchanged right after another cut."""
    if shrunk_at is not None and 0 <= now - shrunk_at < SHRINK_INTERVAL:
        return window
    return max(1.0, min(window, float(in_flight)) * SHRINK_FACTOR)
