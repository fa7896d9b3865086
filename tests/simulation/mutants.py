"""Broken rules, each in one part: the simulation must find a promise that they break."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from runner.assets import AssetSink, Saved
from runner.core.ranges import Begun
from runner.core.types import TERMINAL, Charge, JobState, Outcome, OutcomeKind, Policy, Step, Transition
from runner.core.wire import HttpRequest, Reply
from runner.store.engine import Database
from runner.store.hot import Sql
from runner.store.jobs import JobStore
from runner.store.records import Claim, Wake
from runner.store.upkeep import UpkeepStore
from tasks.steps import STEPS, Router, Runtime
from tests.simulation.workers import Parts, StepOfJob


class _Reaching(JobStore):
    """A store that also does what no store should."""

    def __init__(self, database: Database, **options: Any) -> None:
        super().__init__(database, **options)
        self.reached = database

    def do(self, statement: str, **values: object) -> None:
        """Run a statement in a transaction of its own."""
        with self.reached.hot_write("mischief") as hot:
            hot.run(Sql(statement), values)


class ClaimsWhatIsClaimed(_Reaching):
    """Takes a job that another is acting on."""

    def claim(self, job_id: int, step: Step, **how: Any) -> Claim | Wake | None:
        """Forget the claim, then claim."""
        self.do("UPDATE job SET claim_token = NULL, claim_until = NULL WHERE id = :id", id=job_id)
        return super().claim(job_id, step, **how)


class NeverWaits(JobStore):
    """Does the next step at once, whatever wait was asked for."""

    def apply(
        self, claim: Claim, outcome: Outcome, transition: Transition, now: float, **more: Any
    ) -> list[Wake] | None:
        """Apply without the delay."""
        return super().apply(claim, outcome, replace(transition, delay=0.0), now, **more)


class WarmInTheCold(JobStore):
    """Forgets the cool-down that a rate limit asks for."""

    def apply(
        self, claim: Claim, outcome: Outcome, transition: Transition, now: float, **more: Any
    ) -> list[Wake] | None:
        """Apply without the cool-down."""
        return super().apply(claim, outcome, replace(transition, cool_down=None), now, **more)


class ForgetsCharges(JobStore):
    """Writes that nothing was paid."""

    def apply(
        self, claim: Claim, outcome: Outcome, transition: Transition, now: float, **more: Any
    ) -> list[Wake] | None:
        """Apply with no charge."""
        return super().apply(claim, outcome, replace(transition, charge=Charge.UNBILLED), now, **more)


class ForgetsPauses(JobStore):
    """Leaves out the pause, so that nothing tells why nothing happens."""

    def apply(
        self, claim: Claim, outcome: Outcome, transition: Transition, now: float, **more: Any
    ) -> list[Wake] | None:
        """Apply a pause as an endless delay."""
        if transition.pause is not None:
            transition = replace(transition, pause=None, delay=1e9)
        return super().apply(claim, outcome, transition, now, **more)


class ReleasesUnknownKeys(JobStore):
    """Counts a key as unused whatever became of it: its lifetime begins anew with each send."""

    def apply(
        self, claim: Claim, outcome: Outcome, transition: Transition, now: float, **more: Any
    ) -> list[Wake] | None:
        """Apply and release the key."""
        return super().apply(claim, outcome, replace(transition, key_released=True), now, **more)


class ChangesBodies(JobStore):
    """Sends other bytes each time."""

    def body(self, job_id: int) -> bytes:
        """Bytes with as much white space as there were sends."""
        self._sent = getattr(self, "_sent", 0) + 1
        return super().body(job_id) + b" " * self._sent

    def claim(self, job_id: int, step: Step, **how: Any) -> Claim | Wake | None:
        """A claim whose body is another each time."""
        claim = super().claim(job_id, step, **how)
        return replace(claim, body=self.body(job_id)) if isinstance(claim, Claim) and step is Step.SUBMIT else claim


class OpensWindows(UpkeepStore):
    """Lets in twice as many as may be in flight."""

    def __init__(self, database: Database, jobs: JobStore) -> None:
        super().__init__(database, jobs)
        self._reached = database

    def sweep(self, credential_id: int, now: float, **how: Any) -> list[Wake]:
        """Widen, then sweep."""
        with self._reached.hot_write("mischief") as hot:
            hot.run(Sql("UPDATE credential SET window_size = 2 * window_max"), {})
        return super().sweep(credential_id, now, **how)


class LeavesTheDead(UpkeepStore):
    """Finds no due job: what lost its message is lost."""

    def sweep(self, credential_id: int, now: float, **how: Any) -> list[Wake]:
        """Only what the window lets in."""
        return [wake for wake in super().sweep(credential_id, now, **how) if wake.step is Step.SUBMIT]


class FollowsAnyLink:
    """Follows the Router's links wherever they lead, key in hand."""

    def __init__(self, router: Router) -> None:
        self.router = router
        self.base_url = router.base_url

    def exchange(self, request: HttpRequest) -> Reply:
        """Read requests at another origin."""
        if request.method == "GET":
            request = replace(request, url=request.url.replace("router.invalid", "elsewhere.invalid"))
        return self.router.exchange(request)


