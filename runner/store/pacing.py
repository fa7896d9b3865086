"""The allowed calls a second of a credential, given out in the database, so that all workers share them."""

from __future__ import annotations

from dataclasses import dataclass

from runner.core.pace import next_place
from runner.core.types import Step
from runner.store.hot import Hot, Row, Sql

# Only for a job that can be claimed: a place that nobody uses is lost.
_CALLER = """
SELECT j.*, c.paced_until AS paced_until FROM job j JOIN credential c ON c.id = j.credential_id
WHERE j.id = :id AND j.step = :step AND j.due_at <= :now AND (j.claim_token IS NULL OR j.claim_until <= :now)
  AND c.blocked IS NULL AND (c.cool_down_until IS NULL OR c.cool_down_until <= :now)
"""
_SELECT_CALLER = Sql(_CALLER, postgresql_suffix=" FOR UPDATE OF j, c")
_GIVE = Sql("UPDATE credential SET paced_until = :until WHERE id = :id")


@dataclass(frozen=True, slots=True)
class LaterPlace:
    """A job whose call has its place only later."""

    row: Row
    #: Unix seconds.
    at: float


def take_place(hot: Hot, job_id: int, step: Step, now: float, per_second: float) -> LaterPlace | None:
    """Give the job's next call to the Router its place. `None` when nothing stands in the way of it: the place is now,
    was given before and has come, or is not needed."""
    if step is Step.FETCH:
        return None
    row = hot.row(_SELECT_CALLER, {"id": job_id, "step": step.value, "now": now})
    if row is None or (row["paced_at"] is not None and row["paced_at"] <= now):
        return None
    place, until = next_place(row["paced_until"], now, per_second)
    hot.run(_GIVE, {"id": row["credential_id"], "until": until})
    return LaterPlace(row, place) if place > now else None
