"""The window: how many jobs of a credential may be in flight, and who comes in next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from runner.core.lifecycle import decide
from runner.core.types import Job, JobState, Outcome, OutcomeKind, Policy, Window
from runner.core.window import affordable, grown, room, shrunk
from runner.store.hot import IN_FLIGHT_SQL, Hot, Row, Sql
from runner.store.records import Wake

#: What admission makes of a pending job, decided once for all of them.
_ADMITTED = decide(Job(0, JobState.PENDING), Outcome(OutcomeKind.ADMITTED), 0.0, Policy())

#: What becomes of a job that was let in and that nobody sends.
_WITHDRAWN = decide(Job(0, JobState.SUBMITTING), Outcome(OutcomeKind.WITHDRAWN), 0.0, Policy())

_CREDENTIAL = "SELECT id, window_size, window_max, shrunk_at, cool_down_until, blocked FROM credential WHERE id = :id"
_SELECT_CREDENTIAL = Sql(_CREDENTIAL, postgresql_suffix=" FOR UPDATE")
_COUNT_IN_FLIGHT = Sql(f"SELECT count(*) AS n FROM job WHERE credential_id = :id AND {IN_FLIGHT_SQL}")  # noqa: S608  # a constant
# What is stopped until a user's command is nobody's to fetch, and keeps nobody waiting.
_COUNT_DOWNLOADING = Sql("""
SELECT count(*) AS n FROM job WHERE credential_id = :id AND state = 'downloading' AND wake_at IS NOT NULL
""")
# The one that ended is not among them any more.
_CROWDED = Sql("""
SELECT 1 AS crowded FROM credential WHERE id = :id AND window_size < 2 + (
  SELECT count(*) FROM job WHERE credential_id = :id AND state = 'downloading' AND wake_at IS NOT NULL)
""")
_COUNT_SUBMITTING = Sql("SELECT count(*) AS n FROM job WHERE batch_id = :id AND state = 'submitting'")
_ACTIVE_BATCHES = Sql("""
SELECT id, started_at, max_cost, quoted, dearest FROM batch
WHERE credential_id = :id AND state = 'active' AND total IS NOT NULL AND id = COALESCE(:only, id)
ORDER BY created_at, id
""")
_NEXT_PENDING = """
SELECT id, row FROM job WHERE batch_id = :batch AND state = 'pending' AND due_at <= :now ORDER BY row LIMIT :room
"""
_SELECT_PENDING = Sql(_NEXT_PENDING, postgresql_suffix=" FOR UPDATE SKIP LOCKED")
_ADMIT = Sql("""
UPDATE job SET state = :state, step = :step, due_at = :now, decided_at = :now, wake_at = :wake WHERE id = :id
""")
_WITHDRAW = Sql("""
UPDATE job SET state = :state, step = NULL, due_at = :now, wake_at = NULL
WHERE credential_id = :id AND state = 'submitting' AND first_sent_at IS NULL AND claim_token IS NULL
  AND ((batch_id <> COALESCE(:only, batch_id) AND wake_at <= :now)
    OR batch_id IN (SELECT id FROM batch WHERE state <> 'active'))
""")
_BEGIN_BATCH = Sql("UPDATE batch SET started_at = :now WHERE id = :id AND started_at IS NULL")
_SET_WINDOW = Sql("UPDATE credential SET window_size = :window, shrunk_at = :shrunk_at WHERE id = :id")
# Two last jobs that end together wait here for each other, or neither would see that it was the last.
_LOCK_BATCH = Sql("SELECT id FROM batch WHERE id = :id", postgresql_suffix=" FOR UPDATE")
_FINISH = Sql("""
UPDATE batch SET state = 'finished', finished_at = :now
WHERE id = :id AND state IN ('active', 'cancelling') AND total IS NOT NULL AND NOT EXISTS (
  SELECT 1 FROM job WHERE batch_id = :id
  AND state IN ('pending', 'submitting', 'queued', 'running', 'downloading', 'held'))
""")

#: An admitted job's message is given this long before the sweeper sends another, in seconds.
ADMISSION_GRACE = 5.0


@dataclass(frozen=True, slots=True)
class CredentialState:
    """A credential's pace, read under its lock."""

    id: int
    window: float
    window_max: int
    shrunk_at: float | None
    cool_down_until: float | None
    blocked: str | None


