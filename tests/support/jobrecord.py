"""One row of the job table as a value: what a claim and a transition make of it, without a database."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from runner.core.lifecycle import decide
from runner.core.rules.common import key_expired
from runner.core.types import Charge, Job, JobState, Outcome, OutcomeKind, Pause, Policy, Step, Transition


@dataclass
class JobRecord:
    """A job that is claimed, decided on and moved in the order that the store and the steps keep."""

    job: Job = field(default_factory=lambda: Job(7, JobState.PENDING))
    policy: Policy = field(default_factory=Policy)
    now: float = 1_800_000_000.0
    due_at: float = 0.0
    #: What stops the job's credential or batch until the user has mended it.
    pause: Pause | None = None

    def admit(self) -> Transition:
        """The window lets the job in: only its state, step and due time change."""
        transition = decide(self.job, Outcome(OutcomeKind.ADMITTED), self.now, self.policy)
        self.job = replace(self.job, state=transition.state, step=transition.step)
        self.due_at = self.now + transition.delay
        return transition

    def claim(self, step: Step) -> Job | None:
        """The job for the exchange of `step`; `None` where another step is due.

        A claim to submit counts as a use of the key, and finds out whether an earlier use was never answered.
        """
        if self.job.step is not step:
            return None
        if step is Step.SUBMIT:
            before = self.job.first_sent_at
            charge = self.job.charge if before is None else Charge.POSSIBLE
            self.job = replace(self.job, charge=charge, first_sent_at=self.now if before is None else before)
        return self.job

    def may_send(self) -> bool:
        """Whether the claimed job's key can still not be charged twice."""
        return not key_expired(self.job, self.now, self.policy)

    def apply(self, outcome: Outcome, *, asset_attempts: int = 0) -> Transition:
        """Decide on what came of the claim, and write it."""
        job = replace(self.job, asset_attempts=asset_attempts)
        transition = decide(job, outcome, self.now, self.policy)
        submitted_at = self.job.submitted_at
        if outcome.handle is not None and submitted_at is None:
            submitted_at = self.now
        self.job = replace(
            self.job,
            state=transition.state,
            step=transition.step,
            charge=transition.charge,
            attempts=transition.attempts,
            last=outcome.kind,
            recollects=transition.recollects,
            reason=transition.reason,
            error_type=transition.error_type,
            error_detail=transition.error_detail,
            first_sent_at=None if transition.key_released else self.job.first_sent_at,
            submitted_at=submitted_at,
            cancel_asked=self.job.cancel_asked or transition.cancel_asked,
        )
        self.due_at = self.now + transition.delay
        self.pause = transition.pause or self.pause
        return transition

    def meet(self, outcome: Outcome, *, asset_attempts: int = 0) -> Transition:
        """Claim the step that is due, let `outcome` come of it, and go on to the time of the next."""
        step = self.job.step
        assert step is not None
        self.claim(step)
        transition = self.apply(outcome, asset_attempts=asset_attempts)
        self.now = max(self.now, self.due_at)
        return transition

    def command(self, kind: OutcomeKind) -> Transition:
        """A user's command: it moves the job to another state, or leaves it as it is."""
        transition = decide(self.job, Outcome(kind), self.now, self.policy)
        if transition.state is self.job.state and transition.step is self.job.step:
            return transition
        if transition.new_run:
            self.job = replace(
                self.job, run=self.job.run + 1, first_sent_at=None, submitted_at=None, cancel_asked=False
            )
        self.job = replace(
            self.job,
            state=transition.state,
            step=transition.step,
            charge=transition.charge,
            attempts=0,
            last=kind,
            recollects=0,
            reason=transition.reason,
            error_type=transition.error_type,
            error_detail=transition.error_detail,
        )
        self.due_at = self.now
        return transition
