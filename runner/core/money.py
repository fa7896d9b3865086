"""Amounts as people and scripts read them: US dollars, never more exact than they are."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from runner.core.quotes import NO_ANSWER, NOT_OFFERED, TOO_MANY_SHAPES, Estimate

_REASONS: Mapping[str, str] = {
    "not_quotable": "the Router cannot price it before it runs",
    "unpriced_model": "the model has no price",
    "byok": "it runs on a key of your own",
    "pricing_unavailable": "prices cannot be had now",
    NOT_OFFERED: "the Router gives this account no quotes",
    NO_ANSWER: "no quote came",
    TOO_MANY_SHAPES: "too many different kinds of rows to price",
}


def dollars(amount: Decimal) -> str:
    """`$0.72`; more digits where the amount has them."""
    exact = amount.normalize()
    digits = max(2, -int(exact.as_tuple().exponent)) if exact else 2
    return f"${amount:,.{digits}f}"


def amount_text(amount: Decimal) -> str:
    """A decimal string without an exponent."""
    return f"{amount.normalize():f}" if amount else "0"


def spread(low: Decimal, high: Decimal) -> str:
    """`$0.72`, or `$0.50 to $1.20`."""
    return dollars(low) if low == high else f"{dollars(low)} to {dollars(high)}"


def reason_words(reason: str) -> str:
    """Why something has no quote."""
    return _REASONS.get(reason, reason)


def estimate_words(estimate: Estimate) -> str:
    """The whole estimate in a line: what is known, and how much is not."""
    known = estimate.rows - estimate.unknown_rows
    parts = [f"{spread(estimate.low, estimate.high)} for {_rows(known)}"] if known else []
    parts += [f"unknown for {_rows(rows)} ({reason_words(reason)})" for reason, rows in estimate.unknown.items()]
    return ", ".join(parts) or "nothing to pay for"


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"
