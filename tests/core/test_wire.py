"""The contract's HTTP as values: what each answer of the Router, or of whatever stands before it, means."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from runner.core.documents import DETAIL_LIMIT
from runner.core.lifecycle import decide
from runner.core.types import Document, Handle, Job, JobState, Outcome, OutcomeKind, Policy, Step
from runner.core.wire import (
    HttpResponse,
    NoResponse,
    Reply,
    cancel_request,
    collect_request,
    origin_of,
    outcome_of_cancel,
    outcome_of_collect,
    outcome_of_status,
    outcome_of_submit,
    status_request,
    submit_request,
)

O = OutcomeKind  # noqa: E741  # one letter keeps the tables below readable

NOW = 1_800_000_000.0
BASE = "https://api.comfy.org"
MODEL = "bfl/flux-2-pro"
REQUEST = f"{BASE}/v2/models/{MODEL}/requests/req-1"
URLS = {"status_url": f"{REQUEST}/status", "response_url": REQUEST, "cancel_url": f"{REQUEST}/cancel"}
HTML = b"<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"

Reading = Callable[[Reply, float], Outcome]
SUBMIT: Reading = outcome_of_submit
COLLECT: Reading = outcome_of_collect
STATUS: Reading = outcome_of_status
READS = (COLLECT, STATUS)
EVERY = (SUBMIT, COLLECT, STATUS)


def raw(status: int, body: bytes, content_type: str = "application/json", **headers: str) -> HttpResponse:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    typed = {"content-type": content_type} if content_type else {}
    return HttpResponse(status, {**typed, **named}, body)


def answer(status: int, document: object, **headers: str) -> HttpResponse:
    return raw(status, json.dumps(document).encode(), **{"x_comfy_request_id": "call-1", **headers})


def refusal(status: int, bucket: str, detail: object = "in words", **headers: str) -> HttpResponse:
    """An error of the Router: the bucket in the body and on its header."""
    return answer(status, {"error_type": bucket, "detail": detail}, x_comfy_error_type=bucket, **headers)


def status_document(status: str, **more: object) -> dict[str, object]:
    return {"request_id": "req-1", "status": status, **URLS, **more}


def kind_of(reading: Reading, reply: Reply) -> OutcomeKind:
    return reading(reply, NOW).kind


# ---- an accepted submit ------------------------------------------------------------------------------------------


def test_a_201_gives_the_handle_with_its_three_urls_as_given() -> None:
    outcome = outcome_of_submit(answer(201, status_document("IN_QUEUE", queue_position=4)), NOW)
    assert outcome.kind is O.ACCEPTED
    assert outcome.handle == Handle("req-1", URLS["status_url"], URLS["response_url"], URLS["cancel_url"])
    assert (outcome.http_status, outcome.call_id, outcome.queue_position) == (201, "call-1", 4)
    assert (outcome.error_type, outcome.detail) == (None, None)


@pytest.mark.parametrize(("header", "replayed"), [("true", True), ("True", True), ("false", False), ("", False)])
def test_a_replay_is_told_from_a_first_acceptance(header: str, replayed: bool) -> None:
    outcome = outcome_of_submit(answer(201, status_document("IN_QUEUE"), idempotent_replayed=header), NOW)
    assert outcome.handle is not None
    assert outcome.handle.replayed is replayed


@pytest.mark.parametrize("status", [200, 201, 202])
def test_a_handle_is_a_handle_under_any_success(status: int) -> None:
    assert kind_of(SUBMIT, answer(status, status_document("COMPLETED"))) is O.ACCEPTED


def test_an_estimate_is_kept_verbatim() -> None:
    estimate = {"kind": "estimated", "min_amount": "0.04", "max_amount": "0.08", "currency": "usd"}
    outcome = outcome_of_submit(answer(201, status_document("IN_QUEUE", estimate=estimate)), NOW)
    assert outcome.handle is not None
    assert outcome.handle.estimate == estimate


@pytest.mark.parametrize("missing", ["request_id", "status_url", "response_url", "cancel_url"])
@pytest.mark.parametrize("value", [None, "", "  ", 7, ["req-1"]])
def test_a_201_without_a_whole_handle_is_an_unknown_outcome(missing: str, value: object) -> None:
    document = {**status_document("IN_QUEUE"), missing: value}
    outcome = outcome_of_submit(answer(201, document), NOW)
    assert (outcome.kind, outcome.handle) == (O.UNKNOWN, None)


def test_a_201_cut_at_any_byte_is_an_unknown_outcome() -> None:
    whole = json.dumps(status_document("IN_QUEUE")).encode()
    for length in range(len(whole)):
        assert kind_of(SUBMIT, raw(201, whole[:length])) is O.UNKNOWN
    assert kind_of(SUBMIT, raw(201, whole)) is O.ACCEPTED


# ---- what each answer asks for -----------------------------------------------------------------------------------

SUBMIT_REFUSALS = [
    (409, "concurrency_limit_exceeded", O.KEY_BUSY),
    (409, "invalid_input", O.KEY_CONFLICT),
    (402, "insufficient_credits", O.INSUFFICIENT_CREDITS),
    (401, "unauthorized", O.UNAUTHORIZED),
    (403, "forbidden", O.FORBIDDEN),
    (404, "model_not_found", O.MODEL_NOT_FOUND),
    (400, "invalid_input", O.REJECTED),
    (413, "invalid_input", O.REJECTED),
    (422, "invalid_input", O.REJECTED),
    (422, "content_policy_violation", O.REJECTED),
    (429, "queue_backlog_full", O.BACKLOG_FULL),
    (429, "rate_limited", O.RATE_LIMITED),
    (429, "concurrency_limit_exceeded", O.CONCURRENCY_LIMIT),
    (503, "service_unavailable", O.UNAVAILABLE),
    # Only time can tell what became of these.
    (500, "internal_error", O.UNKNOWN),
    (502, "provider_error", O.UNKNOWN),
    (504, "deadline_exceeded", O.UNKNOWN),
    (504, "provider_timeout", O.UNKNOWN),
    (499, "client_disconnected", O.UNKNOWN),
    # Buckets that this version does not know, or does not know under this status.
    (400, "a_bucket_of_the_future", O.UNKNOWN),
    (403, "a_bucket_of_the_future", O.UNKNOWN),
    (409, "a_bucket_of_the_future", O.UNKNOWN),
    (422, "a_bucket_of_the_future", O.UNKNOWN),
    (429, "a_bucket_of_the_future", O.UNKNOWN),
    (500, "invalid_input", O.UNKNOWN),
    (404, "request_not_found", O.UNKNOWN),
]

#: Status, bucket, and what it means to the result read and to the status read.
READ_REFUSALS = [
    (401, "unauthorized", O.UNAUTHORIZED, O.UNAUTHORIZED),
    (403, "forbidden", O.FORBIDDEN, O.FORBIDDEN),
    (403, "not_enabled", O.ACCOUNT_NOT_ENABLED, O.ACCOUNT_NOT_ENABLED),
    (404, "request_not_found", O.REQUEST_NOT_FOUND, O.REQUEST_NOT_FOUND),
    (404, "model_not_found", O.REQUEST_NOT_FOUND, O.REQUEST_NOT_FOUND),
    (410, "request_not_found", O.GONE, O.GONE),
    (410, "a_bucket_of_the_future", O.GONE, O.GONE),
    (429, "rate_limited", O.RATE_LIMITED, O.RATE_LIMITED),
    (429, "concurrency_limit_exceeded", O.UNAVAILABLE, O.UNAVAILABLE),
    (503, "service_unavailable", O.UNAVAILABLE, O.UNAVAILABLE),
    # The run's failure, or this read's? Of the result read, only the status tells.
    (422, "content_policy_violation", O.READ_FAILED, O.UNKNOWN),
    (422, "invalid_input", O.READ_FAILED, O.UNKNOWN),
    (500, "internal_error", O.READ_FAILED, O.UNKNOWN),
    (502, "provider_error", O.READ_FAILED, O.UNKNOWN),
    (504, "provider_timeout", O.READ_FAILED, O.UNKNOWN),
    (504, "deadline_exceeded", O.READ_FAILED, O.UNKNOWN),
    (409, "cancelled", O.READ_FAILED, O.UNKNOWN),
    (503, "queue_timeout", O.READ_FAILED, O.UNKNOWN),
    (500, "a_bucket_of_the_future", O.READ_FAILED, O.UNKNOWN),
]

BY_CALL = [
    *[(SUBMIT, *refused) for refused in SUBMIT_REFUSALS],
    *[(COLLECT, status, bucket, collect) for status, bucket, collect, _ in READ_REFUSALS],
    *[(STATUS, status, bucket, read) for status, bucket, _, read in READ_REFUSALS],
]


@pytest.mark.parametrize(("reading", "status", "bucket", "kind"), BY_CALL)
def test_a_refusal_means(reading: Reading, status: int, bucket: str, kind: OutcomeKind) -> None:
    outcome = reading(refusal(status, bucket, retry_after="3"), NOW)
    assert outcome.kind is kind
    assert (outcome.http_status, outcome.call_id) == (status, "call-1")
    assert (outcome.error_type, outcome.detail) == (bucket, "in words")
    assert outcome.retry_after == 3.0
    assert (outcome.handle, outcome.document) == (None, None)


@pytest.mark.parametrize(("reading", "status", "bucket", "kind"), BY_CALL)
def test_the_bucket_is_found_in_the_body_alone_and_on_the_header_alone(
    reading: Reading, status: int, bucket: str, kind: OutcomeKind
) -> None:
    in_body = answer(status, {"error_type": bucket, "detail": "in words"})
    on_header = answer(status, {"detail": []}, x_comfy_error_type=bucket)
    assert kind_of(reading, in_body) is kind
    assert kind_of(reading, on_header) is kind
    assert reading(on_header, NOW).error_type == bucket


@pytest.mark.parametrize(
    ("detail", "kind"),
    [
        (
            "bytedance/seed-audio answers with bytes and cannot be queued; run it on the synchronous route.",
            O.MODEL_NOT_QUEUEABLE,
        ),
        ("Use POST /v2/models/{provider}/{model} for this model instead.", O.MODEL_NOT_QUEUEABLE),
        ("Comfy Router is not enabled for this account yet.", O.ACCOUNT_NOT_ENABLED),
        ("", O.ACCOUNT_NOT_ENABLED),
        (None, O.ACCOUNT_NOT_ENABLED),
        ("This credential carries no Comfy workspace.", O.ACCOUNT_NOT_ENABLED),
        # The credential is refused here, whatever other route its `detail` points to.
        (
            "This credential carries no Comfy workspace and cannot be used for queued requests; "
            "the synchronous route accepts it.",
            O.ACCOUNT_NOT_ENABLED,
        ),
    ],
)
def test_not_enabled_is_of_the_model_or_of_the_account(detail: object, kind: OutcomeKind) -> None:
    outcome = outcome_of_submit(refusal(403, "not_enabled", detail), NOW)
    assert (outcome.kind, outcome.error_type) == (kind, "not_enabled")


@pytest.mark.parametrize("reading", EVERY)
@pytest.mark.parametrize(
    ("header", "seconds"),
    [(None, None), ("7", 7.0), ("0", 1.0), ("nan", None), ("Fri, 15 Jan 2027 08:00:10 GMT", 10.0)],
)
def test_every_answer_carries_its_retry_after_clamped(
    reading: Reading, header: str | None, seconds: float | None
) -> None:
    named = {} if header is None else {"retry_after": header}
    assert reading(refusal(503, "service_unavailable", **named), NOW).retry_after == seconds


@pytest.mark.parametrize("reading", EVERY)
def test_headers_about_cost_and_about_what_ran_are_kept_and_no_others(reading: Reading) -> None:
    kept = {
        "x-comfy-credits-used": "12",
        "x-comfy-upstream-status": "451",
        "x-comfy-router-dropped-params": "seed",
        "x-committed-spend-limit": "5000",
        "x-committed-spend-current": "4990",
        "x-committed-spend-remaining": "10",
    }
    headers = {**kept, "set-cookie": "session=1", "x-comfy-error-type": "rate_limited"}
    assert reading(HttpResponse(429, headers, b"{}"), NOW).notes == kept


# ---- details -----------------------------------------------------------------------------------------------------


def test_entries_of_a_validation_error_are_kept_without_the_echo_of_the_input() -> None:
    detail = [
        {
            "loc": ["body", "seed"],
            "msg": "Input should be less than 5",
            "type": "less_than",
            "ctx": {"lt": 5},
            "input": "a secret prompt",
            "url": "https://errors.example/less_than",
        },
        {"loc": ["body", "prompt"], "msg": "Field required", "type": "missing", "input": {"x": "a secret prompt"}},
    ]
    outcome = outcome_of_submit(answer(422, {"detail": detail}, x_comfy_error_type="invalid_input"), NOW)
    assert outcome.kind is O.REJECTED
    assert outcome.detail is not None
    assert json.loads(outcome.detail) == [
        {"loc": ["body", "seed"], "msg": "Input should be less than 5", "type": "less_than", "ctx": {"lt": 5}},
        {"loc": ["body", "prompt"], "msg": "Field required", "type": "missing"},
    ]


@pytest.mark.parametrize("detail", [[], ["words"], [1, None], {"a": 1}, 7, "", None])
def test_a_detail_of_another_shape_is_no_detail(detail: object) -> None:
    outcome = outcome_of_submit(refusal(422, "invalid_input", detail), NOW)
    assert (outcome.kind, outcome.detail) == (O.REJECTED, None)


def test_a_long_sentence_is_cut() -> None:
    outcome = outcome_of_submit(refusal(422, "invalid_input", "x" * 100_000), NOW)
    assert outcome.detail == "x" * DETAIL_LIMIT


def test_many_entries_are_still_one_json_array() -> None:
    detail = [{"loc": ["body", f"field_{number}"], "msg": "Field required", "type": "missing"} for number in range(99)]
    outcome = outcome_of_submit(refusal(422, "invalid_input", detail), NOW)
    assert outcome.detail is not None
    assert len(outcome.detail) <= DETAIL_LIMIT
    assert json.loads(outcome.detail)[0] == detail[0]


#: Strings that JSON can name and a text column refuses.
UNSTORABLE = ["lone \ud800 surrogate", "nul \x00 character"]


def storable(value: str | None) -> bool:
    """Whether any database takes the text: it has a UTF-8 form, and no NUL (PostgreSQL)."""
    if value is None:
        return True
    return "\x00" not in value and not any("\ud800" <= character <= "\udfff" for character in value)


@pytest.mark.parametrize("words", UNSTORABLE, ids=["surrogate", "nul"])
@pytest.mark.parametrize("reading", EVERY)
@pytest.mark.parametrize("listed", [False, True])
def test_the_words_of_a_refusal_can_be_written_to_any_database(reading: Reading, words: str, listed: bool) -> None:
    detail = [{"loc": ["body", "prompt"], "msg": words}] if listed else words
    outcome = reading(answer(422, {"error_type": words, "detail": detail}), NOW)
    assert storable(outcome.detail)
    assert storable(outcome.error_type)


@pytest.mark.parametrize("words", UNSTORABLE, ids=["surrogate", "nul"])
def test_the_words_of_a_status_can_be_written_to_any_database(words: str) -> None:
    waiting = outcome_of_status(answer(200, status_document(words)), NOW)
    failed = outcome_of_status(answer(200, status_document("COMPLETED", error_type=words)), NOW)
    assert (waiting.kind, failed.kind) == (O.NOT_READY, O.RUN_FAILED)
    assert storable(waiting.status)
    assert storable(failed.error_type)


@pytest.mark.parametrize("words", UNSTORABLE, ids=["surrogate", "nul"])
@pytest.mark.parametrize("name", ["request_id", "status_url", "response_url", "cancel_url"])
def test_a_handle_can_be_written_to_any_database_or_is_none(words: str, name: str) -> None:
    outcome = outcome_of_submit(answer(201, {**status_document("IN_QUEUE"), name: words}), NOW)
    handle = outcome.handle
    assert handle is None or all(
        storable(value) for value in (handle.request_id, handle.status_url, handle.response_url, handle.cancel_url)
    )


@pytest.mark.parametrize(
    ("given_position", "kept"), [(0, 0), (12, 12), (None, None), ("3", None), (True, None), (1.5, None)]
)
def test_a_queue_position_is_a_whole_number_or_none(given_position: object, kept: int | None) -> None:
    outcome = outcome_of_status(answer(200, status_document("IN_QUEUE", queue_position=given_position)), NOW)
    assert outcome.queue_position == kept


def test_a_queue_position_that_fits_no_column_is_none() -> None:
    outcome = outcome_of_status(answer(200, status_document("IN_QUEUE", queue_position=10**30)), NOW)
    assert (outcome.kind, outcome.queue_position) == (O.NOT_READY, None)


# ---- the status, and the result ----------------------------------------------------------------------------------


def collect_202(document: object, **headers: str) -> Outcome:
    return outcome_of_collect(answer(202, document, **headers), NOW)


def collect_200(document: object, **headers: str) -> Outcome:
    return outcome_of_collect(answer(200, document, **headers), NOW)


def status_200(document: object, **headers: str) -> Outcome:
    return outcome_of_status(answer(200, document, **headers), NOW)


SAYING_THE_STATUS: list[Callable[..., Outcome]] = [collect_202, collect_200, status_200]


@pytest.mark.parametrize("read", SAYING_THE_STATUS)
@pytest.mark.parametrize("word", ["IN_QUEUE", "IN_PROGRESS", "PONDERING", "completed"])
def test_any_status_but_completed_means_waiting(read: Callable[..., Outcome], word: str) -> None:
    outcome = read(status_document(word, queue_position=3), retry_after="5")
    assert outcome.kind is O.NOT_READY
    assert (outcome.status, outcome.queue_position, outcome.retry_after) == (word, 3, 5.0)
    assert outcome.document is None


@pytest.mark.parametrize("read", SAYING_THE_STATUS)
@pytest.mark.parametrize(
    "bucket", ["content_policy_violation", "queue_timeout", "cancelled", "a_bucket_of_the_future", "Odd Bucket"]
)
def test_completed_with_an_error_type_is_the_runs_failure_verbatim(read: Callable[..., Outcome], bucket: str) -> None:
    outcome = read(status_document("COMPLETED", error_type=bucket))
    assert (outcome.kind, outcome.error_type, outcome.call_id) == (O.RUN_FAILED, bucket, "call-1")


@pytest.mark.parametrize("read", SAYING_THE_STATUS)
@pytest.mark.parametrize("error", [{}, {"error_type": None}, {"error_type": ""}, {"error_type": " "}])
def test_completed_without_an_error_type_means_reading_the_result_again(
    read: Callable[..., Outcome], error: dict[str, object]
) -> None:
    outcome = read(status_document("COMPLETED", **error))
    assert (outcome.kind, outcome.error_type, outcome.document) == (O.RUN_SUCCEEDED, None, None)


@pytest.mark.parametrize("document", [{}, {"status": None}, {"status": ""}, {"status": 7}, [], "IN_QUEUE", None])
def test_a_status_answer_without_a_status_tells_nothing(document: object) -> None:
    assert status_200(document).kind is O.UNKNOWN
    assert collect_202(document).kind is O.UNKNOWN


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b'{"images": [{"url": "https://cdn/x.png"}],\n "seed": 1577134800018226901 }\n', "application/json"),
        (b'{"status": "succeeded", "output": 1.10}', "application/json; charset=utf-8"),
        (b'{"status": "COMPLETED", "error_type": "none of the queue\'s"}', "application/json"),
        (b"[1, 2]", "application/problem+json"),
        (b'"words"', "application/json"),
        ('{"text": "\u00e4"}'.encode(), ""),
        (b"\x89PNG\r\n\x1a\n\x00\xff", "image/png"),
        (b"solid teapot", "model/stl"),
    ],
)
def test_a_result_is_the_exact_bytes_and_their_content_type(body: bytes, content_type: str) -> None:
    outcome = outcome_of_collect(raw(200, body, content_type, x_comfy_request_id="call-1"), NOW)
    assert outcome.kind is O.RESULT
    assert outcome.document == Document(body, content_type)
    assert (outcome.http_status, outcome.call_id, outcome.error_type) == (200, "call-1", None)


def test_a_large_result_is_a_result() -> None:
    body = json.dumps({"data": [{"b64_json": "QUJD" * 500_000}]}).encode()
    outcome = outcome_of_collect(raw(200, body), NOW)
    assert outcome.document == Document(body, "application/json")


def test_a_result_cut_at_any_byte_is_no_result() -> None:
    whole = b'{"images": [{"url": "https://cdn/x.png"}]}'
    for length in range(len(whole)):
        assert kind_of(COLLECT, raw(200, whole[:length], x_comfy_request_id="call-1")) is O.UNKNOWN


def test_a_large_result_cut_short_is_no_result() -> None:
    body = json.dumps({"data": [{"b64_json": "QUJD" * 500_000}]}).encode()[:-2]
    assert kind_of(COLLECT, raw(200, body, x_comfy_request_id="call-1")) is O.UNKNOWN


def test_json_too_deep_to_be_read_is_no_result_and_no_crash() -> None:
    assert kind_of(COLLECT, raw(200, b"[" * 200_000)) is O.UNKNOWN
    assert kind_of(SUBMIT, raw(422, b"[" * 200_000)) is O.UNKNOWN


def test_bytes_of_another_type_are_a_result_only_with_the_routers_own_header_beside_them() -> None:
    assert kind_of(COLLECT, raw(200, b"\x89PNG\r\n\x1a\n", "image/png")) is O.UNKNOWN
    assert kind_of(COLLECT, raw(200, b"login please", "text/plain")) is O.UNKNOWN


# ---- pages of others ---------------------------------------------------------------------------------------------

#: What the worst of a page without the Router's bucket may bring about: a pause, never an end.
HARMLESS = {O.UNKNOWN, O.UNAUTHORIZED, O.RATE_LIMITED, O.UNAVAILABLE}
STATUSES = [200, 201, 202, 204, 206, 301, 302, 304, 400, 401, 402, 403, 404, 405, 408, 409, 410, 413, 418, 422, 425]
STATUSES += [429, 451, 499, 500, 502, 503, 504, 520, 522, 524, 529]
BODIES = {
    "html": HTML,
    "empty": b"",
    "blank": b" \r\n",
    "cut": b'{"error_type": "invalid_inp',
    "json of others": b'{"message": "Forbidden"}',
    "null": b"null",
    "not utf-8": b"\xff\xfe\x00",
}
JOBS: Mapping[Reading, Job] = {
    SUBMIT: Job(7, JobState.SUBMITTING, Step.SUBMIT),
    COLLECT: Job(7, JobState.RUNNING, Step.COLLECT),
    STATUS: Job(7, JobState.RUNNING, Step.STATUS),
}


def is_harmless(reading: Reading, reply: HttpResponse) -> None:
    outcome = reading(reply, NOW)
    assert outcome.kind in HARMLESS
    made = decide(JOBS[reading], outcome, NOW, Policy())
    assert made.state in {JOBS[reading].state, JobState.PENDING}


@pytest.mark.parametrize("reading", EVERY)
@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("content_type", ["text/html", "text/html; charset=utf-8", "application/json", ""])
def test_a_web_page_never_fails_or_ends_a_job(reading: Reading, status: int, content_type: str) -> None:
    is_harmless(reading, raw(status, HTML, content_type))


@pytest.mark.parametrize("reading", EVERY)
@pytest.mark.parametrize("status", [status for status in STATUSES if status != 200])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_an_answer_without_the_routers_bucket_never_fails_or_ends_a_job(
    reading: Reading, status: int, body: bytes
) -> None:
    is_harmless(reading, raw(status, body))


def test_a_web_page_is_no_result_though_it_came_through_the_router() -> None:
    for content_type in ("text/html", "TEXT/HTML ; charset=utf-8", "application/xhtml+xml", "application/json", ""):
        assert kind_of(COLLECT, raw(200, HTML, content_type, x_comfy_request_id="call-1")) is O.UNKNOWN


def test_a_page_without_a_bucket_may_pause_but_says_only_what_its_status_says() -> None:
    for reading in EVERY:
        assert kind_of(reading, raw(401, HTML, "text/html")) is O.UNAUTHORIZED
        assert kind_of(reading, raw(429, HTML, "text/html", retry_after="30")) is O.RATE_LIMITED
        for status in (403, 404, 410, 422):
            assert kind_of(reading, raw(status, HTML, "text/html")) is O.UNKNOWN
    # A read costs nothing to repeat; of a submit only time can tell.
    assert kind_of(COLLECT, raw(503, HTML, "text/html")) is O.UNAVAILABLE
    assert kind_of(STATUS, raw(503, HTML, "text/html")) is O.UNAVAILABLE
    assert kind_of(SUBMIT, raw(503, HTML, "text/html")) is O.UNKNOWN


def names_a_bucket(body: bytes) -> bool:
    try:
        document: Any = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and "error_type" in document


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
ANY_BODY = st.one_of(st.binary(max_size=80), JSON_VALUES.map(lambda value: json.dumps(value).encode()))
ANY_HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "content-type": st.sampled_from(
            ["text/html", "application/json", "application/json; charset=x", "image/png", ";"]
        )
        | st.text(max_size=20),
        "retry-after": st.text(max_size=20),
        "idempotent-replayed": st.text(max_size=5),
        "content-length": st.text(max_size=5),
    },
)


@given(st.integers(100, 599), ANY_HEADERS, ANY_BODY)
@example(422, {"content-type": "application/json"}, b'{"detail": [{"msg": "not the Router speaking"}]}')
def test_random_bytes_never_refuse_a_submit(status: int, headers: dict[str, str], body: bytes) -> None:
    assume(not names_a_bucket(body))
    is_harmless(SUBMIT, HttpResponse(status, headers, body))


@given(st.integers(100, 599), ANY_HEADERS, ANY_BODY)
def test_random_bytes_never_end_a_read_except_as_a_json_result(
    status: int, headers: dict[str, str], body: bytes
) -> None:
    assume(not names_a_bucket(body))
    reply = HttpResponse(status, headers, body)
    if kind_of(COLLECT, reply) is O.RESULT:
        json.loads(body)
        assert status == 200
    else:
        assert kind_of(COLLECT, reply) in HARMLESS | {O.NOT_READY}
    assert kind_of(STATUS, reply) in HARMLESS | {O.NOT_READY}


@given(st.integers(100, 599), ANY_HEADERS, st.text(max_size=40))
def test_html_is_never_a_result(status: int, headers: dict[str, str], words: str) -> None:
    page = f"<html><body>{words}</body></html>".encode()
    assert kind_of(COLLECT, HttpResponse(status, headers, page)) in HARMLESS


@given(
    st.integers(300, 599),
    st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), min_size=1).map(str.strip).filter(bool),
)
def test_any_bucket_is_kept_verbatim(status: int, bucket: str) -> None:
    for reading in EVERY:
        assert reading(refusal(status, bucket), NOW).error_type == bucket


# ---- no answer at all --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reading", EVERY)
@pytest.mark.parametrize(("sent", "kind"), [(True, O.UNKNOWN), (False, O.UNREACHABLE)])
def test_no_answer_is_unknown_where_the_request_may_have_arrived(
    reading: Reading, sent: bool, kind: OutcomeKind
) -> None:
    outcome = reading(NoResponse("no answer in time", sent=sent), NOW)
    assert (outcome.kind, outcome.detail) == (kind, "no answer in time")
    assert (outcome.http_status, outcome.error_type, outcome.retry_after) == (None, None, None)


# ---- requests ----------------------------------------------------------------------------------------------------


def test_a_submit_is_the_very_bytes_under_the_key() -> None:
    body = b'{"prompt":"caf\xc3\xa9",  "seed":1577134800018226901}'
    request = submit_request(BASE, MODEL, "key-1", body)
    assert (request.method, request.url) == ("POST", f"{BASE}/v2/models/bfl/flux-2-pro/requests")
    assert request.content is body
    assert request.headers["Idempotency-Key"] == "key-1"
    assert request.headers["Content-Type"] == "application/json"


def test_no_request_holds_a_credential() -> None:
    requests = [
        submit_request(BASE, MODEL, "key-1", b"{}"),
        collect_request(BASE, MODEL, "req-1", None),
        status_request(BASE, MODEL, "req-1", None),
    ]
    for request in requests:
        assert not {"x-api-key", "authorization", "cookie"} & {name.lower() for name in request.headers}


def test_the_urls_that_the_router_gave_are_used_as_given() -> None:
    given_url = f"{REQUEST}?region=eu%2Fwest&sig=a%40b"
    assert collect_request(BASE, MODEL, "req-1", given_url).url == given_url
    assert status_request(BASE, MODEL, "req-1", given_url).url == given_url
    assert collect_request(BASE, MODEL, "req-1", given_url).method == "GET"


@pytest.mark.parametrize(
    "spelling", ["https://API.Comfy.org/x", "https://api.comfy.org:443/x", "HTTPS://api.comfy.org/x"]
)
def test_the_same_origin_in_another_spelling_is_the_same(spelling: str) -> None:
    assert collect_request(BASE, MODEL, "req-1", spelling).url == spelling


@pytest.mark.parametrize(
    "given_url",
    [
        None,
        "",
        "https://evil.example/v2/models/bfl/flux-2-pro/requests/req-1",
        "http://api.comfy.org/v2/models/bfl/flux-2-pro/requests/req-1",
        "https://api.comfy.org:8443/x",
        "https://api.comfy.org.evil.example/x",
        "https://api.comfy.org@evil.example/x",
        "https://api.comfy.org:pw@evil.example/x",
        "//api.comfy.org/x",
        "/v2/models/bfl/flux-2-pro/requests/req-1",
        "requests/req-1",
        "ftp://api.comfy.org/x",
        "file:///etc/passwd",
        # Not URLs at all.
        "https://[api.comfy.org/x",
        "https://api.comfy.org:99999/x",
        "https://api.comfy.org:port/x",
        "\x00",
    ],
)
def test_a_url_off_the_routers_origin_is_rebuilt_from_the_ids(given_url: str | None) -> None:
    assert collect_request(BASE, MODEL, "req-1", given_url).url == REQUEST
    assert status_request(BASE, MODEL, "req-1", given_url).url == f"{REQUEST}/status"


def test_ids_are_quoted_into_a_rebuilt_url() -> None:
    url = collect_request(BASE, "black forest/flux?2", "req/1?x=#y", None).url
    assert url == f"{BASE}/v2/models/black%20forest/flux%3F2/requests/req%2F1%3Fx%3D%23y"


@given(st.text(max_size=60) | st.text(max_size=20).map(lambda tail: f"https://{tail}"))
@example("https://api.comfy.org\\@evil.example/x")
@example("https://[::1")
def test_whatever_url_is_given_the_request_stays_on_the_routers_origin(given_url: str) -> None:
    url = collect_request(BASE, MODEL, "req-1", given_url).url
    assert origin_of(url) == origin_of(BASE)
    assert urlsplit(url).hostname == "api.comfy.org"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("https://a.example", "https://a.example:443/x?y", True),
        ("http://a.example", "http://A.EXAMPLE:80", True),
        ("http://127.0.0.1:8188", "http://127.0.0.1:8188/v2", True),
        ("http://127.0.0.1:8188", "http://127.0.0.1:8189", False),
        ("http://127.0.0.1:8188", "http://localhost:8188", False),
        ("https://a.example", "http://a.example", False),
        ("https://a.example", "https://b.a.example", False),
    ],
)
def test_an_origin_is_scheme_host_and_port(one: str, other: str, same: bool) -> None:
    assert (origin_of(one) == origin_of(other)) is same


# ---- cancelling --------------------------------------------------------------------------------------------------


def test_the_ask_to_cancel_goes_to_the_url_as_given_on_the_routers_own_origin_only() -> None:
    given = "https://router.example/v2/models/a/b/requests/r/cancel?x=1"
    assert cancel_request("https://router.example", "a/b", "r", given).url == given
    foreign = cancel_request("https://router.example", "a/b", "r", "https://elsewhere.example/cancel")
    assert (foreign.method, foreign.url) == ("PUT", "https://router.example/v2/models/a/b/requests/r/cancel")


@pytest.mark.parametrize(
    ("status", "document", "kind"),
    [
        (202, {"request_id": "r", "status": "CANCELLATION_REQUESTED"}, OutcomeKind.CANCEL_ASKED),
        (409, {"request_id": "r", "status": "ALREADY_COMPLETED"}, OutcomeKind.CANCEL_TOO_LATE),
        # As older deployments say it.
        (400, {"request_id": "r", "status": "ALREADY_COMPLETED"}, OutcomeKind.CANCEL_TOO_LATE),
        (400, {"error_type": "invalid_input", "detail": "no"}, OutcomeKind.UNKNOWN),
        (404, {"error_type": "request_not_found", "detail": "no"}, OutcomeKind.REQUEST_NOT_FOUND),
        (401, {"error_type": "unauthorized", "detail": "no"}, OutcomeKind.UNAUTHORIZED),
        (503, {"error_type": "service_unavailable", "detail": "no"}, OutcomeKind.UNAVAILABLE),
        (500, {}, OutcomeKind.UNKNOWN),
    ],
)
def test_what_came_of_an_ask_to_cancel(status: int, document: dict[str, object], kind: OutcomeKind) -> None:
    assert outcome_of_cancel(answer(status, document), NOW).kind is kind


def test_what_the_provider_said_is_read_from_the_body_where_the_header_is_missing() -> None:
    body = {"detail": "no", "error_type": "invalid_input", "upstream_detail": "too wide", "refusal_subject": "input"}
    told = {"x-comfy-error-type": "invalid_input", "x-comfy-refusal-subject": "input_image"}
    outcome = outcome_of_submit(HttpResponse(400, told, json.dumps(body).encode()), 0.0)
    assert outcome.notes == {"x-comfy-upstream-detail": "too wide", "x-comfy-refusal-subject": "input_image"}
