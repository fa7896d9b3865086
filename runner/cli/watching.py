"""Watching a batch until it ends, stops, or the user has seen enough."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from runner.cli.context import Context
from runner.core.money import spread
from runner.core.types import TERMINAL, BatchState, Charge, JobState
from runner.report.wording import alike_words, duration
from runner.store.batches import BatchRecord
from runner.store.queries import Alike, Counts, Summary, Vitals

#: Seconds between two looks at the database.
LOOK = 0.25
#: Seconds between two looks at what takes longer to look up.
DETAILS = 2.0
#: A look that took so long is followed by so many times as long without one.
REST = 9.0
#: Seconds between two plain lines where there is no terminal.
PLAIN_LINE = 5.0
#: Kinds of failures that are shown.
FAILURES = 4
#: Rate and time left are told from the last minute.
RATE_WINDOW = 60.0

_COLOURS = (
    (JobState.SUCCEEDED, "green"),
    (JobState.DOWNLOADING, "cyan"),
    (JobState.RUNNING, "blue"),
    (JobState.QUEUED, "magenta"),
    (JobState.SUBMITTING, "yellow"),
    (JobState.FAILED, "red"),
    (JobState.CANCELLED, "red"),
    (JobState.EXPIRED, "red"),
    (JobState.HELD, "bright_red"),
    (JobState.PENDING, "bright_black"),
)


class Stop(Protocol):
    """How the user says that it is enough."""

    def wait(self, seconds: float) -> bool:
        """Sleep for so long, or until the user says so; returns whether that was said."""
        ...


class Ended(Enum):
    """Why watching ended."""

    FINISHED = "finished"
    STOPPED = "stopped"
    OUT_OF_TIME = "out of time"
    INTERRUPTED = "interrupted"


@dataclass
class Pace:
    """How fast jobs end, from what was seen in the last minute."""

    seen: deque[tuple[float, int]] = field(default_factory=deque)

    def note(self, now: float, done: int) -> None:
        """At `now`, `done` jobs had ended."""
        self.seen.append((now, done))
        while self.seen and now - self.seen[0][0] > RATE_WINDOW:
            self.seen.popleft()

    def rate(self) -> float:
        """Jobs a second; 0 while nothing is known."""
        if len(self.seen) < 2:
            return 0.0
        (first, before), (last, after) = self.seen[0], self.seen[-1]
        return (after - before) / (last - first) if last > first else 0.0


def done_of(counts: Counts) -> int:
    """Jobs that ended, one way or another."""
    return sum(counts[state] for state in TERMINAL)


def has_stopped(batch: BatchRecord, counts: Counts) -> bool:
    """Whether nothing more will happen by itself, though the batch has not finished."""
    going = counts[JobState.QUEUED] + counts[JobState.RUNNING] + counts[JobState.DOWNLOADING]
    if batch.state is BatchState.PAUSED:
        # A stopped credential stops everything; a paused batch still collects what it has paid for.
        whole = batch.pause_reason not in {"insufficient_credits", "failing_alike", "max_cost", "user"}
        return whole or going == 0
    return going + counts[JobState.SUBMITTING] + counts[JobState.PENDING] == 0


@dataclass(frozen=True)
class Details:
    """What is looked up less often, since it takes longer."""

    summary: Summary
    vitals: Vitals
    #: What jobs failed of or are held for, the most frequent first.
    reasons: list[Alike]


_UNHAPPY = (JobState.FAILED, JobState.HELD, JobState.EXPIRED, JobState.CANCELLED)


def details_of(context: Context, batch: BatchRecord) -> Details:
    """Look them up now."""
    queries = context.queries
    return Details(queries.summary(batch), queries.vitals(batch), queries.reasons(batch.id, _UNHAPPY))


def watch(
    context: Context,
    batch_id: str,
    *,
    console: Console,
    interrupted: Stop,
    wait: float | None = None,
    alive: Callable[[], bool] = lambda: True,
) -> Ended:
    """Show progress on `console` until the batch ends or stops, `wait` seconds are over, or `interrupted` is set."""
    until = time.monotonic() + wait if wait is not None else None
    view = _LiveView(console) if console.is_terminal else _PlainView(console)
    with view:
        while True:
            began = time.monotonic()
            batch = context.batches.find(batch_id)
            counts = context.queries.counts(batch_id)
            view.show(batch, counts, partial(details_of, context, batch))
            took = time.monotonic() - began
            if batch.state is BatchState.FINISHED:
                return Ended.FINISHED
            if has_stopped(batch, counts) or not alive():
                return Ended.STOPPED
            if until is not None and time.monotonic() >= until:
                return Ended.OUT_OF_TIME
            # Counting a million rows takes a while: looking shall not be what the machine does.
            if interrupted.wait(max(LOOK, took * REST)):
                return Ended.INTERRUPTED


class _View:
    wants_details = False

    def __init__(self, console: Console) -> None:
        self._console = console
        self._pace = Pace()
        self._details: Details | None = None
        self._looked = 0.0

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None

    def show(self, batch: BatchRecord, counts: Counts, look: Callable[[], Details]) -> None:
        now = time.monotonic()
        self._pace.note(now, done_of(counts))
        over = batch.state is BatchState.FINISHED
        if self.wants_details and (over or self._details is None or now - self._looked >= DETAILS):
            self._details, self._looked = look(), time.monotonic()
        self._render(batch, counts, self._pace.rate())

    def _render(self, batch: BatchRecord, counts: Counts, rate: float) -> None:
        raise AssertionError("each view renders in its own way")  # pragma: no cover


class _LiveView(_View):
    """One bar by state and what stands beside it, redrawn in place."""

    wants_details = True

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._live = Live(console=console, auto_refresh=False, transient=False)

    def __enter__(self) -> None:
        self._live.start()

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def _render(self, batch: BatchRecord, counts: Counts, rate: float) -> None:
        cell = "█" if _can_print("█", self._console.encoding) else "#"
        bar = progress_screen(batch, counts, rate, self._console.width, cell)
        beside = beside_words(self._details, time.time()) if self._details else []
        screen = Group(bar, *(Text(line, overflow="ellipsis", no_wrap=True, style="bright_black") for line in beside))
        self._live.update(screen, refresh=True)


class _PlainView(_View):
    """A line now and then, without control codes."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._last = -PLAIN_LINE
        self._shown = ""

    def _render(self, batch: BatchRecord, counts: Counts, rate: float) -> None:
        line = progress_line(batch, counts, rate)
        over = batch.state is BatchState.FINISHED
        if line != self._shown and (over or time.monotonic() - self._last >= PLAIN_LINE):
            self._last, self._shown = time.monotonic(), line
            self._console.out(line, highlight=False)


