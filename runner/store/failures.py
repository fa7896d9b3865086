"""Failures alike in a row, counted per batch, and the pause that they come to."""

from __future__ import annotations

from runner.core.breaker import PAUSE_REASON, breaks_row, failure_label, sentence, trips
from runner.core.types import Outcome, Transition
from runner.store.hot import Hot, Sql

_COUNT = Sql("""
UPDATE batch SET alike = CASE WHEN alike_as = :label THEN alike + 1 ELSE 1 END, alike_as = :label WHERE id = :id
RETURNING alike
""")
_COUNTED = Sql("SELECT alike_as FROM batch WHERE id = :id AND alike > 0")
_FORGET = Sql("UPDATE batch SET alike = 0, alike_as = NULL WHERE id = :id")
_PAUSE = Sql("""
UPDATE batch SET state = 'paused', pause_reason = :reason, pause_detail = :detail WHERE id = :id AND state = 'active'
""")


def note_failure(hot: Hot, batch_id: str, outcome: Outcome, transition: Transition, limit: int) -> None:
    """Count a job's failure; `limit` of one kind in a row pause the batch."""
    label = failure_label(outcome, transition)
    if label is None:
        return
    counted = hot.row(_COUNT, {"id": batch_id, "label": label})
    if counted is not None and trips(counted["alike"], limit):
        said = sentence(counted["alike"], label, transition.error_detail)
        hot.run(_PAUSE, {"id": batch_id, "reason": PAUSE_REASON, "detail": said})


def note_success(hot: Hot, batch_id: str, outcome: Outcome) -> None:
    """End a row of failures, if `outcome` shows that they are not everybody's."""
    counted = hot.row(_COUNTED, {"id": batch_id})
    if counted is not None and breaks_row(outcome, counted["alike_as"]):
        hot.run(_FORGET, {"id": batch_id})
