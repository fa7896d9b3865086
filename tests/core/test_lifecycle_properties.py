"""The life of a job under any order of answers, crashes, repeated messages, jumping clocks and commands."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from runner.core.errors import ImpossibleEvent
from runner.core.lifecycle import TABLE, decide
from runner.core.rules.common import CLOCK_TOLERANCE
from runner.core.types import (
    TERMINAL,
    AssetState,
    Charge,
    Handle,
    Job,
    JobState,
    Outcome,
    OutcomeKind,
    Policy,
    Reason,
    Step,
    Transition,
)
from tests.support.jobrecord import JobRecord

O = OutcomeKind  # noqa: E741  # one letter keeps the tables below readable
S = JobState

DAY = 24 * 3600.0
HANDLE = Handle("req-1", "https://router/s", "https://router/r", "https://router/c")

_ANY_CALL = {
    O.UNAUTHORIZED,
    O.FORBIDDEN,
    O.ACCOUNT_NOT_ENABLED,
    O.RATE_LIMITED,
    O.UNAVAILABLE,
    O.UNREACHABLE,
    O.UNKNOWN,
}
#: What can come of the exchange that each step makes.
ANSWERS: dict[Step, set[OutcomeKind]] = {
    Step.SUBMIT: {
        O.ACCEPTED,
        O.KEY_BUSY,
        O.KEY_CONFLICT,
        O.INSUFFICIENT_CREDITS,
        O.MODEL_NOT_QUEUEABLE,
        O.MODEL_NOT_FOUND,
        O.REJECTED,
        O.BACKLOG_FULL,
        O.CONCURRENCY_LIMIT,
    }
    | _ANY_CALL,
    Step.COLLECT: {
        O.RESULT,
        O.NOT_READY,
        O.READ_FAILED,
        O.RUN_FAILED,
        O.RUN_SUCCEEDED,
        O.REQUEST_NOT_FOUND,
        O.GONE,
        O.STORAGE_FAILED,
        O.STORAGE_AWAY,
    }
    | _ANY_CALL,
    Step.STATUS: {O.NOT_READY, O.RUN_FAILED, O.RUN_SUCCEEDED, O.REQUEST_NOT_FOUND, O.GONE} | _ANY_CALL,
    Step.CANCEL: {O.CANCEL_ASKED, O.CANCEL_TOO_LATE, O.REQUEST_NOT_FOUND, O.GONE} | _ANY_CALL,
    Step.FETCH: {
        O.ASSET_SAVED,
        O.ASSET_INTERRUPTED,
        O.ASSET_LINK_DEAD,
        O.ASSET_REFUSED,
        O.STORAGE_FAILED,
        O.STORAGE_AWAY,
    },
}
#: Half of the answers are of these, so that a life gets as far as its later parts.
LEADING_ON: dict[Step, set[OutcomeKind]] = {
    Step.SUBMIT: {O.ACCEPTED, O.UNKNOWN, O.BACKLOG_FULL},
    Step.COLLECT: {O.RESULT, O.READ_FAILED, O.GONE},
    Step.STATUS: {O.RUN_FAILED, O.RUN_SUCCEEDED},
    Step.CANCEL: {O.CANCEL_ASKED, O.CANCEL_TOO_LATE},
    Step.FETCH: {O.ASSET_SAVED, O.ASSET_LINK_DEAD},
}
#: Answers that only mean time: they pass by themselves, so a job may meet them without end.
WAITING = {O.NOT_READY, O.KEY_BUSY, O.RATE_LIMITED, O.UNAVAILABLE, O.BACKLOG_FULL, O.CONCURRENCY_LIMIT}
#: Answers to a submit after which the Router has, or may have, a request under the key.
MAYBE_TAKEN = {O.ACCEPTED, O.KEY_BUSY, O.KEY_CONFLICT, O.UNKNOWN}
RESTING = TERMINAL | {S.PENDING, S.HELD}

ERROR_TYPES = ["content_policy_violation", "queue_timeout", "cancelled", "provider_error", "internal_error", "novel"]
STATUSES = ["IN_QUEUE", "IN_PROGRESS", "PONDERING"]
NAMED_WAITS = st.none() | st.sampled_from([1.0, 5.0, 3600.0, DAY])


def kinds(answers: Iterable[OutcomeKind]) -> list[OutcomeKind]:
    """In a stable order, so that examples can be found again."""
    return sorted(answers)


class LifeOfAJob(RuleBasedStateMachine):
    """Everything that may happen to one row of the job table, in any order.

    Beside the record stands what an onlooker knows who never saw the table: which keys were sent, and when.
    """

    def __init__(self) -> None:
        super().__init__()
        self.record = JobRecord()
        self.assets: list[int] = []
        #: By run: when its key first went out in a send that may have been taken.
        self.taken_at: dict[int, float] = {}
        #: Runs whose answer said what they cost.
        self.settled: set[int] = set()
        self.retries = 0

    @initialize(catalog=st.sampled_from(["yes", "no", "unknown"]), bound=st.integers(1, 4))
    def begin(self, catalog: str, bound: int) -> None:
        self.record.job = replace(self.record.job, charges_on_policy_rejection=catalog)
        self.record.policy = Policy(
            submit_attempts=bound,
            unreachable_attempts=bound,
            read_attempts=bound,
            not_found_attempts=bound,
            asset_attempts=bound,
        )

    # ---- what happens ----

    @precondition(lambda self: self.is_open())
    @rule(data=st.data())
    def an_exchange_comes_to_something(self, data: st.DataObject) -> None:
        before = self.begin_a_step()
        self.record.claim(before)
        if before is Step.SUBMIT and not self.record.may_send():
            self.moves(Outcome(O.KEY_EXPIRED))
            return
        likely, any_kind = kinds(LEADING_ON[before]), kinds(ANSWERS[before])
        kind = data.draw(st.sampled_from(likely) | st.sampled_from(any_kind), label="answer")
        if before is Step.SUBMIT:
            self.a_key_goes_out(kind in MAYBE_TAKEN)
        self.moves(self.outcome(data, kind))

    @precondition(lambda self: self.is_open())
    @rule(sent=st.booleans(), lease=st.sampled_from([5.0, 60.0, 7200.0]))
    def the_worker_dies_and_the_outcome_is_lost(self, sent: bool, lease: float) -> None:
        step = self.begin_a_step()
        self.record.claim(step)
        if step is Step.SUBMIT and sent and self.record.may_send():
            self.a_key_goes_out(maybe_taken=True)
        self.record.now += lease

    @rule(seconds=st.sampled_from([600.0, 23 * 3600.0, DAY, 7 * DAY]))
    def time_passes(self, seconds: float) -> None:
        self.record.now += seconds

    @rule(seconds=st.sampled_from([1.0, CLOCK_TOLERANCE, 3600.0, 2 * DAY]))
    def the_clock_goes_back(self, seconds: float) -> None:
        self.record.now -= seconds
        # The due time is of the old clock; whoever set it back waits no longer than the new one says.
        self.record.due_at = min(self.record.due_at, self.record.now)

    @precondition(lambda self: self.record.job.state is S.HELD)
    @rule()
    def the_user_resumes(self) -> None:
        before = self.record.job
        self.record.command(O.RESUME)
        after = self.record.job
        assert after.run == before.run
        assert after.charge is before.charge
        assert after.state in {S.HELD, S.PENDING, S.QUEUED}
        if after.state is S.PENDING:
            assert before.reason is Reason.OUTCOME_UNKNOWN
            assert after.first_sent_at == before.first_sent_at
        if after.state is S.HELD:
            assert after == before

    @precondition(lambda self: self.record.job.state in {S.HELD, S.FAILED, S.CANCELLED, S.EXPIRED})
    @rule()
    def the_user_pays_for_another_run(self) -> None:
        self.record.command(O.RETRY)
        self.retries += 1
        self.assets = []
        assert (self.record.job.state, self.record.job.charge) == (S.PENDING, Charge.UNBILLED)

    @precondition(lambda self: self.record.job.state in {S.PENDING, S.SUBMITTING, S.QUEUED, S.RUNNING, S.HELD})
    @rule()
    def the_user_cancels(self) -> None:
        before = self.record.job
        self.record.command(O.CANCEL)
        after = self.record.job
        assert after.run == before.run
        if before.state in {S.QUEUED, S.RUNNING}:
            assert after.step is (Step.COLLECT if before.cancel_asked else Step.CANCEL) or after.step is before.step
        else:
            assert after.state is S.CANCELLED

    # ---- what must hold ----

    @invariant()
    def the_job_is_never_lost(self) -> None:
        job = self.record.job
        if job.state in RESTING:
            assert job.step is None
        else:
            assert job.step is not None
        assert math.isfinite(self.record.due_at)
        assert self.record.due_at - self.record.now <= DAY + 1

    @invariant()
    def a_message_of_another_step_finds_nothing_to_claim(self) -> None:
        job = self.record.job
        for step in Step:
            if step is not job.step:
                assert self.record.claim(step) is None
        assert self.record.job == job

    @invariant()
    def the_first_use_of_a_key_is_remembered_while_the_key_may_have_been_taken(self) -> None:
        job = self.record.job
        if job.run in self.taken_at:
            assert job.first_sent_at is not None
            assert job.first_sent_at <= self.taken_at[job.run] + CLOCK_TOLERANCE

    @invariant()
    def only_a_command_makes_another_key(self) -> None:
        assert self.record.job.run == 1 + self.retries

    @invariant()
    def a_run_that_may_have_been_taken_is_never_shown_as_free(self) -> None:
        job = self.record.job
        if job.state in RESTING and job.run in self.taken_at and job.run not in self.settled:
            assert job.charge is not Charge.UNBILLED

    @invariant()
    def a_result_is_paid_for(self) -> None:
        if self.record.job.state in {S.DOWNLOADING, S.SUCCEEDED}:
            assert self.record.job.charge is Charge.BILLED

    @invariant()
    def what_stands_still_says_why(self) -> None:
        if self.record.job.state in {S.HELD, S.FAILED, S.CANCELLED, S.EXPIRED}:
            assert self.record.job.reason is not None

    # ---- means ----

    def is_open(self) -> bool:
        return self.record.job.state is S.PENDING or self.record.job.step is not None

    def begin_a_step(self) -> Step:
        """What paused the work is mended, the window lets the job in, and its step is due."""
        self.record.pause = None
        self.record.now = max(self.record.now, self.record.due_at)
        if self.record.job.state is S.PENDING:
            self.record.admit()
        step = self.record.job.step
        assert step is not None
        return step

    def a_key_goes_out(self, maybe_taken: bool) -> None:
        run, now = self.record.job.run, self.record.now
        if run in self.taken_at:
            assert now - self.taken_at[run] < DAY
        elif maybe_taken:
            self.taken_at[run] = now

    def outcome(self, data: st.DataObject, kind: OutcomeKind) -> Outcome:
        outcome = Outcome(kind, retry_after=data.draw(NAMED_WAITS, label="Retry-After"))
        if kind is O.ACCEPTED:
            return replace(outcome, handle=HANDLE)
        if kind is O.NOT_READY:
            return replace(outcome, status=data.draw(st.sampled_from(STATUSES), label="status"))
        if kind is O.RUN_FAILED:
            return replace(outcome, error_type=data.draw(st.sampled_from(ERROR_TYPES), label="error type"))
        if kind is O.RESULT:
            if self.record.job.state is S.DOWNLOADING:
                found = data.draw(st.sampled_from([0, len(self.assets)]), label="assets")
                self.assets = [0] * len(self.assets) if found else self.assets
                return replace(outcome, assets=found)
            self.assets = [0] * data.draw(st.integers(0, 3), label="assets")
            return replace(outcome, assets=len(self.assets))
        return replace(outcome, assets_left=len(self.assets) - 1) if kind in ANSWERS[Step.FETCH] else outcome

    def moves(self, outcome: Outcome) -> None:
        claimed = self.record.job
        tried = self.assets[0] if self.assets and claimed.step is Step.FETCH else 0
        made = self.record.apply(outcome, asset_attempts=tried)
        self.check_charge(claimed, outcome, made)
        assert not made.new_run
        assert made.delay >= 0
        # Old links are tried at once where fresh ones were waited for too often: that asks nothing of the Router.
        if outcome.kind in WAITING and made.step not in (None, Step.FETCH):
            assert made.delay > 0
        if claimed.step is Step.FETCH:
            self.settle_asset(made, tried)
        if made.state is S.SUCCEEDED:
            assert not self.assets
        self.offer_again(outcome)

    def offer_again(self, outcome: Outcome) -> None:
        """The same event once more: a state that is past it refuses it."""
        job = self.record.job
        if (job.state, outcome.kind) not in TABLE:
            with pytest.raises(ImpossibleEvent):
                decide(job, outcome, self.record.now, self.record.policy)

    def settle_asset(self, made: Transition, tried: int) -> None:
        if made.asset is AssetState.EXPECTED:
            assert tried < self.record.policy.asset_attempts
            self.assets[0] = tried + 1
        elif made.asset is not None:
            del self.assets[0]

    def check_charge(self, claimed: Job, outcome: Outcome, made: Transition) -> None:
        run = claimed.run
        rank = [Charge.UNBILLED, Charge.POSSIBLE, Charge.BILLED]
        no_charge = outcome.error_type == "queue_timeout" or (
            outcome.error_type == "content_policy_violation" and claimed.charges_on_policy_rejection == "no"
        )
        if outcome.kind is O.RUN_FAILED and claimed.state is not S.DOWNLOADING and no_charge:
            self.settled.add(run)
            assert made.charge is Charge.UNBILLED
        else:
            assert rank.index(made.charge) >= rank.index(claimed.charge)


LifeOfAJob.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestLifeOfAJob = LifeOfAJob.TestCase


# ---- patience has an end -----------------------------------------------------------------------------------------


def lives_of(answers: dict[Step, OutcomeKind], error_type: str | None = None, limit: int = 400) -> JobRecord:
    """A job whose every exchange of a step comes to the same; returns when it rests or its work is paused."""
    record = JobRecord()
    record.admit()
    tried = 0
    for _ in range(limit):
        step = record.job.step
        if step is None or record.pause is not None:
            return record
        kind = answers[step]
        outcome = Outcome(kind, error_type=error_type, handle=HANDLE if kind is O.ACCEPTED else None)
        if kind is O.RESULT:
            outcome, tried = replace(outcome, assets=1), 0
        record.meet(outcome, asset_attempts=tried)
        tried += step is Step.FETCH
    raise AssertionError(f"still {record.job.state} after {limit} exchanges: {answers}")


def failing(step: Step) -> st.SearchStrategy[OutcomeKind]:
    return st.sampled_from(kinds(ANSWERS[step] - WAITING))


@settings(max_examples=200)
@given(
    collect=failing(Step.COLLECT),
    status=failing(Step.STATUS),
    fetch=failing(Step.FETCH),
    error_type=st.sampled_from(ERROR_TYPES),
)
def test_a_router_that_always_answers_alike_brings_every_accepted_job_to_rest(
    collect: OutcomeKind, status: OutcomeKind, fetch: OutcomeKind, error_type: str
) -> None:
    answers = {Step.SUBMIT: O.ACCEPTED, Step.COLLECT: collect, Step.STATUS: status, Step.FETCH: fetch}
    record = lives_of(answers, error_type)
    assert record.job.state in RESTING or record.pause is not None
    assert record.job.run == 1


@pytest.mark.parametrize("submit", kinds(ANSWERS[Step.SUBMIT] - WAITING - {O.ACCEPTED}))
def test_a_submit_that_always_fails_alike_rests_after_a_bounded_number_of_sends(submit: OutcomeKind) -> None:
    policy = Policy()
    record = JobRecord()
    record.admit()
    sends = 0
    while record.job.step is not None:
        record.meet(Outcome(submit))
        sends += 1
        assert sends <= max(policy.submit_attempts, policy.unreachable_attempts)
    assert record.job.state in {S.HELD, S.FAILED, S.PENDING}
    assert (record.job.state is S.PENDING) == (record.pause is not None)


@pytest.mark.parametrize("fetch", kinds(ANSWERS[Step.FETCH]))
@pytest.mark.parametrize("collect_again", kinds(ANSWERS[Step.COLLECT] - {O.RATE_LIMITED, O.UNAVAILABLE}))
def test_fetching_ends_whatever_the_read_for_fresh_links_comes_to(
    fetch: OutcomeKind, collect_again: OutcomeKind
) -> None:
    record = JobRecord()
    record.admit()
    record.meet(Outcome(O.ACCEPTED, handle=HANDLE))
    record.meet(Outcome(O.RESULT, assets=1))
    exchanges = tried = 0
    while record.job.step is not None and record.pause is None:
        if record.job.step is Step.FETCH:
            record.meet(Outcome(fetch), asset_attempts=tried)
            tried += 1
        else:
            tried = 0
            record.meet(Outcome(collect_again, assets=1 if collect_again is O.RESULT else 0))
        exchanges += 1
        assert exchanges <= 40
    assert record.job.state is S.SUCCEEDED or record.pause is not None
    assert record.job.charge is Charge.BILLED


@pytest.mark.parametrize("waiting", kinds(WAITING & ANSWERS[Step.SUBMIT]))
def test_an_answer_that_only_means_time_is_waited_out_and_never_asked_for_in_a_hot_loop(waiting: OutcomeKind) -> None:
    record = JobRecord()
    for _ in range(500):
        if record.job.state is S.PENDING:
            record.admit()
        made = record.meet(Outcome(waiting))
        assert made.delay >= 0.5
        assert made.state in {S.SUBMITTING, S.PENDING}
        assert made.pause is None
    # The key was refused each time, or its first use is remembered.
    assert record.job.first_sent_at is None or record.job.charge is Charge.POSSIBLE


def test_a_key_that_stays_busy_is_waited_for_no_longer_than_it_lives() -> None:
    record = JobRecord()
    record.admit()
    began = record.now
    while record.job.state is S.SUBMITTING:
        record.claim(Step.SUBMIT)
        if record.may_send():
            record.meet(Outcome(O.KEY_BUSY, retry_after=600.0))
        else:
            record.meet(Outcome(O.KEY_EXPIRED))
    assert (record.job.state, record.job.reason) == (S.HELD, Reason.KEY_EXPIRED)
    assert record.job.charge is Charge.POSSIBLE
    assert record.now - began <= DAY
