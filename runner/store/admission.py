"""The window: how many jobs of a credential may be in flight, and who comes in next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, text

from runner.core.lifecycle import decide
from runner.core.types import Job, JobState, Outcome, OutcomeKind, Policy, Window
from runner.core.window import grown, shrunk
from runner.store.records import Wake
from runner.store.tables import IN_FLIGHT_SQL

#: What admission makes of a pending job, decided once for all of them.
_ADMITTED = decide(Job(0, JobState.PENDING), Outcome(OutcomeKind.ADMITTED), 0.0, Policy())

_CREDENTIAL = "SELECT id, window_size, window_max, shrunk_at, cool_down_until, blocked FROM credential WHERE id = :id"
_SELECT_CREDENTIAL = {"sqlite": text(_CREDENTIAL), "postgresql": text(_CREDENTIAL + " FOR UPDATE")}
_COUNT_IN_FLIGHT = text(f"SELECT count(*) FROM job WHERE credential_id = :id AND {IN_FLIGHT_SQL}")  # noqa: S608  # a constant
_ACTIVE_BATCHES = text("""
SELECT id, started_at FROM batch WHERE credential_id = :id AND state = 'active' AND total IS NOT NULL
ORDER BY created_at, id
""")
_NEXT_PENDING = """
SELECT id, row FROM job WHERE batch_id = :batch AND state = 'pending' AND due_at <= :now ORDER BY row LIMIT :room
"""
_SELECT_PENDING = {"sqlite": text(_NEXT_PENDING), "postgresql": text(_NEXT_PENDING + " FOR UPDATE SKIP LOCKED")}
_ADMIT = text("""
UPDATE job SET state = :state, step = :step, due_at = :now, wake_at = :wake WHERE id = :id
""")
_BEGIN_BATCH = text("UPDATE batch SET started_at = :now WHERE id = :id AND started_at IS NULL")
_SET_WINDOW = text("UPDATE credential SET window_size = :window, shrunk_at = :shrunk_at WHERE id = :id")
_FINISH = text("""
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


def lock_credential(connection: Connection, credential_id: int) -> CredentialState:
    """Read the credential so that no other transaction changes it, or fills the same place, before this one ends."""
    statement = _SELECT_CREDENTIAL[connection.dialect.name]
    return CredentialState(*connection.execute(statement, {"id": credential_id}).one())


def admit_within(
    connection: Connection, credential: CredentialState, now: float, name_of: Callable[[str], str]
) -> list[Wake]:
    """Let pending jobs into the window until it is full, oldest batch first, in the manifest's order."""
    if credential.blocked is not None or (credential.cool_down_until or 0.0) > now:
        return []
    room = int(credential.window) - connection.execute(_COUNT_IN_FLIGHT, {"id": credential.id}).scalar_one()
    wakes: list[Wake] = []
    if room <= 0:
        return wakes
    for batch_id, started_at in connection.execute(_ACTIVE_BATCHES, {"id": credential.id}).all():
        values = {"batch": batch_id, "now": now, "room": room - len(wakes)}
        found = connection.execute(_SELECT_PENDING[connection.dialect.name], values).all()
        if found and started_at is None:
            connection.execute(_BEGIN_BATCH, {"id": batch_id, "now": now})
        wakes.extend(_admit(connection, found, name_of(batch_id), now) if found else [])
        if len(wakes) >= room:
            break
    return wakes


def _admit(connection: Connection, found: Any, batch: str, now: float) -> list[Wake]:
    step = _ADMITTED.step
    assert step is not None  # noqa: S101  # the table says so, and its tests
    values = {"state": _ADMITTED.state.value, "step": step.value, "now": now, "wake": now + ADMISSION_GRACE}
    connection.execute(_ADMIT, [{"id": job_id, **values} for job_id, _ in found])
    return [Wake(job_id, step, batch, row) for job_id, row in found]


def adjust_window(connection: Connection, credential: CredentialState, change: Window, now: float) -> CredentialState:
    """Make room smaller after a refusal for too much in flight, larger after a success."""
    after, shrunk_at = credential.window, credential.shrunk_at
    if change is Window.GROW:
        after = grown(credential.window, credential.window_max)
    elif change is Window.SHRINK:
        in_flight = connection.execute(_COUNT_IN_FLIGHT, {"id": credential.id}).scalar_one()
        after = shrunk(credential.window, in_flight, shrunk_at, now)
        shrunk_at = now if after != credential.window else shrunk_at
    if after == credential.window:
        return credential
    connection.execute(_SET_WINDOW, {"id": credential.id, "window": after, "shrunk_at": shrunk_at})
    return replace(credential, window=after, shrunk_at=shrunk_at)


def finish_batch(connection: Connection, batch_id: str, now: float) -> None:
    """Mark the batch as finished if none of its jobs is left to do or to decide on."""
    connection.execute(_FINISH, {"id": batch_id, "now": now})
