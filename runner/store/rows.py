"""Rows of the tables as the values that decisions are made on."""

from __future__ import annotations

from sqlalchemy import RowMapping

from runner.core.types import Charge, Job, JobState, OutcomeKind, Reason, Step
from runner.store.hot import Row


def job_of(row: Row | RowMapping) -> Job:
    """A row of the job table as a decision sees it."""
    return Job(
        id=row["id"],
        state=JobState(row["state"]),
        step=Step(row["step"]) if row["step"] else None,
        charge=Charge(row["charge"]),
        attempts=row["attempts"],
        last=OutcomeKind(row["last"]) if row["last"] else None,
        recollects=row["recollects"],
        run=row["run"],
        first_sent_at=row["first_sent_at"],
        submitted_at=row["submitted_at"],
        cancel_asked=row["cancel_asked_at"] is not None,
        reason=Reason(row["reason"]) if row["reason"] else None,
        error_type=row["error_type"],
        error_detail=row["error_detail"],
    )
