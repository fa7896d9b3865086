"""Before anything is paid for: what it would cost, and whether that is meant."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal

from runner.cli.asking import agree
from runner.cli.output import err
from runner.core.errors import UsageError
from runner.core.money import dollars, estimate_words
from runner.core.quotes import NOT_OFFERED, TOO_MANY_SHAPES, Estimate, Quote, Shape, Shapes
from runner.router.catalog import Exchange, ask_quote
from runner.router.patience import Patient

#: Quotes asked for at a time.
AT_ONCE = 8
#: So many rows whose cost nobody knows are asked about, too.
MANY_UNKNOWN = 100


@dataclass(frozen=True, slots=True)
class Consent:
    """What a user has said of the cost; amounts are US dollars."""

    max_cost: Decimal | None = None
    yes: bool = False
    #: From which sum on a user is asked; `None` for never.
    confirm_above: Decimal | None = None
    #: Whether somebody is there to answer.
    can_ask: bool = False

    @property
    def depends_on_cost(self) -> bool:
        """Whether it matters what a batch costs: where it does not, the Router need not be asked."""
        asks = self.can_ask and not self.yes and self.confirm_above is not None
        return self.max_cost is not None or asks


def somebody_is_there() -> bool:
    """Whether a question would reach a person."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def estimate_of(router: Exchange, shapes: Shapes, sleep: Callable[[float], None] = time.sleep) -> Estimate:
    """Have each shape priced, at most twice. Where the first quote says that none are given, no more are asked for."""
    patient = Patient(router, sleep)
    estimate = Estimate()
    every = shapes.all()
    first = [_quotes(patient, shape) for shape in every[:1]]
    offered = not any(quote.reason == NOT_OFFERED for quotes in first for quote in quotes)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        later = pool.map(lambda shape: _quotes(patient, shape), every[1:] if offered else ())
        for shape, quotes in zip(every, [*first, *later], strict=False):
            estimate.add(shape.rows, quotes)
    if not offered:
        for shape in every[1:]:
            estimate.add(shape.rows, [Quote(reason=NOT_OFFERED)])
    for rows in shapes.beyond.values():
        estimate.add(rows, [Quote(reason=TOO_MANY_SHAPES)])
    return estimate


def _quotes(router: Exchange, shape: Shape) -> list[Quote]:
    return [ask_quote(router, shape.model, shape.query, body) for body in shape.samples]


def approver(
    router: Exchange, consent: Consent, ask: Callable[[str], None] = agree, sleep: Callable[[float], None] = time.sleep
) -> Callable[[Shapes], None]:
    """What is shown a new batch before it counts, and raises `UsageError` where its cost is not meant."""

    def approve(shapes: Shapes) -> None:
        estimate = estimate_of(router, shapes, sleep)
        err.print(f"Quoted: {estimate_words(estimate)}.")
        question = _question(estimate, consent)
        if question is None:
            return
        if not consent.can_ask:
            raise UsageError(
                f"{question}, so nothing was sent",
                advice="--yes goes on; the batch is paused once what its requests are quoted passes --max-cost",
            )
        ask(f"{question}. Go on?")

    return approve


def _question(estimate: Estimate, consent: Consent) -> str | None:
    """What the user is to be asked; `None` for nothing. Raises `UsageError` where the limit is passed already."""
    limit = consent.max_cost
    if limit is not None and estimate.high > limit:
        raise UsageError(
            f"the batch could cost {dollars(estimate.high)}, more than --max-cost {dollars(limit)}; nothing was sent",
            advice="a smaller manifest, or a larger --max-cost",
        )
    if consent.yes:
        return None
    if limit is not None:
        return (
            f"what {estimate.unknown_rows:,} of {estimate.rows:,} rows cost is not known" if estimate.unknown else None
        )
    dear = consent.confirm_above is not None and estimate.high > consent.confirm_above
    if dear or estimate.unknown_rows >= MANY_UNKNOWN:
        return f"{estimate.rows:,} paid runs, {estimate_words(estimate)}"
    return None
