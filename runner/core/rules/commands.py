"""What a user's commands make of a job that stands still."""

from __future__ import annotations

from dataclasses import replace

from runner.core.expiry import result_deadline
from runner.core.rules.common import at_least_possible, end, key_expired, stay
from runner.core.types import Charge, Job, JobState, Outcome, Policy, Reason, Step, Transition


def resume(job: Job, outcome: Outcome, now: float, policy: Policy) -> Transition:
    """Takes back what is safe: reads cost nothing, and a key within its lifetime cannot be charged twice."""
    if job.submitted_at is not None:
        return stay(job, outcome, state=JobState.QUEUED, step=Step.COLLECT, attempts=0)
    if job.reason is Reason.OUTCOME_UNKNOWN and not key_expired(job, now, policy):
        return stay(job, outcome, state=JobState.PENDING, step=None, attempts=0)
    return stay(job, outcome, reason=job.reason, error_type=job.error_type, error_detail=job.error_detail)


def retry(job: Job, outcome: Outcome, now: float, policy: Policy) -> Transition:
    """Another paid run: a new key, and the old request forgotten."""
    return Transition(state=JobState.PENDING, step=None, charge=Charge.UNBILLED, new_run=True)


def withdraw(job: Job, outcome: Outcome, now: float, policy: Policy) -> Transition:
    """The job is given up where it stands, and nothing more is sent. A key that has gone out may still be charged."""
    charge = job.charge if job.first_sent_at is None else at_least_possible(job.charge)
    ended = end(job, outcome, JobState.CANCELLED, charge, Reason.CANCELLED_BY_USER)
    return replace(ended, error_type=job.error_type, error_detail=job.error_detail)


def ask_to_cancel(job: Job, outcome: Outcome, now: float, policy: Policy) -> Transition:
    """The Router is asked to cancel the request; whether it did shows when the request is read."""
    if job.cancel_asked:
        return stay(job, outcome)
    return stay(job, outcome, step=Step.CANCEL, attempts=0)


def fetch_again(job: Job, outcome: Outcome, now: float, policy: Policy) -> Transition:
    """Media that could not be had are asked for again, while the Router keeps the result: reading it costs nothing."""
    if job.submitted_at is None or now >= result_deadline(job.submitted_at):
        return stay(job, outcome)
    return stay(job, outcome, state=JobState.DOWNLOADING, step=Step.COLLECT, attempts=0, recollects=0)
