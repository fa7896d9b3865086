"""A key is charged at most once in its lifetime, whatever is sent and whenever."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from runner.simulator.catalog import CATALOG
from runner.simulator.config import SimulatorConfig
from runner.simulator.outputs import RunInput
from runner.simulator.queue import SimulatedQueue
from runner.simulator.runs import Submission, Verdict, fingerprint_of

DAY = 24 * 3600.0


def test_same_key_and_body_is_the_same_request(bench: Any) -> None:
    first = bench.submit("k1")
    bench.now += 60
    second = bench.submit("k1")
    assert second.status_code == 201
    assert second.headers["idempotent-replayed"] == "true"
    assert "idempotent-replayed" not in first.headers
    quoted = first.json()
    del quoted["estimate"]
    assert second.json() == quoted
    assert bench.ledger()["by_key"]["k1"] == {
        "runs": 1,
        "billed": 1,
        "sends": 2,
        "model": "bfl/flux-2-pro",
        "request_ids": [quoted["request_id"]],
    }


def test_same_key_for_another_request_is_a_conflict(bench: Any) -> None:
    bench.submit("k1")
    others = [
        bench.submit("k1", body={"prompt": "a dog"}),
        bench.submit("k1", model="/v2/models/bfl/flux-2-flex"),
        bench.call(
            "POST",
            "/v2/models/bfl/flux-2-pro/requests?model_provider=default",
            json={"prompt": "a cat"},
            headers={"Idempotency-Key": "k1"},
        ),
    ]
    for response in others:
        assert (response.status_code, response.json()["error_type"]) == (409, "invalid_input")
        assert "retry-after" not in response.headers
    assert bench.ledger()["runs"] == 1


def test_expired_key_starts_a_new_paid_run(bench: Any) -> None:
    first = bench.submit("k1").json()
    bench.now += DAY - 1
    # A replay does not lengthen the key's life.
    assert bench.submit("k1").json()["request_id"] == first["request_id"]
    bench.now += 1
    assert bench.submit("k1").json()["request_id"] != first["request_id"]
    bench.now += 60
    assert bench.ledger()["by_key"]["k1"]["billed"] == 2


def test_keys_belong_to_the_api_key(bench: Any) -> None:
    first = bench.submit("k1").json()
    second = bench.submit("k1", key="comfyui-other").json()
    assert first["request_id"] != second["request_id"]


def test_calls_without_a_key_are_never_the_same(bench: Any) -> None:
    assert bench.submit().json()["request_id"] != bench.submit().json()["request_id"]


def test_key_of_a_length_that_the_contract_does_not_know(bench: Any) -> None:
    assert bench.submit("k" * 255).status_code == 201
    for key in ("", "k" * 256):
        assert bench.submit(key).json()["error_type"] == "invalid_input"


def test_requests_keys_and_charges_survive_a_restart(start: Any, tmp_path: Path) -> None:
    bench = start(duration=10.0, concurrency=2, journal=tmp_path / "simulator.jsonl")
    handles = [bench.submit(f"k{index}").json() for index in range(4)]
    endless = bench.submit("k4", body={"prompt": "[never]"}).json()
    bench.call("PUT", handles[3]["cancel_url"])
    bench.now += 10
    result = bench.get(handles[0]["response_url"]).content
    before = bench.ledger()
    bench.app.state.simulator.close()

    bench.restart()
    after = bench.ledger()
    assert {name: after[name] for name in ("runs", "billed", "by_key", "running", "queued")} == {
        name: before[name] for name in ("runs", "billed", "by_key", "running", "queued")
    }
    assert bench.get(handles[0]["response_url"]).content == result
    assert bench.submit("k0").headers["idempotent-replayed"] == "true"
    assert bench.get(handles[3]["status_url"]).json()["error_type"] == "cancelled"
    bench.now += 10
    assert bench.get(handles[2]["response_url"]).status_code == 200
    assert bench.get(endless["status_url"]).json()["status"] == "IN_PROGRESS"
    assert bench.ledger()["billed"] == 3


def test_torn_last_line_of_the_journal_is_dropped(start: Any, tmp_path: Path) -> None:
    journal = tmp_path / "simulator.jsonl"
    bench = start(duration=0.0, journal=journal)
    bench.submit("k1")
    bench.app.state.simulator.close()
    whole = journal.read_bytes()
    journal.write_bytes(whole + b'{"event":"run","fing')
    bench.restart()
    assert bench.ledger()["runs"] == 1
    bench.submit("k2")
    bench.app.state.simulator.close()
    bench.restart()
    assert bench.ledger()["by_key"]["k2"]["runs"] == 1


def test_journal_holds_no_api_key(start: Any, tmp_path: Path) -> None:
    bench = start(duration=0.0, journal=tmp_path / "simulator.jsonl")
    bench.submit("k1", key="comfyui-secret")
    assert b"comfyui-secret" not in (tmp_path / "simulator.jsonl").read_bytes()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.sampled_from("abc"), st.sampled_from("xy")),
        st.tuples(st.just("cancel"), st.integers(0, 20), st.just("")),
        st.tuples(st.just("wait"), st.sampled_from([0.0, 0.5, 3.0, 40.0, 100.0, -5.0]), st.just("")),
    ),
    max_size=60,
)


@given(steps=STEPS, concurrency=st.integers(1, 3), duration=st.sampled_from([0.0, 1.0, 30.0]))
def test_a_key_is_charged_at_most_once_in_its_lifetime(steps: Any, concurrency: int, duration: float) -> None:
    lifetime = 50.0
    queue = SimulatedQueue(SimulatorConfig(duration=duration, concurrency=concurrency, key_lifetime=lifetime))
    model = CATALOG["bfl/flux-2-pro"]
    now = latest = 1000.0
    first_used: dict[str, float] = {}
    lifetimes: Counter[str] = Counter()
    requests: list[str] = []
    for step, what, body in steps:
        if step == "wait":
            now += what
            latest = max(latest, now)
        elif step == "cancel" and requests:
            run = queue.by_id(requests[what % len(requests)], now)
            assert run is not None
            queue.cancel(run, now)
        elif step == "send":
            mark = fingerprint_of("POST", "/", "", body.encode())
            sent = Submission("scope", what, mark, model, RunInput(body), "http://test")
            verdict, run = queue.submit(sent, now)
            fresh = what not in first_used or latest - first_used[what] >= lifetime
            assert (verdict is Verdict.ACCEPTED) == fresh
            if fresh:
                assert run is not None
                first_used[what] = latest
                lifetimes[what] += 1
                requests.append(run.id)
    ledger = queue.ledger_as_json(latest + 10_000, summary=False)
    assert ledger["running"] == ledger["queued"] == 0
    for key, account in queue.ledger.by_key.items():
        assert account.runs == lifetimes[key]
        assert account.billed <= lifetimes[key]
    assert queue.ledger.in_flight_peak <= len(requests)
