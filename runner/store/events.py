"""The story of a job: one line for every transition."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, text

from runner.core.types import Job, Outcome, Transition
from runner.store.hot import Hot, Sql

_EVENT = Sql("""
INSERT INTO event (job_id, at, run, kind, state, http_status, call_id, data)
VALUES (:job_id, :at, :run, :kind, :state, :http_status, :call_id, :data)
""")


def write_event(hot: Hot, event: dict[str, Any]) -> None:
    """Add a line to the story of a job."""
    hot.run(_EVENT, event)


def insert_event(connection: Connection, event: dict[str, Any]) -> None:
    """The same, outside the hot path."""
    connection.execute(text(_EVENT.sqlite), event)


def event_of(job: Job, outcome: Outcome, transition: Transition, now: float, **data: object) -> dict[str, Any]:
    """What a transition adds to the story; `data` are further words of the caller's."""
    told: dict[str, object] = {
        "next": transition.step.value if transition.step else None,
        "delay": round(transition.delay, 3) or None,
        "charge": transition.charge.value if transition.charge is not job.charge else None,
        "reason": transition.reason.value if transition.reason else None,
        "error_type": outcome.error_type,
        "detail": outcome.detail,
        "request_id": outcome.handle.request_id if outcome.handle else None,
        "attempt": transition.attempts or None,
        "notes": dict(outcome.notes) or None,
        **data,
    }
    told = {name: value for name, value in told.items() if value is not None}
    return {
        "job_id": job.id,
        "at": now,
        "run": job.run,
        "kind": outcome.kind.value,
        "state": transition.state.value,
        "http_status": outcome.http_status,
        "call_id": outcome.call_id,
        "data": json.dumps(told, ensure_ascii=False) if told else None,
    }
