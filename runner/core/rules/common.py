"""What the rules share: staying, ending, waiting, and the rules that fit any call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from runner.core.types import Charge, Job, JobState, Outcome, Pause, Policy, Reason, Transition

Rule = Callable[[Job, Outcome, float, Policy], Transition]

#: How far two machines' clocks may differ before a first use in the future counts as a clock that jumped, in seconds.
CLOCK_TOLERANCE = 300.0


def key_expired(job: Job, now: float, policy: Policy) -> bool:
    """Whether sending the job's key again could start a second paid run.

    A key is honoured for 24 hours from its first use (contract: `Idempotency-Key`). A first use that lies in the
    future tells nothing of the key's age, so it counts as expired: the user decides.
    """
    if job.first_sent_at is None:
        return False
    return not -CLOCK_TOLERANCE <= now - job.first_sent_at < policy.key_lifetime


def next_attempt(job: Job, outcome: Outcome, *alike: object) -> int:
    """How often in a row the job now met this kind of failure; kinds in `alike` count as the same."""
    return job.attempts + 1 if job.last is outcome.kind or job.last in alike else 1


def backoff(job: Job, attempts: int, policy: Policy) -> float:
    """Seconds before try number `attempts + 1`: doubling, bounded, spread by job so that crowds disperse."""
    ceiling = min(policy.backoff_ceiling, policy.backoff_first * 2.0 ** min(attempts - 1, 30))
    return ceiling * (0.5 + 0.5 * spread(job, attempts))


def spread(job: Job, attempts: int) -> float:
    """A fraction from 0 to 1 that differs between jobs and tries, and is the same each time it is asked for."""
    # Knuth's multiplicative hash: jobs next to each other land far apart.
    return ((job.id * 2654435761 + attempts * 40503) % 4096) / 4096


def stay(job: Job, outcome: Outcome, **changes: object) -> Transition:
    """The same state and step, with what the answer said, and `changes`."""
    base = Transition(
        state=job.state,
        step=job.step,
        charge=job.charge,
        attempts=job.attempts,
        recollects=job.recollects,
        error_type=outcome.error_type,
        error_detail=outcome.detail,
    )
    return replace(base, **changes)  # type: ignore[arg-type]  # replace() itself refuses names that do not exist


def end(job: Job, outcome: Outcome, state: JobState, charge: Charge, reason: Reason | None) -> Transition:
    """No further step until a user's command."""
    return stay(job, outcome, state=state, step=None, charge=charge, reason=reason, attempts=0)


def at_least_possible(charge: Charge) -> Charge:
    """The charge of a job that the Router may have run."""
    return Charge.POSSIBLE if charge is Charge.UNBILLED else charge


def key_released(job: Job) -> bool:
    """Whether a refusal leaves the key unused.

    A refusal before dispatch charges nothing and releases the key, unless an earlier send of the same key was never
    answered: what became of that one is still unknown.
    """
    return job.state is JobState.SUBMITTING and job.charge is Charge.UNBILLED


def cool_down(job: Job, outcome: Outcome, now: float, policy: Policy) -> Transition:
    """The account's rate limit: every call under the credential waits, and they do not all come back at once."""
    attempts = next_attempt(job, outcome)
    named = outcome.retry_after or backoff(job, attempts, policy)
    delay = named + spread(job, attempts)
    return stay(job, outcome, attempts=attempts, cool_down=named, delay=delay, key_released=key_released(job))


def unavailable(job: Job, outcome: Outcome, now: float, policy: Policy) -> Transition:
    """A service behind the Router is away; it comes back without anybody's doing."""
    attempts = next_attempt(job, outcome)
    delay = outcome.retry_after or backoff(job, attempts, policy)
    return stay(job, outcome, attempts=attempts, delay=delay, key_released=key_released(job))


def storage_away(job: Job, outcome: Outcome, now: float, policy: Policy) -> Transition:
    """The store of the media does not answer: after some tries the batch waits for the user, since no other link would
    help."""
    attempts = next_attempt(job, outcome)
    if attempts >= policy.unreachable_attempts:
        return stay(job, outcome, attempts=0, pause=Pause("storage", whole_credential=False))
    return stay(job, outcome, attempts=attempts, delay=backoff(job, attempts, policy))


def pause_credential(reason: str) -> Rule:
    """Every call under the credential stops until the user has mended `reason`; the job keeps its place."""

    def rule(job: Job, outcome: Outcome, now: float, policy: Policy) -> Transition:
        return stay(job, outcome, pause=Pause(reason, whole_credential=True))

    return rule


def pause_batch(reason: str) -> Rule:
    """The batch's work stops until the user has mended `reason`, which is no other batch's; the job keeps its place."""

    def rule(job: Job, outcome: Outcome, now: float, policy: Policy) -> Transition:
        return stay(job, outcome, pause=Pause(reason, whole_credential=False))

    return rule