def lock_credential(hot: Hot, credential_id: int) -> CredentialState:
    """Read the credential so that no other transaction changes it, or fills the same place, before this one ends."""
    row = hot.row(_SELECT_CREDENTIAL, {"id": credential_id})
    assert row is not None  # noqa: S101  # jobs refer to it, so it is there
    return CredentialState(
        row["id"],
        row["window_size"],
        row["window_max"],
        row["shrunk_at"],
        row["cool_down_until"],
        row["blocked"],
    )


def admit_within(
    hot: Hot, credential: CredentialState, now: float, name_of: Callable[[str], str], only_batch: str | None = None
) -> list[Wake]:
    """Let pending jobs into the window until it is full, oldest batch first, in the manifest's order.

    With `only_batch` no other batch's jobs are let in.
    """
    if credential.blocked is not None or (credential.cool_down_until or 0.0) > now:
        return []
    wakes: list[Wake] = []
    places = room(credential.window, _in_flight(hot, credential.id), _count(hot, _COUNT_DOWNLOADING, credential.id))
    if places <= 0:
        return wakes
    for batch in hot.rows(_ACTIVE_BATCHES, {"id": credential.id, "only": only_batch}):
        batch_id, started_at = batch["id"], batch["started_at"]
        values = {"batch": batch_id, "now": now, "room": min(places - len(wakes), _affordable(hot, batch, places))}
        found = hot.rows(_SELECT_PENDING, values)
        if found and started_at is None:
            hot.run(_BEGIN_BATCH, {"id": batch_id, "now": now})
        wakes.extend(_admit(hot, found, name_of(batch_id), now) if found else [])
        if len(wakes) >= places:
            break
    return wakes


def _affordable(hot: Hot, batch: Row, most: int) -> int:
    """How many of `most` jobs of the batch its limit on cost lets in."""
    if batch["max_cost"] is None:
        return most
    unanswered = hot.row(_COUNT_SUBMITTING, {"id": batch["id"]})
    sent = int(unanswered["n"]) if unanswered else 0
    more = affordable(batch["max_cost"], batch["quoted"], batch["dearest"], sent)
    return most if more is None else max(0, min(most, more))


def _admit(hot: Hot, found: Sequence[Row], batch: str, now: float) -> list[Wake]:
    step = _ADMITTED.step
    assert step is not None  # noqa: S101  # the table says so, and its tests
    values = {"state": _ADMITTED.state.value, "step": step.value, "now": now, "wake": now + ADMISSION_GRACE}
    hot.run_many(_ADMIT, [{"id": job["id"], **values} for job in found])
    return [Wake(job["id"], step, batch, job["row"]) for job in found]


def kept_others_out(hot: Hot, credential_id: int) -> bool:
    """Whether so many downloads wait that the end of one of them lets somebody in."""
    return hot.row(_CROWDED, {"id": credential_id}) is not None


def withdraw_unsent(hot: Hot, credential_id: int, only_batch: str | None, now: float) -> None:
    """Give the places back that jobs took and nobody will use, since their batch is paused or, with `only_batch`, is
    another: none of their keys has gone out."""
    values = {"state": _WITHDRAWN.state.value, "now": now, "id": credential_id, "only": only_batch}
    hot.run(_WITHDRAW, values)


def _in_flight(hot: Hot, credential_id: int) -> int:
    return _count(hot, _COUNT_IN_FLIGHT, credential_id)


def _count(hot: Hot, statement: Sql, credential_id: int) -> int:
    row = hot.row(statement, {"id": credential_id})
    return int(row["n"]) if row else 0


def adjust_window(hot: Hot, credential: CredentialState, change: Window, now: float) -> CredentialState:
    """Make room smaller after a refusal for too much in flight, larger after a success."""
    after, shrunk_at = credential.window, credential.shrunk_at
    if change is Window.GROW:
        after = grown(credential.window, credential.window_max)
    elif change is Window.SHRINK:
        in_flight = _in_flight(hot, credential.id)
        after = shrunk(credential.window, in_flight, shrunk_at, now)
        shrunk_at = now if after != credential.window else shrunk_at
    if after == credential.window:
        return credential
    hot.run(_SET_WINDOW, {"id": credential.id, "window": after, "shrunk_at": shrunk_at})
    return replace(credential, window=after, shrunk_at=shrunk_at)


def finish_batch(hot: Hot, batch_id: str, now: float) -> None:
    """Mark the batch as finished if none of its jobs is left to do or to decide on."""
    hot.row(_LOCK_BATCH, {"id": batch_id})
    hot.run(_FINISH, {"id": batch_id, "now": now})
