"""Every answer of the Router, from HTTP to what `status`, `show` and the exit status say.

Each case is a row of the contract's table of answers: what the Router says, live, and the one thing that follows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pytest

from tests.answers.bench import Bench

Start = Callable[..., Bench]


@dataclass(frozen=True)
class Case:
    """One answer and its consequence for a batch of one row."""

    name: str
    faults: Mapping[str, object]
    state: str
    charge: str
    exit_code: int
    #: How often the row is sent: always under one key, and never a second paid run.
    sends: int = 1
    pause: str | None = None
    reason: str | None = None
    error_type: str | None = None
    #: Words of `status` for people, on stdout or stderr, and of `show`.
    status: tuple[str, ...] = ()
    show: tuple[str, ...] = ()
    prompt: str = "a cat"
    #: All that happened, in order, where the case is about it.
    events: tuple[str, ...] = ()


DONE = ("accepted", "result", "asset_saved")
PAUSED = Case("", {}, "pending", "unbilled", 3)
HELD = Case("", {}, "held", "possible", 3)
REFUSED = Case("", {}, "failed", "unbilled", 1, reason="refused")
FINE = Case("", {}, "succeeded", "billed", 0, status=("1 of 1 succeeded",))


def paused(name: str, fault: Mapping[str, object], pause: str, *status: str, on: Case = PAUSED) -> Case:
    """Nothing more goes out until the user has mended what is named."""
    said = ("Paused", "comfy-batch resume prompts", *status)
    return replace(on, name=name, faults=fault, pause=pause, status=said)


def refused(name: str, fault: Mapping[str, object], error_type: str, *show: str) -> Case:
    """The same again would be refused again."""
    said = (f"1 job: {error_type}", "retry prompts")
    return replace(REFUSED, name=name, faults=fault, error_type=error_type, status=said, show=show)


def waited(name: str, fault: Mapping[str, object], event: str, *show: str) -> Case:
    """The very same is sent again, later, and pays for one run."""
    return replace(FINE, name=name, faults=fault, sends=2, show=show, events=(event, *DONE))


def read_again(name: str, fault: Mapping[str, object], event: str, *show: str) -> Case:
    """A read costs nothing: it is repeated, later."""
    return replace(FINE, name=name, faults=fault, show=show, events=("accepted", event, *DONE[1:]))


def held(name: str, fault: Mapping[str, object], reason: str, *show: str, sends: int = 1) -> Case:
    """Going on may cost a second time: the user decides."""
    said = ("1 job is held", "comfy-batch resume prompts")
    return replace(HELD, name=name, faults=fault, reason=reason, status=said, show=show, sends=sends)


SUBMITS = (
    replace(FINE, name="201", show=("charge    billed", "quote     0.03 USD", "credits used"), events=DONE),
    waited("409 concurrency_limit_exceeded", {"key_busy": 1}, "key_busy", "delay 2.0"),
    held(
        "409 invalid_input",
        {"key_conflict": "always"},
        "key_conflict",
        "the Router holds the key for another request",
        "what that cost is not known",
        "retry prompts --state held pays for a new run",
    ),
    paused("402 insufficient_credits", {"credits": 0}, "insufficient_credits", "add credits"),
    paused("401 unauthorized", {"unauthorized": 1}, "unauthorized", "check COMFY_API_KEY"),
    paused("403 forbidden", {"forbidden": 1}, "forbidden", "ask whoever manages the account"),
    paused("403 not_enabled, the account", {"not_enabled": 1}, "not_enabled", "ask Comfy to enable it"),
    refused("403 not_enabled, the model", {"not_queueable": 1}, "not_enabled", "answers with bytes"),
    refused("404 model_not_found", {"model_not_found": 1}, "model_not_found", "Did you mean bfl/flux-2-flex?"),
    refused("413", {"too_large": 1}, "invalid_input", "larger than 10485760 bytes"),
    refused(
        "422 invalid_input",
        {"invalid_input": 1},
        "invalid_input",
        "body.width: Input should be less than or equal to 4096",
        "body.seed: Input should be a valid integer",
    ),
    refused("400 invalid_input", {"bad_request": 1}, "invalid_input", "not a JSON document"),
    waited("429 queue_backlog_full", {"backlog_full": 1}, "backlog_full", "attempt 1"),
    waited("429 rate_limited", {"rate_limited": 1}, "rate_limited", "delay 2."),
    waited(
        "429 concurrency_limit_exceeded",
        {"concurrency_limit": 1},
        "concurrency_limit",
        "spend in flight: $96.00 of $100.00 allowed",
    ),
    waited("503 with Retry-After", {"unavailable": 1}, "unavailable", "delay 2.0"),
    waited("503 without Retry-After", {"unavailable_bare": 1}, "unavailable", "attempt 1"),
    waited("500", {"submit_500": 1}, "unknown", "charge possible", "attempt 1"),
    waited("502", {"submit_502": 1}, "unknown", "charge possible", "attempt 1"),
    waited("504", {"submit_504": 1}, "unknown", "charge possible", "attempt 1"),
    waited("a page of a proxy", {"submit_html": 1}, "unknown", "charge possible"),
    waited("a cut handle", {"submit_cut_json": 1}, "unknown", "replayed: true"),
    waited("a lost answer", {"drop_after_accept": 1}, "unknown", "replayed: true"),
    held(
        "no answer at all",
        {"drop_before_accept": "always"},
        "outcome_unknown",
        "no answer came to the submit",
        "one run may have been paid for",
        "resume prompts sends the same key again, which pays nothing twice within 24 hours",
        sends=6,
    ),
)

SENT = replace(PAUSED, state="queued", charge="possible")
READS = (
    held(
        "404 request_not_found",
        {"request_not_found": "always"},
        "request_lost",
        "the Router does not know the request any more",
        "resume prompts asks for it again at no cost",
        "attempt 4",
    ),
    paused("401 unauthorized", {"unauthorized": 1}, "unauthorized", "check COMFY_API_KEY", on=SENT),
    paused("403 forbidden", {"forbidden": 1}, "forbidden", "ask whoever manages the account", on=SENT),
    read_again("429 rate_limited", {"rate_limited": 1}, "rate_limited", "delay 2."),
    read_again("503 with Retry-After", {"unavailable": 1}, "unavailable", "delay 2.0"),
    read_again("503 without Retry-After", {"unavailable_bare": 1}, "unavailable", "attempt 1"),
    read_again("500", {"read_500": 1}, "unknown", "attempt 1"),
    read_again("502", {"read_502": 1}, "unknown", "attempt 1"),
    read_again("504", {"read_504": 1}, "unknown", "attempt 1"),
    read_again("a page of a proxy", {"read_html": 1}, "unknown", "attempt 1"),
    read_again("cut JSON", {"read_cut_json": 1}, "unknown", "attempt 1"),
    read_again("a broken connection", {"read_drop": 1}, "unknown", "attempt 1"),
    held(
        "no readable answer at all",
        {"read_html": "always"},
        "unreadable",
        "the result could not be read",
        "resume prompts asks for it again at no cost",
    ),
)


def ended(error_type: str, charge: str, *show: str, state: str = "failed") -> Case:
    """A run that is completed without success; another would be another charge."""
    return Case(
        error_type,
        {},
        state=state,
        charge=charge,
        exit_code=1,
        reason="run_failed",
        error_type=error_type,
        status=(f"1 job: {error_type}",),
        show=show,
        prompt=f"a cat [fail:{error_type}]",
        events=("accepted", "read_failed", "run_failed"),
    )


RUNS = (
    # The catalog says of this model that a policy refusal is free.
    ended("content_policy_violation", "unbilled", "refused: input_text", "content-policy grounds"),
    ended("invalid_input", "possible", "body.prompt: The provider does not accept this prompt"),
    ended("provider_error", "possible", "provider's status: 500"),
    ended("provider_timeout", "possible"),
    ended("deadline_exceeded", "possible"),
    ended("cancelled", "possible", state="cancelled"),
    ended("queue_timeout", "unbilled", "never started"),
    ended("internal_error", "possible"),
    # A bucket of the future is kept word for word.
    ended("glitch_in_the_matrix", "possible", "glitch_in_the_matrix"),
)


def check(bench: Bench, case: Case) -> None:
    said, summary = bench.status()
    job = bench.show()
    counted = {"submitting": "in_flight", "queued": "in_flight", "running": "in_flight"}.get(case.state, case.state)
    assert (job["state"], job["charge"], said.code) == (case.state, case.charge, case.exit_code)
    assert summary["jobs"][counted] == summary["jobs"]["total"] == 1
    assert summary["charges"][case.charge] == 1
    assert summary["pause_reason"] == case.pause
    assert job["reason"] == case.reason
    assert case.error_type in (None, job["error_type"])
    for words in case.status:
        assert words in said.out + said.err
    shown = bench.cli("show", "last:1").out
    for words in case.show:
        assert words in shown
    ledger = bench.router.ledger()
    assert ledger["calls"]["submit"] == case.sends
    assert ledger["runs"] <= 1
    assert set(ledger["by_key"]) <= {job["idempotency_key"]}
    if case.events:
        assert tuple(bench.events()) == case.events
    calls = [event["call_id"] for event in job["events"] if event["http_status"] and event["event"] != "unknown"]
    # Media hosts name no calls.
    assert all(calls)


@pytest.mark.parametrize("case", SUBMITS, ids=lambda case: case.name)
def test_an_answer_to_a_submit(start: Start, case: Case) -> None:
    bench = start()
    bench.submit()
    bench.router.faults(**case.faults)
    bench.work()
    check(bench, case)


@pytest.mark.parametrize("case", READS, ids=lambda case: case.name)
def test_an_answer_to_a_read(start: Start, case: Case) -> None:
    bench = start()
    bench.submit()
    bench.work(0.0)
    bench.router.faults(**case.faults)
    bench.work()
    check(bench, case)


@pytest.mark.parametrize("case", RUNS, ids=lambda case: case.name)
def test_a_run_that_is_completed_without_success(start: Start, case: Case) -> None:
    bench = start()
    bench.submit(f"prompt\n{case.prompt}\n")
    bench.work()
    check(bench, case)


def test_410_after_the_retention_the_result_is_gone_and_perhaps_paid_for(start: Start) -> None:
    bench = start(retention=60.0)
    bench.submit()
    bench.work(0.0)
    bench.clock.advance(3600.0)
    bench.work()
    check(
        bench,
        Case(
            "410",
            {},
            "expired",
            "possible",
            1,
            reason="retention_over",
            status=("expired  1 job", "retry prompts pays for new runs"),
            events=("accepted", "gone"),
        ),
    )


def test_202_the_next_read_comes_when_the_router_said_and_not_before(start: Start) -> None:
    bench = start(duration=30.0)
    bench.submit()
    bench.work()
    assert bench.events() == ["accepted", "not_ready", "result", "asset_saved"]
    ledger = bench.router.ledger(summary=True)
    assert (ledger["early_polls"], ledger["billed"]) == (0, 1)


@pytest.mark.parametrize("legacy", [False, True], ids=["409", "400"])
def test_a_cancel_that_comes_too_late_gives_the_result(start: Start, legacy: bool) -> None:
    bench = start({"legacy_cancel": legacy})
    bench.submit("prompt\na cat\n", "--cancel-after", "1")
    bench.work(0.0)
    bench.cli("cancel", "last", "--yes")
    bench.work()
    assert bench.show()["state"] == "succeeded"
    assert "cancel_too_late" in bench.events()
    assert bench.router.ledger(summary=True)["billed"] == 1


@pytest.mark.parametrize(
    ("pause", "mended"),
    [
        ({"credits": 0}, {"credits": None}),
        ({"unauthorized": 1}, {"unauthorized": 0}),
        ({"not_enabled": 1}, {"not_enabled": 0}),
    ],
    ids=["402", "401", "403"],
)
def test_what_was_paused_goes_on_under_the_same_key_once_it_is_mended(
    start: Start, pause: Mapping[str, object], mended: Mapping[str, object]
) -> None:
    bench = start()
    bench.submit("prompt\n" + "a cat\n" * 5)
    bench.router.faults(**pause)
    bench.work()
    keys = [bench.show(row)["idempotency_key"] for row in range(1, 6)]
    assert bench.status()[1]["state"] == "paused"
    bench.router.faults(**mended)
    bench.resume()
    bench.work()
    said, summary = bench.status()
    assert (said.code, summary["jobs"]["succeeded"], summary["charges"]["billed"]) == (0, 5, 5)
    assert [bench.show(row)["idempotency_key"] for row in range(1, 6)] == keys
    bench.router.assert_paid_once(5)


def test_query_parameters_go_out_with_every_send_and_come_back_with_what_was_not_passed_on(start: Start) -> None:
    bench = start({"drop_after_accept": 1})
    manifest = (
        "prompt,model_provider,strict_mode,safety_tolerance\na cat,,,1\na dog,wavespeed,false,2\na fox,default,,3\n"
    )
    bench.submit(manifest, "--model-provider", "fal", "--reject-unknown-fields")
    bench.work()
    said, summary = bench.status()
    assert (said.code, summary["charges"]["billed"]) == (0, 3)
    bench.router.assert_paid_once(3)
    assert [bench.show(row)["query"] for row in (1, 2, 3)] == [
        "model_provider=fal&reject_unknown_fields=true",
        "model_provider=wavespeed&strict_mode=false&reject_unknown_fields=true",
        "model_provider=default&reject_unknown_fields=true",
    ]
    assert "not passed on: safety_tolerance (fal has no such field)" in bench.cli("show", "last:1").out
    assert "x-comfy-router-dropped-params" not in bench.show(3)["notes"]
