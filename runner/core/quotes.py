"""What a manifest would cost: as few quotes as there are different things to price, and honest sums.

An absent amount is never zero (contract: `RouterCostEstimate`); amounts are US dollars.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, Final

#: Different shapes that are priced; of more, the rest is unknown.
MOST_SHAPES: Final = 100
#: Longer texts, and texts of several words, are content and not a choice that sets the price.
_LONGEST_CHOICE: Final = 24
_CONTENT: Final = ("prompt", "text", "content", "input", "image", "video", "audio", "url", "voice")
#: Reasons of our own beside the contract's.
NOT_OFFERED: Final = "not_offered"
NO_ANSWER: Final = "no_answer"
TOO_MANY_SHAPES: Final = "too_many_shapes"


@dataclass(frozen=True, slots=True)
class Quote:
    """What one run would cost at least and at most; without amounts, why not."""

    low: Decimal | None = None
    high: Decimal | None = None
    reason: str | None = None


def read_quote(document: Mapping[str, Any]) -> Quote:
    """A quote as the Router words it; anything unexpected in it makes it unknown."""
    exact = _amount(document.get("amount"))
    if document.get("source") == "exact" and exact is not None:
        return Quote(exact, exact)
    low, high = _amount(document.get("min_amount")), _amount(document.get("max_amount"))
    if document.get("source") == "estimated" and low is not None and high is not None and low <= high:
        return Quote(low, high)
    reason = document.get("reason")
    return Quote(reason=reason if isinstance(reason, str) and reason else "unknown")


def _amount(value: object) -> Decimal | None:
    if not isinstance(value, str):
        return None
    try:
        amount = Decimal(value)
    except InvalidOperation:
        return None
    return amount if amount.is_finite() and amount >= 0 else None


@dataclass(slots=True)
class Shape:
    """Rows that differ in nothing but their content: the shortest and the longest of them stand for all."""

    model: str
    query: str
    shortest: bytes
    longest: bytes
    rows: int = 1

    @property
    def samples(self) -> tuple[bytes, ...]:
        """The bodies to have priced: where the length of a text sets the price, the two differ."""
        return (self.shortest,) if self.shortest == self.longest else (self.shortest, self.longest)


class Shapes:
    """The different things to price in a manifest, however many rows it has."""

    def __init__(self) -> None:
        self._shapes: dict[tuple[str, str, str], Shape] = {}
        #: Rows of shapes beyond `MOST_SHAPES`, by model.
        self.beyond: dict[str, int] = {}

    def add(self, model: str, query: str, body: bytes) -> None:
        """One row more."""
        key = (model, query, _shape_of(body))
        shape = self._shapes.get(key)
        if shape is None:
            if len(self._shapes) < MOST_SHAPES:
                self._shapes[key] = Shape(model, query, body, body)
            else:
                self.beyond[model] = self.beyond.get(model, 0) + 1
            return
        shape.rows += 1
        if len(body) < len(shape.shortest):
            shape.shortest = body
        elif len(body) > len(shape.longest):
            shape.longest = body

    def all(self) -> list[Shape]:
        """Every shape, in the order in which they were met."""
        return list(self._shapes.values())


def _shape_of(body: bytes) -> str:
    return json.dumps(_outline(json.loads(body), ""), sort_keys=True)


def _outline(value: object, name: str) -> object:
    if isinstance(value, dict):
        return {key: _outline(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_outline(item, name) for item in value]
    if name.lower().endswith("seed"):
        return "…"
    if isinstance(value, str):
        lowered = name.lower()
        content = len(value) > _LONGEST_CHOICE or any(word in lowered for word in _CONTENT) or " " in value
        return "…" if content else value
    return value


@dataclass(slots=True)
class Estimate:
    """What is known of the cost of a number of runs."""

    rows: int = 0
    low: Decimal = Decimal(0)
    high: Decimal = Decimal(0)
    #: Rows without a quote, by reason.
    unknown: dict[str, int] = field(default_factory=dict)

    def add(self, rows: int, quotes: Iterable[Quote]) -> None:
        """Rows of one shape, with the quotes of its samples."""
        self.rows += rows
        found = list(quotes)
        without = next((quote for quote in found if quote.low is None or quote.high is None), None)
        if without is not None or not found:
            reason = (without.reason if without else None) or "unknown"
            self.unknown[reason] = self.unknown.get(reason, 0) + rows
            return
        self.low += rows * min(quote.low for quote in found if quote.low is not None)
        self.high += rows * max(quote.high for quote in found if quote.high is not None)

    @property
    def unknown_rows(self) -> int:
        """Rows that may cost anything."""
        return sum(self.unknown.values())
