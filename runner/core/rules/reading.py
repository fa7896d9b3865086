"""From acceptance to the result."""

from __future__ import annotations

from dataclasses import replace

from runner.core.buckets import RouterError
from runner.core.rules.common import at_least_possible, backoff, end, next_attempt, stay
from runner.core.types import (
    Charge,
    Job,
    JobState,
    Outcome,
    OutcomeKind,
    Pause,
    Policy,
    Reason,
    Step,
    Transition,
    Window,
)


def result(job: Job, outcome: Outcome, now: float, policy: Policy) -> Transition:
    """The run is done and paid for; its media come next."""
    ended = stay(job, outcome, charge=Charge.BILLED, attempts=0, window=Window.GROW)
    if outcome.assets:
        return replace(ended, state=JobState.DOWNLOADING, step=Step.FETCH)
    return replace(ended, state=JobState.SUCCEEDED, step=None)


def not_ready(job: Job, outcome: Outcome, now: float, policy: Policy) -> Transition:
    """Any status that is not the end, also one that this version does not know, means waiting."""
    state = JobState.QUEUED if outcome.status == "IN_QUEUE" else JobState.RUNNING
    delay = outcome.retry_after or policy.poll_interval
    waiting = stay(job, outcome, state=state, step=Step.COLLECT, attempts=0, delay=delay)
    if policy.cancel_after is None or job.submitted_at is None or job.cancel_asked:
        return waiting
    left = max(0.0, job.submitted_at + policy.cancel_after - now)
    return waiting if left > delay else replace(waiting, step=Step.CANCEL, delay=left)


def cancel_answered(job: Job, outcome: Outcome, now: float, policy: Policy) -> Transition:
    """Asked is not done (contract: `cancelRouterModelRequest`): the request is read until it has ended."""
    too_late = outcome.kind is OutcomeKind.CANCEL_TOO_LATE
    delay = 0.0 if too_late else outcome.retry_after or policy.poll_interval
    return stay(job, outcome, step=Step.COLLECT, attempts=0, delay=delay, cancel_asked=True)


def ask_status(job: Job, outcome: Outcome, now: float, policy: Policy) -> Transition:
    """An error of the result read is the run's failure or this read's: only the status tells."""
    attempts = next_attempt(job, outcome, OutcomeKind.RUN_SUCCEEDED)
    if attempts >= policy.read_attempts:
        return end(job, outcome, JobState.HELD, at_least_possible(job.charge), Reason.UNREADABLE)
    return stay(job, outcome, step=Step.STATUS, attempts=attempts, delay=outcome.retry_after or 0.0)


def read_again(job: Job, outcome: Outcome, now: float, policy: Policy) -> Transition:
    """Completed without an error: the result is there, so its failed read is repeated, ever more slowly."""
    attempts = job.attempts
    if job.step is Step.COLLECT:
        # The result read itself says so, and gives no result; otherwise the read that failed was counted already.
        attempts = next_attempt(job, outcome, OutcomeKind.READ_FAILED)
    if attempts >= policy.read_attempts:
        return end(job, outcome, JobState.HELD, at_least_possible(job.charge), Reason.UNREADABLE)
    delay = max(outcome.retry_after or 0.0, backoff(job, max(attempts, 1), policy))
    return stay(job, outcome, step=Step.COLLECT, attempts=attempts, delay=delay)


def run_failed(job: Job, outcome: Outcome, now: float, policy: Policy) -> Transition:
    """The run itself failed or was cancelled; another would be another paid run."""
    cancelled = outcome.error_type == RouterError.CANCELLED
    state = JobState.CANCELLED if cancelled else JobState.FAILED
    ended = end(job, outcome, state, _charge_of_failure(job, outcome.error_type), Reason.RUN_FAILED)
    # The status names the bucket only; the words stood in the read just before it, if that one failed of the same.
    read_just_before = job.error_detail if job.last is OutcomeKind.READ_FAILED else None
    return replace(ended, error_detail=outcome.detail or read_just_before)


def _charge_of_failure(job: Job, error_type: str | None) -> Charge:
    if error_type == RouterError.QUEUE_TIMEOUT:
        return Charge.UNBILLED
    if error_type == RouterError.CONTENT_POLICY_VIOLATION:
        known = {"yes": Charge.BILLED, "no": Charge.UNBILLED}
        return known.get(job.charges_on_policy_rejection, Charge.POSSIBLE)
    return Charge.POSSIBLE


def not_found(job: Job, outcome: Outcome, now: float, policy: Policy) -> Transition:
    """The Router does not know the request that it gave: a few more tries, then it is lost."""
    attempts = next_attempt(job, outcome)
    if attempts >= policy.not_found_attempts:
        return end(job, outcome, JobState.HELD, at_least_possible(job.charge), Reason.REQUEST_LOST)
    return stay(job, outcome, attempts=attempts, delay=backoff(job, attempts, policy))


def gone(job: Job, outcome: Outcome, now: float, policy: Policy) -> Transition:
    """The retention is over: what was generated cannot be had any more."""
    return end(job, outcome, JobState.EXPIRED, at_least_possible(job.charge), Reason.RETENTION_OVER)


def unreachable(job: Job, outcome: Outcome, now: float, policy: Policy) -> Transition:
    """The Router cannot be reached: after some tries nobody else needs to find out as well."""
    attempts = next_attempt(job, outcome)
    if attempts >= policy.unreachable_attempts:
        return stay(job, outcome, attempts=0, pause=Pause("unreachable", whole_credential=True))
    return stay(job, outcome, attempts=attempts, delay=backoff(job, attempts, policy))


def unknown(job: Job, outcome: Outcome, now: float, policy: Policy) -> Transition:
    """No answer that can be used: reads cost nothing, but they do not go on for ever."""
    attempts = next_attempt(job, outcome)
    delay = outcome.retry_after or backoff(job, attempts, policy)
    if job.step is Step.CANCEL and attempts >= policy.submit_attempts:
        # Whoever does not answer to this may still give the result.
        return stay(job, outcome, step=Step.COLLECT, attempts=0, delay=delay, cancel_asked=True)
    if attempts >= policy.read_attempts:
        return end(job, outcome, JobState.HELD, at_least_possible(job.charge), Reason.UNREADABLE)
    return stay(job, outcome, attempts=attempts, delay=delay)
