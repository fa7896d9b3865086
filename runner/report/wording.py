"""What the Router says beside its answers, in words for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from runner.core.types import JobState
from runner.store.queries import Alike

#: Characters of one row's failure that stand for all of its kind.
LONGEST_EXAMPLE = 160


@dataclass(frozen=True, slots=True)
class Held:
    """What a user must know of a job that is held."""

    why: str
    may_have_cost: str
    decides: str

    def __str__(self) -> str:
        return f"{self.why}; {self.may_have_cost}; {self.decides}"


_ONE_RUN = "one run may have been paid for"
#: Why a job is held, what it may have cost, and which command decides.
HELD: Mapping[str, Held] = {
    "outcome_unknown": Held(
        "no answer came to the submit",
        _ONE_RUN,
        "resume sends the same key again, which pays nothing twice within 24 hours of its first use",
    ),
    "key_conflict": Held(
        "the Router holds the key for another request",
        "what that cost is not known",
        "retry --state held pays for a new run",
    ),
    "key_expired": Held(
        "the key is older than 24 hours, so sending it again could pay a second time",
        _ONE_RUN,
        "retry --state held pays for a new run",
    ),
    "request_lost": Held(
        "the Router does not know the request any more",
        _ONE_RUN,
        "resume asks for it again at no cost, retry --state held pays for a new run",
    ),
    "unreadable": Held(
        "the result could not be read",
        _ONE_RUN,
        "resume asks for it again at no cost, retry --state held pays for a new run",
    ),
}

#: Headers in lower case, and what they are called where people read them.
_NOTES: Mapping[str, str] = {
    "idempotent-replayed": "replayed",
    "x-comfy-credits-used": "credits used",
    "x-comfy-upstream-status": "provider's status",
    "x-comfy-upstream-detail": "provider's words",
    "x-comfy-refusal-subject": "refused",
    "x-comfy-router-fallback-provider": "served by",
}
_DROPPED = "x-comfy-router-dropped-params"
_SPEND = "x-committed-spend-"


def duration(seconds: float, *, tenths: bool = False) -> str:
    """`8 s`, `3 min`, `2 h 10 min`, `4 d`; with `tenths` those of a short one, too: `0.4 s`."""
    if tenths and seconds < 10:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"
    return f"{seconds / 86400:.0f} d"


def note_words(notes: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(name, value) of the headers kept with an answer."""
    yield from ((name, notes[header]) for header, name in _NOTES.items() if header in notes)
    if _DROPPED in notes:
        yield "not passed on", "; ".join(_texts(notes[_DROPPED]))
    if f"{_SPEND}limit" in notes:
        current, limit = (_dollars(notes.get(f"{_SPEND}{name}", "")) for name in ("current", "limit"))
        yield "spend in flight", f"{current} of {limit} allowed"


def _texts(header: str) -> list[str]:
    """The header's JSON list of sentences; as it stands where it is none."""
    try:
        read = json.loads(header)
    except ValueError:
        return [header]
    return [str(text) for text in read] if isinstance(read, list) else [header]


def _dollars(cents: str) -> str:
    try:
        return f"${int(cents) / 100:,.2f}"
    except ValueError:
        return cents or "?"


def quote_words(estimate: Mapping[str, Any]) -> str | None:
    """What the Router expected a run to cost; nothing that it did not say."""
    currency = estimate.get("currency", "USD")
    if "amount" in estimate:
        return f"{estimate['amount']} {currency}"
    if "min_amount" in estimate and "max_amount" in estimate:
        return f"{estimate['min_amount']} to {estimate['max_amount']} {currency}"
    return f"unknown ({estimate.get('reason', 'no reason given')})" if estimate else None


def detail_words(detail: str | None) -> str | None:
    """The entries of the contract's `detail[]` as `field: message`, one a line; a sentence as it is."""
    if not detail or not detail.startswith("["):
        return detail
    try:
        entries = json.loads(detail)
    except ValueError:
        return detail
    return "; ".join(f"{'.'.join(str(part) for part in e.get('loc', []))}: {e.get('msg', '')}" for e in entries)


def alike_words(alike: Alike) -> str:
    """How many jobs stand in one state for one reason, and one of them as an example."""
    jobs = "1 job" if alike.jobs == 1 else f"{alike.jobs:,} jobs"
    if alike.state is JobState.HELD:
        return f"{jobs}: {HELD.get(alike.reason, alike.error_type or alike.reason)}"
    detail = detail_words(alike.detail)
    example = f"; row {alike.row}: {detail[:LONGEST_EXAMPLE]}" if detail else ""
    return f"{jobs}: {alike.error_type or alike.reason}{example}"