def beside_words(details: Details, now: float) -> list[str]:
    """The account's pace, the places in the Router's queue, what it cost so far, and what failed."""
    vitals = details.vitals
    words = [f"{vitals.in_flight:,} of {vitals.window:,} in flight"]
    if vitals.first_place is not None and vitals.last_place is not None:
        places = f"{vitals.first_place:,}"
        if vitals.last_place != vitals.first_place:
            places += f" to {vitals.last_place:,}"
        words.append(f"place {places} in the Router's queue")
    if vitals.cool_down_until is not None and vitals.cool_down_until > now:
        words.append(f"cooling down for {duration(vitals.cool_down_until - now)}")
    billed = details.summary.costs.get(Charge.BILLED)
    if billed is not None and billed.high:
        words.append(f"{spread(billed.low, billed.high)} billed so far")
    lines = [", ".join(words)]
    return lines + [f"{alike.state}: {alike_words(alike)}" for alike in details.reasons[:FAILURES]]


def progress_line(batch: BatchRecord, counts: Counts, rate: float) -> str:
    """`prompts: 12/24 done, 8 in flight, 4 pending, 1.5/s, 8 s left`."""
    parts = [f"{done_of(counts):,}/{counts.total:,} done"]
    named = (("in flight", counts.in_flight), ("downloading", counts[JobState.DOWNLOADING]))
    parts += [f"{count:,} {name}" for name, count in named if count]
    for state in (JobState.PENDING, JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED, JobState.HELD):
        if counts[state]:
            parts.append(f"{counts[state]:,} {state.value}")
    parts += _pace_words(counts, rate)
    return f"{batch.name}: {', '.join(parts)}"


def _pace_words(counts: Counts, rate: float) -> list[str]:
    left = counts.total - done_of(counts) - counts[JobState.HELD]
    if rate <= 0 or left <= 0:
        return []
    return [f"{rate:.1f}/s", f"{duration(left / rate)} left"]


def progress_screen(batch: BatchRecord, counts: Counts, rate: float, width: int, cell: str) -> RenderableType:
    """The name, a bar with a colour for each state, and the counts in the same colours."""
    total = max(counts.total, 1)
    done = done_of(counts)
    head = Text.from_markup(f"[bold]{escape(batch.name)}[/]  {done:,} of {counts.total:,} done")
    if batch.state is BatchState.PAUSED:
        head.append(f"  paused: {batch.pause_reason}", style="bold red")
    words = _pace_words(counts, rate)
    if words:
        head.append("  " + ", ".join(words), style="bright_black")
    bar, legend = Text(), Text()
    room = max(min(width - 2, 100), 10)
    seen, drawn = 0, 0
    for state, colour in _COLOURS:
        count = counts[state]
        if not count:
            continue
        seen += count
        cells = round(room * seen / total) - drawn
        drawn += cells
        bar.append(cell * cells, style=colour)
        legend.append(f"{count:,} {state.value}  ", style=colour)
    return Group(head, bar, legend)


def _can_print(character: str, encoding: str) -> bool:
    try:
        character.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True
