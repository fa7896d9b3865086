"""The window: how many jobs of a credential may be in flight, and who comes in next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, text

from runner.core.lifecycle import decide
from runner.core.types import Job, JobState, Outcome, OutcomeKind, Policy, Window
from runner.core.window import grown, shrunk
from runner.store.records import Wake
from runner.store.tables import IN_FLIGHT_SQL

#: What admission makes of a pending job, decided once for all of them.
_ADMITTED = decide(Job(0, JobState.PENDING), Outcome(OutcomeKind.ADMITTED), 0.0, Policy())

_CREDENTIAL = "SELECT window_size, window_max, shrunk_at, cool_down_until, blocked FROM credential WHERE id = :id"
_SELECT_CREDENTIAL = {
    "sqlite": text(_CREDENTIAL),
    "postgresql": text(_CREDENTIAL + " FOR UPDATE"),
}
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


def admit_within(connection: Connection, credential_id: int, now: float, name_of: Callable[[str], str]) -> list[Wake]:
    """Let pending jobs into the window until it is full, oldest batch first, in the manifest's order.

    Locks the credential, so that two transactions never fill the same place.
    """
    dialect = connection.dialect.name
    credential = connection.execute(_SELECT_CREDENTIAL[dialect], {"id": credential_id}).mappings().one()
    if credential["blocked"] is not None or (credential["cool_down_until"] or 0.0) > now:
        return []
    room = int(credential["window_size"]) - connection.execute(_COUNT_IN_FLIGHT, {"id": credential_id}).scalar_one()
    wakes: list[Wake] = []
    if room <= 0:
        return wakes
    for batch_id, started_at in connection.execute(_ACTIVE_BATCHES, {"id": credential_id}).all():
        values = {"batch": batch_id, "now": now, "room": room - len(wakes)}
        found = connection.execute(_SELECT_PENDING[dialect], values).all()
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


def adjust_window(connection: Connection, credential_id: int, change: Window, now: float) -> None:
    """Make room smaller after a refusal for too much in flight, larger after a success."""
    if change is Window.KEEP:
        return
    dialect = connection.dialect.name
    row = connection.execute(_SELECT_CREDENTIAL[dialect], {"id": credential_id}).mappings().one()
    before, largest, shrunk_at = row["window_size"], row["window_max"], row["shrunk_at"]
    if change is Window.GROW:
        after = grown(before, largest)
    else:
        in_flight = connection.execute(_COUNT_IN_FLIGHT, {"id": credential_id}).scalar_one()
        after = shrunk(before, in_flight, shrunk_at, now)
        shrunk_at = now if after != before else shrunk_at
    if after != before:
        connection.execute(_SET_WINDOW, {"id": credential_id, "window": after, "shrunk_at": shrunk_at})


def finish_batch(connection: Connection, batch_id: str, now: float) -> None:
    """Mark the batch as finished if none of its jobs is left to do or to decide on."""
    connection.execute(_FINISH, {"id": batch_id, "now": now})
