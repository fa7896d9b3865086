"""What sends are quoted and charged, and the limit that a user has set on it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from runner.core.quotes import read_quote
from runner.core.types import BatchState, Handle
from runner.core.window import affordable
from runner.store.hot import Hot, Sql

_CREDITS_USED = "x-comfy-credits-used"
_ADD = Sql("""
UPDATE batch SET quoted = quoted + :quote, dearest = CASE WHEN dearest > :quote THEN dearest ELSE :quote END
WHERE id = :id AND max_cost IS NOT NULL RETURNING state, max_cost, quoted, dearest
""")
_PAUSE = Sql("UPDATE batch SET state = 'paused', pause_reason = 'max_cost', pause_detail = NULL WHERE id = :id")


def bounds_of(handle: Handle | None) -> dict[str, float | None]:
    """The bounds of the quote that came with an acceptance."""
    quote = read_quote(handle.estimate if handle is not None and handle.estimate else {})
    bounds = {"quote_low": quote.low, "quote_high": quote.high}
    return {name: None if amount is None else float(amount) for name, amount in bounds.items()}


def credits_used(notes: Mapping[str, str]) -> float | None:
    """The credits that a run was charged, as the Router says beside its result."""
    try:
        used = float(notes.get(_CREDITS_USED, ""))
    except ValueError:
        return None
    return used if math.isfinite(used) and used >= 0 else None


def keep_to_max_cost(hot: Hot, batch_id: str, handle: Handle) -> None:
    """Count the quote of a send, and send nothing more of a batch whose limit the next could pass."""
    quote = bounds_of(handle)["quote_high"] or 0.0
    batch = hot.row(_ADD, {"id": batch_id, "quote": quote})
    if batch is None or batch["state"] != BatchState.ACTIVE:
        return
    more = affordable(batch["max_cost"], batch["quoted"], batch["dearest"], 0)
    if more is not None and more < 1:
        hot.run(_PAUSE, {"id": batch_id})
