"""Cancelling a batch: what was not sent ends at once, what the Router holds is asked for, what is held is given up.

The command does it once; the sweeper again, for jobs that were being acted on at that moment.
"""

from __future__ import annotations

from runner.core.lifecycle import decide
from runner.core.types import TERMINAL, JobState, Outcome, OutcomeKind, Policy
from runner.store.events import event_of, write_event
from runner.store.hot import Hot, Sql
from runner.store.records import Wake
from runner.store.rows import job_of

#: Jobs moved in one transaction.
CHUNK = 1000
_OPEN = """
SELECT * FROM job
WHERE batch_id = :id AND state IN ('pending', 'submitting', 'queued', 'running', 'held') AND cancel_asked_at IS NULL
  AND (step IS NULL OR step <> 'cancel') AND (claim_token IS NULL OR claim_until <= :now)
ORDER BY row LIMIT :most
"""
_SELECT_OPEN = Sql(_OPEN, postgresql_suffix=" FOR UPDATE SKIP LOCKED")
_MOVED = Sql("""
UPDATE job SET state = :state, step = :step, charge = :charge, attempts = 0, last = :last, reason = :reason,
  due_at = :now, decided_at = :now, wake_at = :wake_at, finished_at = :finished_at,
  claim_token = NULL, claim_owner = NULL, claim_until = NULL, deadline = CASE WHEN :ended THEN NULL ELSE deadline END
WHERE id = :id
""")


def cancel_open_jobs(hot: Hot, batch_id: str, name: str, now: float) -> list[Wake]:
    """Move up to `CHUNK` jobs of a batch that is being cancelled; returns the messages to send."""
    outcome, policy = Outcome(OutcomeKind.CANCEL), Policy()
    wakes = []
    for row in hot.rows(_SELECT_OPEN, {"id": batch_id, "now": now, "most": CHUNK}):
        job = job_of(row)
        made = decide(job, outcome, now, policy)
        ended = made.state in TERMINAL
        values = {
            "id": job.id,
            "state": made.state.value,
            "step": made.step.value if made.step else None,
            "charge": made.charge.value,
            "last": outcome.kind.value,
            "reason": made.reason.value if made.reason else None,
            "now": now,
            "wake_at": None if ended else now,
            "finished_at": now if ended else None,
            "ended": ended,
        }
        hot.run(_MOVED, values)
        write_event(hot, event_of(job, outcome, made, now))
        if made.step is not None:
            wakes.append(Wake(job.id, made.step, name, row["row"], 0.0, row["queue_position"]))
    return wakes


def count_open(hot: Hot, batch_id: str) -> dict[JobState, int]:
    """Jobs of the batch that a cancel would touch, by state."""
    rows = hot.rows(_COUNT_OPEN, {"id": batch_id})
    return {JobState(row["state"]): row["n"] for row in rows}


_COUNT_OPEN = Sql("""
SELECT state, count(*) AS n FROM job
WHERE batch_id = :id AND state IN ('pending', 'submitting', 'queued', 'running', 'held') GROUP BY state
""")
