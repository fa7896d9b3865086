"""What the Router says beside its answers, in words for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

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
