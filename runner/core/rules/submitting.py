"""From the window to the Router's acceptance: what releases a key, what holds it, what only time can tell."""

from __future__ import annotations

from dataclasses import replace

from runner.core.rules.common import (
    Rule,
    at_least_possible,
    backoff,
    end,
    key_released,
    next_attempt,
    stay,
)
from runner.core.types import Charge, Job, JobState, Outcome, Pause, Policy, Reason, Step, Transition, Window


def admit(job: Job, outcome: Outcome, now: float, policy: Policy) -> Transition:
    """The window has a place for the job."""
    return stay(job, outcome, state=JobState.SUBMITTING, step=Step.SUBMIT)


def withdraw(job: Job, outcome: Outcome, now: float, policy: Policy) -> Transition:
    """Nobody is there to send the job, so its place in the window is another's; a key that has gone out keeps it."""
    if job.first_sent_at is not None:
        return stay(job, outcome)
    return _release(job, outcome)


def accepted(job: Job, outcome: Outcome, now: float, policy: Policy) -> Transition:
    """The Router has a request; what it will cost is not known before it ends."""
    queued = stay(job, outcome, state=JobState.QUEUED, step=Step.COLLECT, attempts=0, charge=Charge.POSSIBLE)
    return replace(queued, delay=outcome.retry_after or 0.0)


def wait_for_key(job: Job, outcome: Outcome, now: float, policy: Policy) -> Transition:
    """The first send of this key is still being admitted: there is a request, so money may be under way."""
    delay = outcome.retry_after or policy.poll_interval
    return stay(job, outcome, charge=at_least_possible(job.charge), delay=delay)


def hold(reason: Reason) -> Rule:
    """The job waits for the user, since going on may cost a second time."""

    def rule(job: Job, outcome: Outcome, now: float, policy: Policy) -> Transition:
        return end(job, outcome, JobState.HELD, at_least_possible(job.charge), reason)

    return rule


def release_and_pause(reason: str, *, whole_credential: bool) -> Rule:
    """Back to waiting with the same key, and no other job is sent into the same refusal."""

    def rule(job: Job, outcome: Outcome, now: float, policy: Policy) -> Transition:
        return _release(job, outcome, pause=Pause(reason, whole_credential))

    return rule


def release_and_shrink(job: Job, outcome: Outcome, now: float, policy: Policy) -> Transition:
    """The account has as much in flight as it may: fewer, and this one later."""
    attempts = next_attempt(job, outcome)
    delay = outcome.retry_after or backoff(job, attempts, policy)
    return _release(job, outcome, attempts=attempts, delay=delay, window=Window.SHRINK)


def refused(job: Job, outcome: Outcome, now: float, policy: Policy) -> Transition:
    """The request itself is refused: the same again would be refused again."""
    return end(job, outcome, JobState.FAILED, job.charge, Reason.REFUSED)


def unreachable(job: Job, outcome: Outcome, now: float, policy: Policy) -> Transition:
    """Nothing left the machine, so nothing can have been charged."""
    attempts = next_attempt(job, outcome)
    if attempts >= policy.unreachable_attempts:
        return _release(job, outcome, pause=Pause("unreachable", whole_credential=True))
    delay = backoff(job, attempts, policy)
    return stay(job, outcome, attempts=attempts, delay=delay, key_released=key_released(job))


def unknown(job: Job, outcome: Outcome, now: float, policy: Policy) -> Transition:
    """The Router may have the request: only the very same key and bytes may go out again, and not for ever."""
    attempts = next_attempt(job, outcome)
    if attempts >= policy.submit_attempts:
        return end(job, outcome, JobState.HELD, Charge.POSSIBLE, Reason.OUTCOME_UNKNOWN)
    delay = outcome.retry_after or backoff(job, attempts, policy)
    return stay(job, outcome, attempts=attempts, charge=at_least_possible(job.charge), delay=delay)


def _release(job: Job, outcome: Outcome, **changes: object) -> Transition:
    waiting = {"state": JobState.PENDING, "step": None, "attempts": 0, "key_released": key_released(job)}
    return stay(job, outcome, **{**waiting, **changes})
