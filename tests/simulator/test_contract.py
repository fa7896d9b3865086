"""The routes and words of the contract."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from runner.simulator.catalog import CATALOG

FLUX = "/v2/models/bfl/flux-2-pro"


def test_handle_holds_absolute_urls_and_an_estimate(bench: Any) -> None:
    response = bench.submit("k1")
    assert response.status_code == 201
    handle = response.json()
    assert str(uuid.UUID(handle["request_id"])) == handle["request_id"]
    base = f"http://simulator.test{FLUX}/requests/{handle['request_id']}"
    assert handle["response_url"] == base
    assert handle["status_url"] == f"{base}/status"
    assert handle["cancel_url"] == f"{base}/cancel"
    assert handle["status"] == "IN_QUEUE"
    assert handle["estimate"]["source"] == "exact"
    assert "retry-after" not in response.headers


def test_states_follow_the_clock(bench: Any) -> None:
    handles = [bench.submit(f"k{index}").json() for index in range(4)]
    states = [bench.get(handle["status_url"]).json() for handle in handles]
    assert [state["status"] for state in states] == ["IN_PROGRESS", "IN_PROGRESS", "IN_QUEUE", "IN_QUEUE"]
    assert [state.get("queue_position") for state in states] == [None, None, 0, 1]
    bench.now += 10
    assert [bench.get(handle["status_url"]).json()["status"] for handle in handles] == [
        "COMPLETED",
        "COMPLETED",
        "IN_PROGRESS",
        "IN_PROGRESS",
    ]
    bench.now += 10
    assert bench.get(handles[3]["response_url"]).status_code == 200


def test_result_read_answers_with_the_status_until_the_run_ends(bench: Any) -> None:
    handle = bench.submit("k1").json()
    waiting = bench.get(handle["response_url"])
    assert waiting.status_code == 202
    assert waiting.json()["status"] == "IN_PROGRESS"
    assert waiting.headers["retry-after"] == "5"
    bench.now += 7.5
    assert bench.get(handle["status_url"]).headers["retry-after"] == "3"
    bench.now += 2.5
    first, second = (bench.get(handle["response_url"]) for _ in range(2))
    assert first.status_code == 200
    assert first.headers["x-content-type-options"] == "nosniff"
    assert first.content == second.content


def test_the_back_of_the_queue_is_told_to_wait_longer(bench: Any) -> None:
    handles = [bench.submit(f"k{index}").json() for index in range(9)]
    waits = [int(bench.get(handle["status_url"]).headers["retry-after"]) for handle in handles]
    assert waits == sorted(waits)
    assert waits[0] < waits[2] < waits[8]


def test_reads_before_the_named_wait_are_counted(bench: Any) -> None:
    handle = bench.submit("k1").json()
    bench.get(handle["status_url"])
    bench.now += 4
    bench.get(handle["response_url"])
    assert bench.ledger()["early_polls"] == 1
    bench.now += 5
    bench.get(handle["response_url"])
    assert bench.ledger()["early_polls"] == 1


def test_finished_requests_are_gone_after_their_retention(start: Any) -> None:
    bench = start(duration=1.0, retention=100.0)
    handle = bench.submit("k1").json()
    bench.now += 100
    assert bench.get(handle["response_url"]).status_code == 200
    bench.now += 1
    assert bench.get(handle["response_url"]).status_code == 410
    assert bench.get(handle["status_url"]).status_code == 410


def test_requests_are_hidden_from_other_keys_and_models(bench: Any) -> None:
    handle = bench.submit("k1").json()
    other_key = bench.get(handle["status_url"], key="comfyui-other")
    other_model = bench.get(handle["status_url"].replace("flux-2-pro", "flux-2-flex"))
    for response in (other_key, other_model):
        assert response.status_code == 404
        assert response.json()["error_type"] == "request_not_found"


def test_cancel_of_a_waiting_request_is_free_and_of_a_running_one_is_not(bench: Any) -> None:
    handles = [bench.submit(f"k{index}").json() for index in range(4)]
    for handle in (handles[2], handles[0]):
        response = bench.call("PUT", handle["cancel_url"])
        assert (response.status_code, response.json()["status"]) == (202, "CANCELLATION_REQUESTED")
        state = bench.get(handle["status_url"]).json()
        assert (state["status"], state["error_type"]) == ("COMPLETED", "cancelled")
        result = bench.get(handle["response_url"])
        assert (result.status_code, result.headers["x-comfy-error-type"]) == (409, "cancelled")
        assert bench.call("PUT", handle["cancel_url"]).status_code == 409
    # The slot of the running one went to the last in line at once.
    assert bench.get(handles[3]["status_url"]).json()["status"] == "IN_PROGRESS"
    bench.now += 100
    keys = bench.ledger()["by_key"]
    assert {key: account["billed"] for key, account in keys.items()} == {"k0": 1, "k1": 1, "k2": 0, "k3": 1}


def test_positions_pass_over_cancelled_requests(bench: Any) -> None:
    handles = [bench.submit(f"k{index}").json() for index in range(7)]
    for index in (3, 5):
        bench.call("PUT", handles[index]["cancel_url"])
    assert [bench.get(handles[index]["status_url"]).json()["queue_position"] for index in (2, 4, 6)] == [0, 1, 2]
    bench.now += 10
    assert bench.get(handles[4]["status_url"]).json()["status"] == "IN_PROGRESS"
    assert bench.get(handles[6]["status_url"]).json()["queue_position"] == 0


@pytest.mark.parametrize(
    ("bucket", "status"),
    [
        ("content_policy_violation", 400),
        ("provider_error", 502),
        ("provider_timeout", 504),
        ("queue_timeout", 504),
        ("internal_error", 500),
        ("brand_new_bucket", 500),
    ],
)
def test_failed_run_is_completed_with_its_bucket(bench: Any, bucket: str, status: int) -> None:
    handle = bench.submit("k1", body={"prompt": f"a cat [fail:{bucket}]"}).json()
    bench.now += 10
    state = bench.get(handle["status_url"])
    assert (state.status_code, state.json()["error_type"]) == (200, bucket)
    result = bench.get(handle["response_url"])
    assert (result.status_code, result.headers["x-comfy-error-type"]) == (status, bucket)
    assert result.json()["error_type"] == bucket
    assert bench.ledger()["billed"] == 0


def test_policy_refusal_is_charged_where_the_catalog_says_so(bench: Any) -> None:
    bench.submit("k1", model="/v2/models/bfl/flux-2-flex", body={"prompt": "[fail:content_policy_violation]"})
    bench.now += 10
    assert bench.ledger()["billed"] == 1


def test_markers_slow_and_never(bench: Any) -> None:
    slow = bench.submit("k1", body={"prompt": "[slow:30] a cat"}).json()
    never = bench.submit("k2", body={"prompt": "[never]"}).json()
    bench.now += 29
    assert bench.get(slow["status_url"]).json()["status"] == "IN_PROGRESS"
    bench.now += 1
    assert bench.get(slow["status_url"]).json()["status"] == "COMPLETED"
    bench.now += 10**6
    assert bench.get(never["status_url"]).json()["status"] == "IN_PROGRESS"


def test_backlog_and_credits_refuse_and_record_nothing(start: Any) -> None:
    bench = start(duration=10.0, concurrency=1, backlog=1)
    bench.submit("k1")
    bench.submit("k2")
    refused = bench.submit("k3")
    assert (refused.status_code, refused.json()["error_type"]) == (429, "queue_backlog_full")
    bench.now += 10
    assert bench.submit("k3").status_code == 201
    bench.call("POST", "/_simulator/faults", json={"credits": 3})
    bench.now += 100
    assert bench.submit("k4").json()["error_type"] == "insufficient_credits"
    bench.call("POST", "/_simulator/faults", json={"credits": None})
    assert bench.submit("k4").status_code == 201


def test_calls_without_a_known_key_are_unauthorized(start: Any) -> None:
    bench = start(api_keys=frozenset({"comfyui-good"}))
    for key in (None, "", "comfyui-bad"):
        response = bench.get("/v2/models", key=key)
        assert (response.status_code, response.headers["x-comfy-error-type"]) == (401, "unauthorized")
    assert bench.get("/v2/models", key="comfyui-good").status_code == 200
    bearer = bench.get("/v2/models", key=None, headers={"Authorization": "Bearer comfyui-good"})
    assert bearer.status_code == 200


@pytest.mark.parametrize(
    ("body", "place", "kind", "context"),
    [
        ({}, ["body", "prompt"], "missing", None),
        ({"prompt": 7}, ["body", "prompt"], "string_type", None),
        ({"prompt": ""}, ["body", "prompt"], "string_too_short", {"min_length": 1}),
        ({"prompt": "x", "width": 8}, ["body", "width"], "greater_than_equal", {"ge": 64}),
        ({"prompt": "x", "width": 9000}, ["body", "width"], "less_than_equal", {"le": 4096}),
        ({"prompt": "x", "width": True}, ["body", "width"], "int_type", None),
        (
            {"prompt": "x", "output_format": "gif"},
            ["body", "output_format"],
            "literal_error",
            {"expected": "'png' or 'jpeg'"},
        ),
        ({"prompt": "x", "model": "flux-1"}, ["body", "model"], "value_error", None),
        ([1], ["body"], "dict_type", None),
        (None, ["body"], "dict_type", None),
    ],
)
def test_body_that_the_schema_refuses(bench: Any, body: Any, place: Any, kind: str, context: Any) -> None:
    response = bench.call(
        "POST",
        f"{FLUX}/requests",
        content=json.dumps(body),
        headers={"Idempotency-Key": "k1", "Content-Type": "application/json"},
    )
    assert response.status_code == 422
    assert response.headers["x-comfy-error-type"] == "invalid_input"
    problem = response.json()["detail"][0]
    assert (problem["loc"], problem["type"], problem.get("ctx")) == (place, kind, context)
    assert problem["msg"]
    # The refusal let the key go.
    assert bench.submit("k1").status_code == 201


@pytest.mark.parametrize("content", [b"", b"{", b'{"prompt": NaN}', b"\xff", b"[" * 100_000])
def test_body_that_is_no_json(bench: Any, content: bytes) -> None:
    response = bench.call("POST", f"{FLUX}/requests", content=content)
    assert (response.status_code, response.json()["error_type"]) == (400, "invalid_input")


def test_unknown_fields_are_refused_only_when_asked(bench: Any) -> None:
    body = {"prompt": "x", "colour": "red"}
    assert bench.submit("k1", body=body).status_code == 201
    response = bench.call("POST", f"{FLUX}/requests?reject_unknown_fields=true", json=body)
    assert response.json()["detail"][0]["type"] == "extra_forbidden"


def test_body_above_ten_mebibytes(bench: Any) -> None:
    response = bench.submit("k1", body={"prompt": "x" * (10 * 1024 * 1024)})
    assert (response.status_code, response.json()["error_type"]) == (413, "invalid_input")


def test_unknown_model_names_similar_ones(bench: Any) -> None:
    response = bench.submit("k1", model="/v2/models/bfl/flux-2-prooo")
    assert (response.status_code, response.json()["error_type"]) == (404, "model_not_found")
    assert "bfl/flux-2-pro" in response.json()["detail"]


def test_model_that_answers_in_bytes_is_not_queued(bench: Any) -> None:
    response = bench.submit("k1", model="/v2/models/elevenlabs/eleven-v3", body={"text": "hello"})
    assert (response.status_code, response.json()["error_type"]) == (403, "not_enabled")
    assert bench.ledger()["runs"] == 0


def test_a_provider_that_does_not_serve_the_model_is_refused(bench: Any) -> None:
    response = bench.call("POST", f"{FLUX}/requests?model_provider=runware", json={"prompt": "x"})
    assert (response.status_code, response.json()["error_type"]) == (400, "invalid_input")


def test_another_provider_serves_the_native_body_and_says_what_it_had_no_word_for(start: Callable[..., Any]) -> None:
    bench = start(duration=0.0)
    body = {"prompt": "x", "safety_tolerance": 1}
    handle = bench.call("POST", f"{FLUX}/requests?model_provider=fal", json=body).json()
    result = bench.get(handle["response_url"].removeprefix("http://simulator.test"))
    (told,) = json.loads(result.headers["X-Comfy-Router-Dropped-Params"])
    assert told.startswith("safety_tolerance")


def test_in_strict_mode_the_body_is_the_other_providers_own_and_is_not_checked(start: Callable[..., Any]) -> None:
    bench = start(duration=0.0)
    body = {"image_size": "square"}
    assert bench.call("POST", f"{FLUX}/requests?model_provider=fal", json=body).status_code == 422
    handle = bench.call("POST", f"{FLUX}/requests?model_provider=fal&strict_mode=true", json=body).json()
    result = bench.get(handle["response_url"].removeprefix("http://simulator.test"))
    assert (result.status_code, "X-Comfy-Router-Dropped-Params" in result.headers) == (200, False)


def test_a_key_stands_for_its_query_parameters_too(bench: Any) -> None:
    given = {"json": {"prompt": "x"}, "headers": {"Idempotency-Key": "k1"}}
    assert bench.call("POST", f"{FLUX}/requests", **given).status_code == 201
    assert bench.call("POST", f"{FLUX}/requests?model_provider=fal", **given).status_code == 409


def test_every_answer_names_its_call(bench: Any) -> None:
    ids = set()
    answers = [
        bench.submit("k1"),
        bench.get("/v2/models"),
        bench.get("/v2/models", key=None),
        bench.get("/nowhere"),
        bench.call("POST", FLUX, json={}),
        bench.get(f"{FLUX}/requests/none"),
    ]
    for response in answers:
        ids.add(str(uuid.UUID(response.headers["x-comfy-request-id"])))
        assert response.status_code < 400 or response.headers["x-comfy-error-type"]
    assert len(ids) == len(answers)
    assert answers[4].status_code == 405


def test_catalog_pages_cover_every_model_once(bench: Any) -> None:
    seen: list[str] = []
    params: dict[str, Any] = {"limit": 5}
    while True:
        page = bench.get("/v2/models", params=params).json()
        assert page["limit"] == 5
        seen += [entry["id"] for entry in page["data"]]
        if not page["has_more"]:
            assert "next_cursor" not in page
            break
        params["cursor"] = page["next_cursor"]
    assert seen == sorted(CATALOG)


@pytest.mark.parametrize(("asked", "served"), [("500", 100), ("0", 20), ("-3", 20)])
def test_page_size_is_clamped(bench: Any, asked: str, served: int) -> None:
    assert bench.get("/v2/models", params={"limit": asked}).json()["limit"] == served


@pytest.mark.parametrize("params", [{"cursor": "junk"}, {"limit": "many"}])
def test_malformed_page_is_refused(bench: Any, params: dict[str, str]) -> None:
    response = bench.get("/v2/models", params=params)
    assert (response.status_code, response.json()["error_type"]) == (400, "invalid_input")


@pytest.mark.parametrize("model_id", sorted(CATALOG))
def test_model_and_schema(bench: Any, model_id: str) -> None:
    provider, _, name = model_id.partition("/")
    entry = bench.get(f"/v2/models/{model_id}").json()
    assert (entry["id"], entry["provider"], entry["model"]) == (model_id, provider, name)
    assert entry["billing"]["charges_on_policy_rejection"] in ("yes", "no", "unknown")
    schema = bench.get(f"/v2/models/{model_id}/openapi.json")
    assert "private" in schema.headers["cache-control"]
    document = schema.json()
    assert document["x-comfy-input-schema-authored"] is (CATALOG[model_id].input_schema is not None)
    same = bench.get(f"/v2/models/{model_id}/openapi.json", headers={"If-None-Match": f"W/{schema.headers['etag']}"})
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", schema.headers["etag"])
    assert not CATALOG[model_id].problems(CATALOG[model_id].example)


def test_estimate(bench: Any) -> None:
    def estimate(model: str, body: object) -> Any:
        return bench.call("POST", f"/v2/models/{model}/estimate", json=body)

    exact = estimate("recraft/recraftv3", {"prompt": "x", "n": 3}).json()
    assert (exact["source"], exact["amount"], exact["credits"]) == ("exact", "0.12", 25.32)
    ranged = estimate("bfl/flux-2-flex", {"prompt": "x"}).json()
    assert (ranged["source"], ranged["min_amount"], ranged["max_amount"]) == ("estimated", "0.05", "0.12")
    unknown = estimate("openai/gpt-image-2", {"prompt": "x"}).json()
    assert (unknown["source"], unknown["reason"], "amount" in unknown) == ("unknown", "not_quotable", False)
    assert estimate("bfl/flux-2-pro", {}).status_code == 422
    bench.call("POST", "/_simulator/faults", json={"estimate_disabled": True})
    assert estimate("bfl/flux-2-pro", {"prompt": "x"}).json()["error_type"] == "not_enabled"
    assert "estimate" not in bench.submit("k1").json()
