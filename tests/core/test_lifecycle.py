"""The life of a job, row by row: what each event makes of each state, and where each patience ends."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from runner.core.errors import ImpossibleEvent
from runner.core.lifecycle import TABLE, decide
from runner.core.rules.common import CLOCK_TOLERANCE, backoff, key_expired
from runner.core.types import (
    IN_FLIGHT,
    TERMINAL,
    AssetState,
    Charge,
    Handle,
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
from tests.support.jobrecord import JobRecord

O = OutcomeKind  # noqa: E741  # one letter keeps the table a table
S = JobState

NOW = 1_800_000_000.0
POLICY = Policy()
HOUR = 3600.0
HANDLE = Handle("req-1", "https://router/s", "https://router/r", "https://router/c")

PENDING = Job(7, S.PENDING)
#: Under its first send, and under one after a send that was never answered.
SENDING = Job(7, S.SUBMITTING, Step.SUBMIT, first_sent_at=NOW)
UNSURE = replace(SENDING, charge=Charge.POSSIBLE, first_sent_at=NOW - 60)
QUEUED = Job(7, S.QUEUED, Step.COLLECT, Charge.POSSIBLE, first_sent_at=NOW - 60, submitted_at=NOW - 50)
RUNNING = replace(QUEUED, state=S.RUNNING)
FETCHING = replace(QUEUED, state=S.DOWNLOADING, step=Step.FETCH, charge=Charge.BILLED)
#: The result is being read again for fresh links.
REREADING = replace(FETCHING, step=Step.COLLECT)
HELD_UNKNOWN = Job(7, S.HELD, charge=Charge.POSSIBLE, first_sent_at=NOW - 60, reason=Reason.OUTCOME_UNKNOWN)
HELD_WITH_REQUEST = replace(HELD_UNKNOWN, submitted_at=NOW - 50, reason=Reason.UNREADABLE)

Wait = float | tuple[float, float]


@dataclass(frozen=True)
class Row:
    """One expectation: the whole transition, its delay apart, since some delays are spread."""

    job: Job
    kind: OutcomeKind
    condition: str
    outcome: Outcome
    then: Transition
    wait: Wait = 0.0

    @property
    def name(self) -> str:
        return f"{self.job.state}, {self.kind}{', ' + self.condition if self.condition else ''}"


def said(kind: OutcomeKind, **more: object) -> Outcome:
    """An outcome whose words must be kept."""
    return replace(Outcome(kind, error_type="its_type", detail="its words"), **more)  # type: ignore[arg-type]


def then(state: JobState, step: Step | None, charge: Charge, **more: object) -> Transition:
    kept = Transition(state, step, charge, error_type="its_type", error_detail="its words")
    return replace(kept, **more)  # type: ignore[arg-type]


def row(
    job: Job, kind: OutcomeKind, expected: Transition, *, when: str = "", wait: Wait = 0.0, **answer: object
) -> Row:
    return Row(job, kind, when, said(kind, **answer), expected, wait)


#: Half to the whole of the first backoff.
FIRST_BACKOFF = (0.5, 1.0)


def pending_rows() -> list[Row]:
    return [row(PENDING, O.ADMITTED, then(S.SUBMITTING, Step.SUBMIT, Charge.UNBILLED))]


def submitting_rows() -> list[Row]:
    def released(charge: Charge, **more: object) -> Transition:
        return then(S.PENDING, None, charge, key_released=charge is Charge.UNBILLED, **more)

    def waits(charge: Charge, **more: object) -> Transition:
        return then(S.SUBMITTING, Step.SUBMIT, charge, **more)

    def held(reason: Reason) -> Transition:
        return then(S.HELD, None, Charge.POSSIBLE, reason=reason)

    def failed(charge: Charge) -> Transition:
        return then(S.FAILED, None, charge, reason=Reason.REFUSED)

    accepted = then(S.QUEUED, Step.COLLECT, Charge.POSSIBLE)
    rows = [
        row(replace(SENDING, first_sent_at=None), O.WITHDRAWN, released(Charge.UNBILLED)),
        row(replace(SENDING, first_sent_at=NOW), O.WITHDRAWN, waits(SENDING.charge), when="sent before"),
        row(SENDING, O.ACCEPTED, accepted, handle=HANDLE),
        row(SENDING, O.ACCEPTED, accepted, when="first read later", handle=HANDLE, retry_after=9.0, wait=9.0),
        row(UNSURE, O.ACCEPTED, accepted, when="replayed", handle=replace(HANDLE, replayed=True)),
        row(SENDING, O.KEY_BUSY, waits(Charge.POSSIBLE), retry_after=2.0, wait=2.0),
        row(SENDING, O.KEY_BUSY, waits(Charge.POSSIBLE), when="no wait named", wait=POLICY.poll_interval),
        row(SENDING, O.KEY_CONFLICT, held(Reason.KEY_CONFLICT)),
        row(SENDING, O.KEY_EXPIRED, held(Reason.KEY_EXPIRED)),
        row(
            SENDING,
            O.UNKNOWN,
            waits(Charge.POSSIBLE, attempts=1),
            wait=FIRST_BACKOFF,
        ),
        row(SENDING, O.UNKNOWN, waits(Charge.POSSIBLE, attempts=1), when="wait named", retry_after=3.0, wait=3.0),
    ]
    # A refusal releases the key, but says nothing about an earlier send that was never answered.
    for job, charge, when in [(SENDING, Charge.UNBILLED, "first send"), (UNSURE, Charge.POSSIBLE, "unsure")]:
        unused = charge is Charge.UNBILLED
        limited = waits(charge, attempts=1, cool_down=20.0, key_released=unused)
        full = released(charge, attempts=1, window=Window.SHRINK)
        rows += [
            row(job, O.INSUFFICIENT_CREDITS, released(charge, pause=Pause("insufficient_credits", False)), when=when),
            row(job, O.UNAUTHORIZED, released(charge, pause=Pause("unauthorized", True)), when=when),
            row(job, O.FORBIDDEN, released(charge, pause=Pause("forbidden", True)), when=when),
            row(job, O.ACCOUNT_NOT_ENABLED, released(charge, pause=Pause("not_enabled", True)), when=when),
            row(job, O.MODEL_NOT_QUEUEABLE, failed(charge), when=when),
            row(job, O.MODEL_NOT_FOUND, failed(charge), when=when),
            row(job, O.REJECTED, failed(charge), when=when),
            row(job, O.BACKLOG_FULL, full, when=when, retry_after=4.0, wait=4.0),
            row(job, O.BACKLOG_FULL, full, when=f"{when}, no wait named", wait=FIRST_BACKOFF),
            row(job, O.CONCURRENCY_LIMIT, full, when=when, retry_after=4.0, wait=4.0),
            row(job, O.RATE_LIMITED, limited, when=when, retry_after=20.0, wait=(20.0, 21.0)),
            row(
                job,
                O.UNAVAILABLE,
                waits(charge, attempts=1, key_released=unused),
                when=when,
                retry_after=20.0,
                wait=20.0,
            ),
            row(
                job,
                O.UNREACHABLE,
                waits(charge, attempts=1, key_released=unused),
                when=when,
                wait=FIRST_BACKOFF,
            ),
        ]
    return rows


def tried_to_write(job: Job) -> Job:
    return replace(job, attempts=POLICY.unreachable_attempts - 1, last=O.STORAGE_AWAY)


def reading_rows(job: Job) -> list[Row]:
    def stays(**more: object) -> Transition:
        return then(job.state, Step.COLLECT, Charge.POSSIBLE, **more)

    def ended(state: JobState, charge: Charge, reason: Reason) -> Transition:
        return then(state, None, charge, reason=reason)

    at_status = replace(job, step=Step.STATUS)
    paid = then(S.DOWNLOADING, Step.FETCH, Charge.BILLED, window=Window.GROW)
    waiting = then(S.RUNNING, Step.COLLECT, Charge.POSSIBLE)
    failed = ended(S.FAILED, Charge.POSSIBLE, Reason.RUN_FAILED)
    cancelled = replace(ended(S.CANCELLED, Charge.POSSIBLE, Reason.RUN_FAILED), error_type="cancelled")
    return [
        row(job, O.RESULT, paid, when="with media", assets=2),
        row(job, O.RESULT, replace(paid, state=S.SUCCEEDED, step=None), when="nothing to show"),
        row(job, O.NOT_READY, replace(waiting, state=S.QUEUED), when="in queue", status="IN_QUEUE", wait=2.0),
        row(job, O.NOT_READY, waiting, when="in progress", status="IN_PROGRESS", retry_after=6.0, wait=6.0),
        row(job, O.NOT_READY, waiting, when="a word of the future", status="PONDERING", wait=POLICY.poll_interval),
        row(at_status, O.NOT_READY, waiting, when="said by the status", status="IN_PROGRESS", wait=2.0),
        row(job, O.READ_FAILED, then(job.state, Step.STATUS, Charge.POSSIBLE, attempts=1)),
        row(at_status, O.RUN_FAILED, failed),
        row(at_status, O.RUN_FAILED, cancelled, when="cancelled", error_type="cancelled"),
        row(at_status, O.RUN_SUCCEEDED, stays(), wait=FIRST_BACKOFF),
        row(at_status, O.RUN_SUCCEEDED, stays(), when="wait named", retry_after=15.0, wait=15.0),
        row(job, O.REQUEST_NOT_FOUND, stays(attempts=1), wait=FIRST_BACKOFF),
        row(job, O.GONE, ended(S.EXPIRED, Charge.POSSIBLE, Reason.RETENTION_OVER)),
        row(job, O.UNAUTHORIZED, stays(pause=Pause("unauthorized", True))),
        row(job, O.FORBIDDEN, stays(pause=Pause("forbidden", True))),
        row(job, O.ACCOUNT_NOT_ENABLED, stays(pause=Pause("not_enabled", True))),
        row(job, O.STORAGE_FAILED, stays(pause=Pause("storage", False))),
        row(job, O.STORAGE_AWAY, stays(attempts=1), wait=FIRST_BACKOFF),
        row(tried_to_write(job), O.STORAGE_AWAY, stays(pause=Pause("storage", False)), when="tried out"),
        row(job, O.RATE_LIMITED, stays(attempts=1, cool_down=20.0), retry_after=20.0, wait=(20.0, 21.0)),
        row(job, O.UNAVAILABLE, stays(attempts=1), retry_after=20.0, wait=20.0),
        row(job, O.UNAVAILABLE, stays(attempts=1), when="no wait named", wait=FIRST_BACKOFF),
        row(job, O.UNREACHABLE, stays(attempts=1), wait=FIRST_BACKOFF),
        row(job, O.UNKNOWN, stays(attempts=1), wait=FIRST_BACKOFF),
        row(
            at_status,
            O.UNKNOWN,
            replace(stays(attempts=1), step=Step.STATUS),
            when="asked for the status",
            wait=FIRST_BACKOFF,
        ),
    ]


def downloading_rows() -> list[Row]:
    def stays(step: Step, **more: object) -> Transition:
        return then(S.DOWNLOADING, step, Charge.BILLED, **more)

    def ended(**more: object) -> Transition:
        return then(S.SUCCEEDED, None, Charge.BILLED, **more)

    used_up = replace(FETCHING, recollects=1)
    again = stays(Step.COLLECT, asset=AssetState.EXPECTED)
    lost = stays(Step.FETCH, recollects=1)
    unreadable = stays(Step.COLLECT, attempts=1)
    last_try = replace(FETCHING, asset_attempts=POLICY.asset_attempts - 1)
    rows = [
        row(FETCHING, O.ASSET_SAVED, stays(Step.FETCH, asset=AssetState.SAVED), when="others left", assets_left=1),
        row(FETCHING, O.ASSET_SAVED, ended(asset=AssetState.SAVED), when="the last"),
        row(FETCHING, O.ASSET_REFUSED, stays(Step.FETCH, asset=AssetState.FAILED), when="others left", assets_left=1),
        row(FETCHING, O.ASSET_REFUSED, ended(asset=AssetState.FAILED), when="the last"),
        row(FETCHING, O.ASSET_INTERRUPTED, stays(Step.FETCH, asset=AssetState.EXPECTED), wait=FIRST_BACKOFF),
        row(
            FETCHING,
            O.ASSET_INTERRUPTED,
            stays(Step.FETCH, asset=AssetState.EXPECTED),
            when="wait named",
            retry_after=5.0,
            wait=5.0,
        ),
        row(last_try, O.ASSET_INTERRUPTED, again, when="tried out"),
        row(
            replace(last_try, recollects=1),
            O.ASSET_INTERRUPTED,
            ended(recollects=1, asset=AssetState.FAILED),
            when="tried out with fresh links too",
        ),
        row(FETCHING, O.ASSET_LINK_DEAD, again),
        row(
            used_up,
            O.ASSET_LINK_DEAD,
            ended(recollects=1, asset=AssetState.FAILED),
            when="fresh links had, the last",
        ),
        row(
            used_up,
            O.ASSET_LINK_DEAD,
            stays(Step.FETCH, recollects=1, asset=AssetState.FAILED),
            when="fresh links had, others left",
            assets_left=2,
        ),
        row(FETCHING, O.STORAGE_FAILED, stays(Step.FETCH, pause=Pause("storage", False))),
        row(FETCHING, O.STORAGE_AWAY, stays(Step.FETCH, attempts=1), wait=FIRST_BACKOFF),
        row(
            tried_to_write(FETCHING),
            O.STORAGE_AWAY,
            stays(Step.FETCH, pause=Pause("storage", False)),
            when="tried out",
        ),
        row(REREADING, O.RESULT, stays(Step.FETCH, recollects=1), when="with media", assets=1),
        row(REREADING, O.RESULT, lost, when="with none any more"),
        row(REREADING, O.UNAUTHORIZED, stays(Step.COLLECT, pause=Pause("unauthorized", True))),
        row(REREADING, O.FORBIDDEN, stays(Step.COLLECT, pause=Pause("forbidden", True))),
        row(REREADING, O.ACCOUNT_NOT_ENABLED, stays(Step.COLLECT, pause=Pause("not_enabled", True))),
        row(
            REREADING,
            O.RATE_LIMITED,
            stays(Step.COLLECT, attempts=1, cool_down=20.0),
            retry_after=20.0,
            wait=(20.0, 21.0),
        ),
        row(REREADING, O.UNAVAILABLE, unreadable, retry_after=20.0, wait=20.0),
        row(REREADING, O.UNREACHABLE, unreadable, wait=FIRST_BACKOFF),
    ]
    for kind in (O.NOT_READY, O.READ_FAILED, O.RUN_SUCCEEDED, O.UNKNOWN):
        rows.append(row(REREADING, kind, unreadable, wait=FIRST_BACKOFF))
        tried_out = replace(REREADING, attempts=POLICY.read_attempts - 1, last=kind)
        rows.append(row(tried_out, kind, lost, when="tried out"))
    rows += [row(REREADING, kind, lost) for kind in (O.RUN_FAILED, O.REQUEST_NOT_FOUND, O.GONE)]
    return rows


def command_rows() -> list[Row]:
    new_run = Transition(S.PENDING, None, Charge.UNBILLED, new_run=True)
    collects = Transition(S.QUEUED, Step.COLLECT, Charge.POSSIBLE)
    conflict = replace(
        HELD_UNKNOWN, reason=Reason.KEY_CONFLICT, error_type="invalid_input", error_detail="used for another request"
    )
    stays_put = Transition(
        S.HELD,
        None,
        Charge.POSSIBLE,
        reason=Reason.KEY_CONFLICT,
        error_type="invalid_input",
        error_detail="used for another request",
    )
    resume, retry = Outcome(O.RESUME), Outcome(O.RETRY)
    rows = [
        Row(HELD_WITH_REQUEST, O.RESUME, "with a request", resume, collects),
        Row(HELD_UNKNOWN, O.RESUME, "key still safe", resume, Transition(S.PENDING, None, Charge.POSSIBLE)),
        Row(conflict, O.RESUME, "key conflict", resume, stays_put),
        Row(HELD_WITH_REQUEST, O.RETRY, "", retry, new_run),
    ]
    done = replace(FETCHING, state=S.SUCCEEDED, step=None)
    again = Transition(S.DOWNLOADING, Step.COLLECT, Charge.BILLED)
    rows += [
        Row(done, O.RESUME, "media lost, result kept", resume, again),
        Row(
            replace(done, submitted_at=NOW - 24 * HOUR),
            O.RESUME,
            "media lost, result gone",
            resume,
            Transition(S.SUCCEEDED, None, Charge.BILLED),
        ),
    ]
    for state in (S.FAILED, S.CANCELLED, S.EXPIRED):
        job = replace(QUEUED, state=state, step=None, reason=Reason.RUN_FAILED, error_type="provider_error")
        rows.append(Row(job, O.RETRY, "", retry, new_run))
    return rows


def cancel_rows() -> list[Row]:
    cancel = Outcome(O.CANCEL)

    def ended(charge: Charge, **more: object) -> Transition:
        given_up = Transition(S.CANCELLED, None, charge, reason=Reason.CANCELLED_BY_USER)
        return replace(given_up, **more)  # type: ignore[arg-type]  # fields of Transition

    rows = [
        Row(PENDING, O.CANCEL, "never sent", cancel, ended(Charge.UNBILLED)),
        Row(replace(PENDING, first_sent_at=NOW), O.CANCEL, "sent before", cancel, ended(Charge.POSSIBLE)),
        Row(replace(SENDING, first_sent_at=None), O.CANCEL, "never sent", cancel, ended(Charge.UNBILLED)),
        Row(SENDING, O.CANCEL, "sent", cancel, ended(Charge.POSSIBLE)),
        Row(replace(HELD_UNKNOWN, error_type="t"), O.CANCEL, "", cancel, ended(Charge.POSSIBLE, error_type="t")),
    ]
    for job in (QUEUED, RUNNING):
        asks = Transition(job.state, Step.CANCEL, Charge.POSSIBLE)
        asked = replace(job, cancel_asked=True)
        waits = Transition(job.state, Step.COLLECT, Charge.POSSIBLE)
        asking, answered = replace(job, step=Step.CANCEL), then(job.state, Step.COLLECT, Charge.POSSIBLE)
        settled = replace(answered, cancel_asked=True)
        rows += [
            Row(job, O.CANCEL, "", cancel, asks),
            Row(asked, O.CANCEL, "asked before", cancel, waits),
            row(asking, O.CANCEL_ASKED, settled, wait=POLICY.poll_interval),
            row(asking, O.CANCEL_ASKED, settled, when="wait named", retry_after=9.0, wait=9.0),
            row(asking, O.CANCEL_TOO_LATE, settled),
            row(
                asking,
                O.UNKNOWN,
                replace(answered, step=Step.CANCEL, attempts=1),
                when="of a cancel",
                wait=FIRST_BACKOFF,
            ),
            row(
                replace(asking, attempts=POLICY.submit_attempts - 1, last=O.UNKNOWN),
                O.UNKNOWN,
                settled,
                when="of a cancel, tried out",
                wait=(POLICY.backoff_first, POLICY.backoff_ceiling),
            ),
        ]
    return rows


ROWS = [
    *pending_rows(),
    *submitting_rows(),
    *reading_rows(QUEUED),
    *reading_rows(RUNNING),
    *downloading_rows(),
    *command_rows(),
    *cancel_rows(),
]


def test_every_row_of_the_table_has_an_expectation_and_nothing_else_has() -> None:
    assert {(expected.job.state, expected.kind) for expected in ROWS} == set(TABLE)


LIMITED = replace(POLICY, cancel_after=60.0)


@pytest.mark.parametrize(
    ("accepted_ago", "named", "step", "delay"),
    [
        (10.0, 5.0, Step.COLLECT, 5.0),
        # The limit comes before the next read.
        (10.0, 80.0, Step.CANCEL, 50.0),
        (60.0, 5.0, Step.CANCEL, 0.0),
        (3600.0, None, Step.CANCEL, 0.0),
    ],
)
def test_a_request_that_takes_longer_than_its_limit_is_to_be_cancelled(
    accepted_ago: float, named: float | None, step: Step, delay: float
) -> None:
    job = replace(QUEUED, submitted_at=NOW - accepted_ago)
    made = decide(job, Outcome(O.NOT_READY, status="IN_PROGRESS", retry_after=named), NOW, LIMITED)
    assert (made.state, made.step, made.delay) == (S.RUNNING, step, delay)


def test_it_is_asked_for_once_only() -> None:
    job = replace(QUEUED, submitted_at=NOW - 3600, cancel_asked=True)
    made = decide(job, Outcome(O.NOT_READY, status="IN_PROGRESS", retry_after=5.0), NOW, LIMITED)
    assert (made.step, made.delay) == (Step.COLLECT, 5.0)


def test_no_two_expectations_are_of_the_same_name() -> None:
    assert len({expected.name for expected in ROWS}) == len(ROWS)


@pytest.mark.parametrize("expected", ROWS, ids=lambda expected: expected.name)
def test_the_event_makes_of_the_state(expected: Row) -> None:
    made = decide(expected.job, expected.outcome, NOW, POLICY)
    assert replace(made, delay=0.0) == expected.then
    if made.step is not None or made.state is S.PENDING:
        low, high = expected.wait if isinstance(expected.wait, tuple) else (expected.wait, expected.wait)
        assert low <= made.delay <= high


@pytest.mark.parametrize("expected", ROWS, ids=lambda expected: expected.name)
def test_only_a_job_that_stands_still_has_no_step(expected: Row) -> None:
    made = decide(expected.job, expected.outcome, NOW, POLICY)
    assert (made.step is None) == (made.state in TERMINAL | {S.PENDING, S.HELD})


@pytest.mark.parametrize(
    ("state", "kind"),
    [(state, kind) for state in JobState for kind in OutcomeKind if (state, kind) not in TABLE],
)
def test_an_event_that_a_state_does_not_know_raises_and_names_both(state: JobState, kind: OutcomeKind) -> None:
    with pytest.raises(ImpossibleEvent) as raised:
        decide(Job(7, state), Outcome(kind), NOW, POLICY)
    assert (raised.value.state, raised.value.event) == (state, kind)
    assert state.value in str(raised.value)
    assert kind.value in str(raised.value)


@pytest.mark.parametrize("kind", [kind for kind in OutcomeKind if kind is not O.RESUME])
def test_what_succeeded_knows_no_event_but_a_resume_of_its_media(kind: OutcomeKind) -> None:
    assert (S.SUCCEEDED, kind) not in TABLE


@pytest.mark.parametrize("state", sorted(IN_FLIGHT | {S.DOWNLOADING, S.PENDING}))
@pytest.mark.parametrize("kind", [O.RESUME, O.RETRY])
def test_a_command_moves_nothing_that_is_under_way(state: JobState, kind: OutcomeKind) -> None:
    assert (state, kind) not in TABLE


# ---- submitting: how far patience goes ---------------------------------------------------------------------------


def admitted() -> JobRecord:
    record = JobRecord()
    record.admit()
    return record


def accepted() -> JobRecord:
    record = admitted()
    record.meet(Outcome(O.ACCEPTED, handle=HANDLE))
    return record


def downloading(assets: int = 1) -> JobRecord:
    record = accepted()
    record.meet(Outcome(O.RESULT, assets=assets))
    return record


def test_a_submit_never_answered_is_sent_again_with_its_key_and_then_held() -> None:
    record = admitted()
    sends = 0
    first_sent_at = record.now
    while record.job.state is S.SUBMITTING:
        record.meet(Outcome(O.UNKNOWN))
        sends += 1
        assert record.job.first_sent_at == first_sent_at
    assert sends == POLICY.submit_attempts
    assert (record.job.state, record.job.reason) == (S.HELD, Reason.OUTCOME_UNKNOWN)
    assert record.job.charge is Charge.POSSIBLE
    assert record.job.run == 1


def test_three_lost_answers_and_an_acceptance_are_one_request() -> None:
    record = admitted()
    for _ in range(3):
        record.meet(Outcome(O.UNKNOWN))
    record.meet(Outcome(O.ACCEPTED, handle=replace(HANDLE, replayed=True)))
    assert (record.job.state, record.job.attempts, record.job.run) == (S.QUEUED, 0, 1)


def test_failures_with_another_in_between_are_not_in_a_row() -> None:
    record = admitted()
    for _ in range(POLICY.submit_attempts * 2):
        record.meet(Outcome(O.UNKNOWN))
        assert record.job.attempts == 1
        record.meet(Outcome(O.UNAVAILABLE))
        assert record.job.attempts == 1
    assert record.job.state is S.SUBMITTING


def test_a_busy_key_ends_the_row_of_unknown_answers() -> None:
    record = admitted()
    for _ in range(POLICY.submit_attempts - 1):
        record.meet(Outcome(O.UNKNOWN))
    record.meet(Outcome(O.KEY_BUSY))
    record.meet(Outcome(O.UNKNOWN))
    assert (record.job.state, record.job.attempts) == (S.SUBMITTING, 1)


def test_a_router_out_of_reach_releases_the_job_and_pauses_the_credential() -> None:
    record = admitted()
    calls = 0
    while record.pause is None:
        record.meet(Outcome(O.UNREACHABLE))
        calls += 1
    assert calls == POLICY.unreachable_attempts
    assert record.pause == Pause("unreachable", whole_credential=True)
    assert (record.job.state, record.job.step) == (S.PENDING, None)
    # Nothing left the machine, so the key was never used.
    assert (record.job.charge, record.job.first_sent_at) == (Charge.UNBILLED, None)


def test_out_of_reach_after_a_lost_answer_does_not_make_the_key_unused() -> None:
    record = admitted()
    sent_at = record.now
    record.meet(Outcome(O.UNKNOWN))
    while record.pause is None:
        record.meet(Outcome(O.UNREACHABLE))
    assert record.job.state is S.PENDING
    assert (record.job.charge, record.job.first_sent_at) == (Charge.POSSIBLE, sent_at)


def test_a_send_lost_in_a_crash_may_have_been_charged_though_the_next_is_refused() -> None:
    record = admitted()
    sent_at = record.now
    record.claim(Step.SUBMIT)
    record.now += 60
    record.meet(Outcome(O.INSUFFICIENT_CREDITS))
    assert record.job.state is S.PENDING
    assert (record.job.charge, record.job.first_sent_at) == (Charge.POSSIBLE, sent_at)


def test_a_key_released_by_a_refusal_begins_its_life_with_the_next_send() -> None:
    record = admitted()
    record.meet(Outcome(O.BACKLOG_FULL, retry_after=30.0))
    assert (record.job.state, record.job.first_sent_at) == (S.PENDING, None)
    record.now += 30 * HOUR
    record.admit()
    record.claim(Step.SUBMIT)
    assert record.may_send()
    assert record.job.first_sent_at == record.now
    assert record.job.charge is Charge.UNBILLED


def test_a_full_backlog_is_met_ever_more_slowly() -> None:
    record = admitted()
    delays = []
    for _ in range(6):
        delays.append(record.meet(Outcome(O.BACKLOG_FULL)).delay)
        record.admit()
    assert delays == sorted(delays)
    assert delays[-1] >= 8 * delays[0]


def test_the_bounds_are_the_policys() -> None:
    record = JobRecord(policy=Policy(submit_attempts=2))
    record.admit()
    assert record.meet(Outcome(O.UNKNOWN)).state is S.SUBMITTING
    assert record.meet(Outcome(O.UNKNOWN)).state is S.HELD


# ---- reading -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [Step.COLLECT, Step.STATUS])
def test_reads_without_an_answer_go_on_for_a_while_and_then_the_job_is_held(step: Step) -> None:
    record = accepted()
    record.job = replace(record.job, step=step)
    reads = 0
    while record.job.state is S.QUEUED:
        record.meet(Outcome(O.UNKNOWN))
        reads += 1
    assert reads == POLICY.read_attempts
    assert (record.job.state, record.job.reason, record.job.charge) == (S.HELD, Reason.UNREADABLE, Charge.POSSIBLE)


def test_a_request_that_the_router_does_not_know_is_held_as_lost() -> None:
    record = accepted()
    reads = 0
    while record.job.state is S.QUEUED:
        record.meet(Outcome(O.REQUEST_NOT_FOUND))
        reads += 1
    assert reads == POLICY.not_found_attempts
    assert (record.job.state, record.job.reason, record.job.charge) == (S.HELD, Reason.REQUEST_LOST, Charge.POSSIBLE)


def test_a_request_unknown_for_a_moment_is_not_lost() -> None:
    record = accepted()
    for _ in range(POLICY.not_found_attempts - 1):
        record.meet(Outcome(O.REQUEST_NOT_FOUND))
    record.meet(Outcome(O.NOT_READY, status="IN_PROGRESS"))
    record.meet(Outcome(O.REQUEST_NOT_FOUND))
    assert (record.job.state, record.job.attempts) == (S.RUNNING, 1)


def test_a_failed_read_of_a_run_that_succeeded_is_repeated_ever_more_slowly_and_then_held() -> None:
    record = accepted()
    steps, delays = [], []
    while record.job.state is S.QUEUED:
        steps.append(record.job.step)
        record.meet(Outcome(O.READ_FAILED, error_type="internal_error"))
        if record.job.state is S.QUEUED:
            steps.append(record.job.step)
            delays.append(record.meet(Outcome(O.RUN_SUCCEEDED)).delay)
    assert steps == [Step.COLLECT, Step.STATUS] * (POLICY.read_attempts - 1) + [Step.COLLECT]
    assert delays[0] < delays[3] < delays[5]
    assert (record.job.state, record.job.reason) == (S.HELD, Reason.UNREADABLE)


def test_a_result_read_that_says_completed_and_gives_no_result_is_not_repeated_for_ever() -> None:
    record = accepted()
    reads, delays = 0, []
    while record.job.state is S.QUEUED:
        assert record.job.step is Step.COLLECT
        delays.append(record.meet(Outcome(O.RUN_SUCCEEDED, status="COMPLETED")).delay)
        reads += 1
        assert reads <= POLICY.read_attempts
    assert max(delays) > 8 * delays[0]
    assert (record.job.state, record.job.reason) == (S.HELD, Reason.UNREADABLE)


def test_reading_again_works_out_when_the_result_can_be_read_at_last() -> None:
    record = accepted()
    record.meet(Outcome(O.READ_FAILED))
    record.meet(Outcome(O.RUN_SUCCEEDED))
    record.meet(Outcome(O.RESULT, assets=1))
    assert (record.job.state, record.job.charge) == (S.DOWNLOADING, Charge.BILLED)


def test_a_run_still_going_is_waited_for_without_end() -> None:
    record = accepted()
    for _ in range(10_000):
        record.meet(Outcome(O.NOT_READY, status="IN_PROGRESS"))
    assert record.job.state is S.RUNNING


def test_a_router_out_of_reach_pauses_the_reads_and_keeps_the_request() -> None:
    record = accepted()
    reads = 0
    while record.pause is None:
        record.meet(Outcome(O.UNREACHABLE))
        reads += 1
    assert reads == POLICY.unreachable_attempts
    assert (record.job.state, record.job.step, record.job.attempts) == (S.QUEUED, Step.COLLECT, 0)


@pytest.mark.parametrize("failures", [1, 2, 5, 12, 40, 2000])
def test_backoff_doubles_up_to_its_ceiling(failures: int) -> None:
    ceiling = min(POLICY.backoff_ceiling, POLICY.backoff_first * 2.0 ** min(failures - 1, 40))
    delays = [backoff(Job(number, S.QUEUED), failures, POLICY) for number in range(200)]
    assert all(ceiling / 2 <= delay <= ceiling for delay in delays)
    # A crowd that failed together does not come back together.
    assert len(set(delays)) > 100


def test_a_crowd_that_is_told_to_wait_alike_does_not_come_back_together() -> None:
    outcome = Outcome(O.RATE_LIMITED, retry_after=30.0)
    made = [decide(replace(QUEUED, id=number), outcome, NOW, POLICY) for number in range(200)]
    assert {transition.cool_down for transition in made} == {30.0}
    assert len({transition.delay for transition in made}) > 100


# ---- downloading -------------------------------------------------------------------------------------------------


def test_a_download_that_keeps_breaking_off_is_collected_afresh_once_and_then_lost() -> None:
    record = downloading()

    def break_off() -> int:
        tries = 0
        while record.job.step is Step.FETCH:
            made = record.meet(Outcome(O.ASSET_INTERRUPTED), asset_attempts=tries)
            tries += 1
        assert made.asset is (AssetState.EXPECTED if record.job.state is S.DOWNLOADING else AssetState.FAILED)
        return tries

    assert break_off() == POLICY.asset_attempts
    assert (record.job.state, record.job.step) == (S.DOWNLOADING, Step.COLLECT)
    record.meet(Outcome(O.RESULT, assets=1))
    assert (record.job.step, record.job.recollects) == (Step.FETCH, 1)
    assert break_off() == POLICY.asset_attempts
    assert (record.job.state, record.job.charge) == (S.SUCCEEDED, Charge.BILLED)


def test_a_dead_link_is_exchanged_for_a_fresh_one() -> None:
    record = downloading()
    assert record.meet(Outcome(O.ASSET_LINK_DEAD)).asset is AssetState.EXPECTED
    assert record.job.step is Step.COLLECT
    record.meet(Outcome(O.RESULT, assets=1))
    assert record.meet(Outcome(O.ASSET_SAVED)).asset is AssetState.SAVED
    assert record.job.state is S.SUCCEEDED


def test_the_same_dead_link_again_is_a_lost_asset_and_no_new_run() -> None:
    record = downloading()
    record.meet(Outcome(O.ASSET_LINK_DEAD))
    record.meet(Outcome(O.RESULT, assets=1))
    assert record.meet(Outcome(O.ASSET_LINK_DEAD)).asset is AssetState.FAILED
    assert (record.job.state, record.job.charge, record.job.run) == (S.SUCCEEDED, Charge.BILLED, 1)


def test_the_last_media_file_to_settle_ends_the_job() -> None:
    record = downloading(assets=3)
    record.meet(Outcome(O.ASSET_SAVED, assets_left=2))
    record.meet(Outcome(O.ASSET_REFUSED, assets_left=1))
    assert (record.job.state, record.job.step) == (S.DOWNLOADING, Step.FETCH)
    record.meet(Outcome(O.ASSET_SAVED, assets_left=0))
    assert (record.job.state, record.job.step) == (S.SUCCEEDED, None)


@pytest.mark.parametrize("kind", [kind for state, kind in TABLE if state is S.DOWNLOADING])
@pytest.mark.parametrize("job", [FETCHING, REREADING, replace(REREADING, attempts=99, recollects=1)])
def test_nothing_that_befalls_its_media_fails_or_unbills_a_paid_result(job: Job, kind: OutcomeKind) -> None:
    made = decide(replace(job, last=kind, asset_attempts=99), said(kind), NOW, POLICY)
    assert made.state in {S.DOWNLOADING, S.SUCCEEDED}
    assert made.charge is Charge.BILLED
    assert not made.new_run


# ---- what a failure costs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy_rejection", ["yes", "no", "unknown"])
@pytest.mark.parametrize("job", [QUEUED, RUNNING])
@pytest.mark.parametrize(
    "error_type",
    [
        "invalid_input",
        "provider_error",
        "provider_timeout",
        "deadline_exceeded",
        "cancelled",
        "internal_error",
        "client_disconnected",
        "a_bucket_of_the_future",
        "Queue_Timeout",
    ],
)
def test_a_failed_run_may_have_been_charged(error_type: str, job: Job, policy_rejection: str) -> None:
    job = replace(job, charges_on_policy_rejection=policy_rejection)
    made = decide(job, Outcome(O.RUN_FAILED, error_type=error_type), NOW, POLICY)
    assert made.charge is Charge.POSSIBLE
    assert made.error_type == error_type
    assert made.reason is Reason.RUN_FAILED


def test_a_run_that_never_started_is_not_charged() -> None:
    made = decide(QUEUED, Outcome(O.RUN_FAILED, error_type="queue_timeout"), NOW, POLICY)
    assert (made.state, made.charge) == (S.FAILED, Charge.UNBILLED)


@pytest.mark.parametrize(
    ("catalog", "charge"),
    [
        ("yes", Charge.BILLED),
        ("no", Charge.UNBILLED),
        ("unknown", Charge.POSSIBLE),
        ("a word of the future", Charge.POSSIBLE),
    ],
)
def test_a_policy_refusal_costs_what_the_catalog_says(catalog: str, charge: Charge) -> None:
    job = replace(RUNNING, charges_on_policy_rejection=catalog)
    made = decide(job, Outcome(O.RUN_FAILED, error_type="content_policy_violation"), NOW, POLICY)
    assert (made.state, made.charge) == (S.FAILED, charge)


def test_only_a_cancelled_run_ends_as_cancelled() -> None:
    made = decide(RUNNING, Outcome(O.RUN_FAILED, error_type="cancelled"), NOW, POLICY)
    assert made.state is S.CANCELLED


def test_a_failed_run_keeps_the_words_of_the_read_that_told_of_it() -> None:
    record = accepted()
    record.meet(Outcome(O.READ_FAILED, error_type="provider_error", detail="the provider broke"))
    record.meet(Outcome(O.RUN_FAILED, error_type="provider_error"))
    assert (record.job.error_type, record.job.error_detail) == ("provider_error", "the provider broke")


@pytest.mark.parametrize(
    "between",
    [
        Outcome(O.RATE_LIMITED, error_type="rate_limited", detail="slow down", retry_after=1.0),
        Outcome(O.UNKNOWN, detail="no answer in time"),
        Outcome(O.UNREACHABLE, detail="the Router cannot be reached"),
        Outcome(O.UNAVAILABLE, error_type="service_unavailable", detail="back soon"),
    ],
    ids=lambda outcome: outcome.kind,
)
def test_a_failed_run_never_wears_the_words_of_another_answer(between: Outcome) -> None:
    record = accepted()
    record.meet(Outcome(O.READ_FAILED, error_type="provider_error", detail="the provider broke"))
    record.meet(between)
    record.meet(Outcome(O.RUN_FAILED, error_type="provider_error"))
    assert record.job.error_detail in {None, "the provider broke"}


# ---- a user's commands -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", list(Reason))
def test_resume_asks_again_for_a_request_that_there_is(reason: Reason) -> None:
    made = decide(replace(HELD_WITH_REQUEST, reason=reason), Outcome(O.RESUME), NOW + 99 * HOUR, POLICY)
    assert (made.state, made.step, made.charge) == (S.QUEUED, Step.COLLECT, Charge.POSSIBLE)
    assert (made.reason, made.new_run) == (None, False)


def test_resume_sends_an_unanswered_submit_again_under_the_same_key_while_that_is_safe() -> None:
    made = decide(HELD_UNKNOWN, Outcome(O.RESUME), NOW, POLICY)
    assert (made.state, made.step) == (S.PENDING, None)
    assert made.charge is Charge.POSSIBLE
    assert not made.key_released
    assert not made.new_run


@pytest.mark.parametrize(
    ("reason", "sent_at"),
    [
        (Reason.OUTCOME_UNKNOWN, NOW - 25 * HOUR),
        (Reason.OUTCOME_UNKNOWN, NOW + 2 * HOUR),
        (Reason.KEY_EXPIRED, NOW - 25 * HOUR),
        (Reason.KEY_EXPIRED, NOW - 60),
        (Reason.KEY_CONFLICT, NOW - 60),
    ],
)
def test_resume_leaves_what_could_be_charged_twice_to_the_user(reason: Reason, sent_at: float) -> None:
    job = replace(HELD_UNKNOWN, reason=reason, first_sent_at=sent_at, error_type="t", error_detail="d")
    made = decide(job, Outcome(O.RESUME), NOW, POLICY)
    assert (made.state, made.step, made.charge) == (S.HELD, None, Charge.POSSIBLE)
    assert (made.reason, made.error_type, made.error_detail) == (reason, "t", "d")
    assert not made.key_released


@pytest.mark.parametrize("state", [S.HELD, S.FAILED, S.CANCELLED, S.EXPIRED])
@pytest.mark.parametrize("charge", list(Charge))
def test_retry_is_another_run_that_nothing_was_paid_for_yet(state: JobState, charge: Charge) -> None:
    record = JobRecord(job=replace(HELD_WITH_REQUEST, state=state, charge=charge, error_type="provider_error"))
    record.command(O.RETRY)
    assert (record.job.state, record.job.step, record.job.charge) == (S.PENDING, None, Charge.UNBILLED)
    assert (record.job.run, record.job.first_sent_at, record.job.submitted_at) == (2, None, None)
    assert (record.job.reason, record.job.error_type) == (None, None)


@pytest.mark.parametrize("expected", ROWS, ids=lambda expected: expected.name)
def test_only_retry_makes_a_new_run(expected: Row) -> None:
    made = decide(expected.job, expected.outcome, NOW, POLICY)
    assert made.new_run == (expected.kind is O.RETRY)


@pytest.mark.parametrize("expected", ROWS, ids=lambda expected: expected.name)
def test_a_key_that_may_have_been_charged_is_never_released(expected: Row) -> None:
    made = decide(expected.job, expected.outcome, NOW, POLICY)
    assert not (made.key_released and made.charge is not Charge.UNBILLED)


# ---- the age of a key --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("age", "expired"),
    [
        (None, False),
        (0.0, False),
        (1.0, False),
        (POLICY.key_lifetime - 1, False),
        (POLICY.key_lifetime, True),
        (24 * HOUR, True),
        (25 * HOUR, True),
        # Another machine's clock, a little ahead.
        (-1.0, False),
        (-CLOCK_TOLERANCE, False),
        # A clock that went back: the key's age is not known any more.
        (-CLOCK_TOLERANCE - 1, True),
        (-30 * 24 * HOUR, True),
    ],
)
def test_a_key_is_safe_to_send_again_within_its_lifetime_only(age: float | None, expired: bool) -> None:
    job = replace(SENDING, first_sent_at=None if age is None else NOW - age)
    assert key_expired(job, NOW, POLICY) is expired


def test_the_lifetime_ends_before_the_contracts_twenty_four_hours_by_more_than_clocks_differ() -> None:
    assert POLICY.key_lifetime + CLOCK_TOLERANCE <= 24 * HOUR
