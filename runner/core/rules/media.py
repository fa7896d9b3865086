"""Fetching media: a failed download never fails the paid result."""

from __future__ import annotations

from runner.core.rules.common import Rule, backoff, next_attempt, stay, unavailable
from runner.core.types import AssetState, Job, JobState, Outcome, Policy, Step, Transition


def fresh_links(job: Job, outcome: Outcome, now: float, policy: Policy) -> Transition:
    """The result was read once more; its links are tried in place of the dead ones."""
    if not outcome.assets:
        return links_lost(job, outcome, now, policy)
    return stay(job, outcome, step=Step.FETCH, attempts=0, recollects=job.recollects + 1)


def links_lost(job: Job, outcome: Outcome, now: float, policy: Policy) -> Transition:
    """There are no fresh links: the old ones are tried to their end, since only one of them is known to be dead."""
    return stay(job, outcome, step=Step.FETCH, attempts=0, recollects=max(policy.recollects, job.recollects + 1))


def links_unreadable(job: Job, outcome: Outcome, now: float, policy: Policy) -> Transition:
    """The read for fresh links failed; it is repeated, and then the links are given up."""
    if next_attempt(job, outcome) >= policy.read_attempts:
        return links_lost(job, outcome, now, policy)
    return unavailable(job, outcome, now, policy)


def asset_settled(state: AssetState) -> Rule:
    """One media file is saved or given up; the job ends with its last one."""

    def rule(job: Job, outcome: Outcome, now: float, policy: Policy) -> Transition:
        if outcome.assets_left:
            return stay(job, outcome, step=Step.FETCH, attempts=0, asset=state)
        return stay(job, outcome, state=JobState.SUCCEEDED, step=None, attempts=0, asset=state)

    return rule


def asset_interrupted(job: Job, outcome: Outcome, now: float, policy: Policy) -> Transition:
    """The download broke off: the same link again, and after some tries a fresh one."""
    attempts = job.asset_attempts + 1
    if attempts >= policy.asset_attempts:
        return asset_link_dead(job, outcome, now, policy)
    delay = outcome.retry_after or backoff(job, attempts, policy)
    return stay(job, outcome, delay=delay, asset=AssetState.EXPECTED)


def asset_link_dead(job: Job, outcome: Outcome, now: float, policy: Policy) -> Transition:
    """The link does not give the file: the result is read once more for a fresh one, then the file is lost."""
    if job.recollects < policy.recollects:
        return stay(job, outcome, step=Step.COLLECT, attempts=0, asset=AssetState.EXPECTED)
    return asset_settled(AssetState.FAILED)(job, outcome, now, policy)
