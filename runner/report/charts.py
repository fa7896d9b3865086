"""Bars for the report: jobs over time, and how long they took. Numbers in, drawings' coordinates out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from runner.report.wording import duration
from runner.store.queries import Timing

#: Bars of a chart at most.
MOST_BARS = 48
#: What a bar is made of, from the ground up.
KINDS = ("succeeded", "failed", "other")
#: Widths of a bar in time that people can name, in seconds.
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
_WIDTH, _HEIGHT, _GAP = 360.0, 90.0, 0.5


@dataclass(frozen=True, slots=True)
class Part:
    """One rectangle, in the drawing's own units."""

    kind: str
    x: float
    y: float
    width: float
    height: float
    title: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing of bars, `width` by `height`, with labels at places along its ground."""

    parts: Sequence[Part]
    labels: Sequence[tuple[float, str]]
    #: Jobs of the highest bar.
    most: int
    width: float = _WIDTH
    height: float = _HEIGHT


@dataclass(frozen=True, slots=True)
class Bar:
    """How many jobs of each of `KINDS` stand in one bar, and what it is called."""

    label: str
    counts: tuple[int, int, int]


def over_time(timings: Iterable[Timing]) -> Chart | None:
    """Jobs by the time since the first submit at which they ended; `None` while none has."""
    ended = [(timing.finished_at, timing.kind) for timing in timings if timing.finished_at is not None]
    if not ended:
        return None
    first = min(at for at, _ in ended)
    span = max(at for at, _ in ended) - first
    step = (
        next((step for step in _STEPS if span / step < MOST_BARS), None) or math.ceil(span / MOST_BARS / 86400) * 86400
    )
    counts = [[0, 0, 0] for _ in range(int(span / step) + 1)]
    for at, kind in ended:
        counts[int((at - first) / step)][KINDS.index(kind)] += 1
    return _draw([Bar(duration(number * step, tenths=True), (c[0], c[1], c[2])) for number, c in enumerate(counts)])


def durations(timings: Iterable[Timing]) -> Chart | None:
    """Jobs by how long they took from acceptance to their end, each bar a quarter longer than the one before."""
    taken = [
        (timing.finished_at - timing.submitted_at, timing.kind)
        for timing in timings
        if timing.finished_at is not None and timing.submitted_at is not None
    ]
    if not taken:
        return None
    places = [(_place(seconds), kind) for seconds, kind in taken]
    lowest, highest = min(place for place, _ in places), max(place for place, _ in places)
    counts = [[0, 0, 0] for _ in range(highest - lowest + 1)]
    for place, kind in places:
        counts[place - lowest][KINDS.index(kind)] += 1
    return _draw(
        [
            Bar(duration(_GROWTH ** (number + lowest), tenths=True), (c[0], c[1], c[2]))
            for number, c in enumerate(counts)
        ]
    )


_GROWTH = 1.25


def _place(seconds: float) -> int:
    """From a tenth of a second to a week, as powers of `_GROWTH`."""
    return math.floor(math.log(min(max(seconds, 0.1), 604_800.0), _GROWTH))


def median(values: Sequence[float]) -> float | None:
    """The middle one; `None` of none."""
    return sorted(values)[len(values) // 2] if values else None


def _draw(bars: Sequence[Bar]) -> Chart:
    most = max(sum(bar.counts) for bar in bars)
    width = _WIDTH / len(bars)
    parts = []
    for number, bar in enumerate(bars):
        y = _HEIGHT
        for kind, count in zip(KINDS, bar.counts, strict=True):
            if not count:
                continue
            height = _HEIGHT * count / most
            y -= height
            title = f"{bar.label}: {count:,} {kind}"
            parts.append(Part(kind, number * width, y, max(min(width, 30.0) - _GAP, 0.5), height, title))
    every = max(1, math.ceil(len(bars) / 6))
    labels = [(number * width, bar.label) for number, bar in enumerate(bars) if number % every == 0]
    return Chart(parts, labels, most)