@dataclass(frozen=True)
class LosesFiles:
    """Says that a file is saved, and keeps nothing."""

    sink: AssetSink

    def save(self, stem: str, chunks: Iterable[bytes], **how: Any) -> Saved:
        """Keep a file under a name that nobody is told of."""
        return replace(self.sink.save(stem, chunks, **how), path="nowhere.png")

    def save_document(self, stem: str, body: bytes, content_type: str) -> Saved:
        """As it should be."""
        return self.sink.save_document(stem, body, content_type)

    def begun(self, stem: str) -> Begun | None:
        """As it should be."""
        return self.sink.begun(stem)

    def discard(self, stem: str) -> None:
        """As it should be."""
        self.sink.discard(stem)


def _new_key_when_unknown(runtime: Runtime, job_id: int) -> list[Wake]:
    wakes = STEPS[Step.SUBMIT](runtime, job_id)
    assert isinstance(runtime.jobs, _Reaching)
    runtime.jobs.do(
        "UPDATE job SET idempotency_key = idempotency_key || '-x', first_sent_at = NULL "
        "WHERE id = :id AND last = :unknown AND state = 'submitting'",
        id=job_id,
        unknown=OutcomeKind.UNKNOWN.value,
    )
    return wakes


def _works_on_what_has_ended(runtime: Runtime, job_id: int) -> list[Wake]:
    wakes = STEPS[Step.COLLECT](runtime, job_id)
    assert isinstance(runtime.jobs, _Reaching)
    ended = ", ".join(f"'{state.value}'" for state in TERMINAL)
    runtime.jobs.do(
        f"UPDATE job SET state = :again, step = 'collect', wake_at = 0, recollects = 9 "
        f"WHERE id = :id AND state IN ({ended}) AND last <> 'result' AND recollects < 9",
        id=job_id,
        again=JobState.QUEUED.value,
    )
    return wakes


def _steps(**changed: StepOfJob) -> Mapping[Step, StepOfJob]:
    return {**STEPS, **{Step(name): step for name, step in changed.items()}}


#: Where submits are often left without an answer, and the user comes back a day later.
_LOST_FOR_DAYS: Mapping[str, object] = {
    "faults": {"answer lost": 0.95},
    "calm_at": 1000.0,
    "visits": 3,
    "longest_absence": 40 * 3600.0,
    "retries": False,
}


@dataclass(frozen=True)
class Mutant:
    """One broken rule."""

    parts: Callable[[], Parts]
    #: A word of each promise that may show it first.
    shows: tuple[str, ...]
    #: Circumstances in which it matters; those that are not named are drawn.
    where: Mapping[str, object] = field(default_factory=dict)


MUTANTS: Mapping[str, Mutant] = {
    "a claim ignores an existing claim": Mutant(lambda: Parts(jobs=ClaimsWhatIsClaimed), ("two at once",)),
    "an unknown outcome gives a new key": Mutant(
        lambda: Parts(jobs=_Reaching, steps=_steps(submit=_new_key_when_unknown)), ("keys where",)
    ),
    "the sweeper never runs": Mutant(lambda: Parts(sweeps=False), ("stuck",)),
    "the sweeper finds no lost message": Mutant(
        lambda: Parts(upkeep=LeavesTheDead), ("stuck", "circles", "come to rest"), {"faults": {"message lost": 0.5}}
    ),
    "a wait that was asked for is not waited": Mutant(lambda: Parts(jobs=NeverWaits), ("before the time",)),
    "a cool-down is forgotten": Mutant(lambda: Parts(jobs=WarmInTheCold), ("cools down",)),
    "charges are forgotten": Mutant(lambda: Parts(jobs=ForgetsCharges), ("paid for",)),
    "a pause is not told of": Mutant(
        lambda: Parts(jobs=ForgetsPauses), ("stuck", "come to rest"), {"faults": {"out of credits": 0.5}}
    ),
    "a key never grows old": Mutant(
        lambda: Parts(policy=Policy(key_lifetime=1e12)), ("after its lifetime",), _LOST_FOR_DAYS
    ),
    "a key grows young again": Mutant(
        lambda: Parts(jobs=ReleasesUnknownKeys), ("after its lifetime", "paid for"), _LOST_FOR_DAYS
    ),
    "the body changes": Mutant(lambda: Parts(jobs=ChangesBodies), ("the bytes",)),
    "the window opens too far": Mutant(lambda: Parts(upkeep=OpensWindows), ("in flight",)),
    "links are followed to another origin": Mutant(lambda: Parts(router=FollowsAnyLink), ("another origin",)),
    "a saved file is lost": Mutant(lambda: Parts(sink=LosesFiles), ("not what was saved",)),
    "a job leaves its end": Mutant(
        lambda: Parts(jobs=_Reaching, steps=_steps(collect=_works_on_what_has_ended)), ("left an end", "had succeeded")
    ),
}
