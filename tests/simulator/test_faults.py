"""Every fault does what its name says, as often as its dose says."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from runner.simulator.config import SimulatorConfig
from runner.simulator.faults import FAULT_NAMES, Dose, FaultPlan, Injector, parse_faults, plan_as_json, with_faults
from runner.simulator.server import SimulatorServer

FLUX = "/v2/models/bfl/flux-2-pro"


def faulty(start: Any, *faults: str, **settings: Any) -> Any:
    return start(faults=parse_faults(faults), **({"duration": 0.0} | settings))


def test_words_of_a_plan() -> None:
    plan = parse_faults(["drop-after-accept=3", "fail=1/10", "dead_links", "retry_after=soon", "slow=0.5", "relink"])
    assert plan == FaultPlan(
        drop_after_accept=Dose(first=3),
        fail=Dose(every=10),
        dead_links=Dose.parse("always"),
        retry_after="soon",
        slow=0.5,
        relink=True,
    )
    assert with_faults(FaultPlan(), plan_as_json(plan)) == plan
    assert with_faults(plan, plan_as_json(FaultPlan())) == FaultPlan()


@pytest.mark.parametrize(
    "word",
    ["nonsense=1", "submit_500=often", "submit_500=-1", "fail=1/0", "fail=2/3", "credits=x", "slow=nan", "relink=2"],
)
def test_bad_word_names_the_fault_and_the_known_ones(word: str) -> None:
    with pytest.raises(ValueError, match=word.partition("=")[0]) as caught:
        parse_faults([word])
    for name in FAULT_NAMES:
        assert name in str(caught.value)


def test_doses_count_by_subject_and_over_all() -> None:
    injector = Injector(FaultPlan(submit_500=Dose(first=1), key_busy=Dose(first=2)))
    assert [injector.submit("a") for _ in range(4)] == ["submit_500", "key_busy", "key_busy", None]
    assert injector.submit("b") == "submit_500"
    every = Injector(FaultPlan(submit_500=Dose(every=3)))
    assert [every.submit(str(index)) for index in range(6)] == [None, None, "submit_500"] * 2


@pytest.mark.parametrize(
    ("fault", "status", "bucket"),
    [
        ("submit_500", 500, None),
        ("submit_502", 502, None),
        ("submit_504", 504, None),
        ("submit_html", 200, None),
        ("concurrency_limit", 429, "concurrency_limit_exceeded"),
        ("backlog_full", 429, "queue_backlog_full"),
        ("key_busy", 409, "concurrency_limit_exceeded"),
        ("key_conflict", 409, "invalid_input"),
        ("unauthorized", 401, "unauthorized"),
        ("forbidden", 403, "forbidden"),
        ("rate_limited", 429, "rate_limited"),
        ("unavailable", 503, "service_unavailable"),
        ("unavailable_bare", 503, "service_unavailable"),
    ],
)
def test_refused_submit_records_nothing(start: Any, fault: str, status: int, bucket: str | None) -> None:
    bench = faulty(start, f"{fault}=1")
    response = bench.submit("k1")
    assert (response.status_code, response.headers.get("x-comfy-error-type")) == (status, bucket)
    assert ("retry-after" in response.headers) == (fault in ("key_busy", "rate_limited", "unavailable"))
    again = bench.submit("k1")
    assert again.status_code == 201
    assert "idempotent-replayed" not in again.headers


def test_deadline_then_busy_then_the_replayed_handle(start: Any) -> None:
    bench = faulty(start, "deadline_exceeded=1", "key_busy=1")
    first, second, third = (bench.submit("k1") for _ in range(3))
    assert (first.status_code, first.json()["error_type"], first.headers["retry-after"]) == (
        504,
        "deadline_exceeded",
        "3",
    )
    assert (second.status_code, second.headers["retry-after"]) == (409, "2")
    assert third.headers["idempotent-replayed"] == "true"
    assert bench.ledger()["by_key"]["k1"]["billed"] == 1


def test_cut_handle_still_is_a_paid_request(start: Any) -> None:
    bench = faulty(start, "submit_cut_json=1")
    with pytest.raises(ValueError, match=r"."):
        bench.submit("k1").json()
    assert bench.submit("k1").headers["idempotent-replayed"] == "true"


@pytest.mark.parametrize(
    ("fault", "status"), [("read_500", 500), ("read_502", 502), ("read_504", 504), ("request_not_found", 404)]
)
def test_failed_read_leaves_the_request_alone(start: Any, fault: str, status: int) -> None:
    bench = faulty(start, f"{fault}=2")
    handle = bench.submit("k1").json()
    urls = [handle["status_url"], handle["response_url"], handle["response_url"]]
    assert [bench.get(url).status_code for url in urls] == [status, status, 200]


@pytest.mark.parametrize("fault", ["read_html", "read_cut_json"])
def test_unreadable_answer(start: Any, fault: str) -> None:
    bench = faulty(start, f"{fault}=1")
    handle = bench.submit("k1").json()
    broken = bench.get(handle["response_url"])
    assert broken.status_code == 200
    with pytest.raises(ValueError, match=r"."):
        broken.json()


def test_a_wait_is_named_by_an_answer_that_is_cut_off_too(start: Any) -> None:
    bench = faulty(start, "read_cut_json=1", duration=10.0)
    cut = bench.get(bench.submit("k1").json()["response_url"])
    assert cut.status_code == 202
    assert int(cut.headers["retry-after"]) > 0


@pytest.mark.parametrize("text", ["Wed, 21 Oct 2026 07:28:00 GMT", "0.5", "0", "-5", "nan", "9999999999", ""])
def test_retry_after_verbatim(start: Any, text: str) -> None:
    bench = faulty(start, duration=10.0)
    bench.call("POST", "/_simulator/faults", json={"retry_after": text})
    handle = bench.submit("k1").json()
    assert bench.get(handle["status_url"]).headers["retry-after"] == text


def test_two_retry_after_headers(start: Any) -> None:
    bench = faulty(start, "retry_after=1|2", duration=10.0)
    handle = bench.submit("k1").json()
    assert bench.get(handle["status_url"]).headers.get_list("retry-after") == ["1", "2"]


def test_run_faults(start: Any) -> None:
    bench = faulty(start, "fail=1/2", "fail_type=provider_timeout")
    handles = [bench.submit(f"k{index}").json() for index in range(4)]
    errors = [bench.get(handle["status_url"]).json().get("error_type") for handle in handles]
    assert errors == [None, "provider_timeout", None, "provider_timeout"]
    assert bench.ledger()["billed"] == 2
    bench.call("POST", "/_simulator/faults", json={"fail": 0, "never_finish": "always"})
    stuck = bench.submit("k9").json()
    bench.now += 10**6
    assert bench.get(stuck["status_url"]).json()["status"] == "IN_PROGRESS"


def test_late_cancel_on_an_older_deployment(start: Any) -> None:
    bench = faulty(start, "legacy_cancel")
    handle = bench.submit("k1").json()
    response = bench.call("PUT", handle["cancel_url"])
    assert (response.status_code, response.json()["status"]) == (400, "ALREADY_COMPLETED")


def test_faults_are_shown_and_a_bad_change_is_refused(start: Any) -> None:
    bench = faulty(start, "submit_500=1/7")
    assert bench.get("/_simulator/faults").json()["submit_500"] == "1/7"
    response = bench.call("POST", "/_simulator/faults", json={"nonsense": 1})
    assert response.status_code == 400
    assert "nonsense" in response.json()["detail"]
    assert bench.call("POST", "/_simulator/faults", content=b"[]").status_code == 400


@pytest.mark.parametrize(("fault", "runs_before_the_answer"), [("drop_before_accept", 0), ("drop_after_accept", 1)])
def test_dropped_submit(fault: str, runs_before_the_answer: int) -> None:
    config = SimulatorConfig(duration=0.0, faults=parse_faults([f"{fault}=3"]))
    with SimulatorServer(config) as server, httpx.Client(base_url=server.base_url) as client:
        headers = {"X-API-Key": "k", "Idempotency-Key": "one"}
        for _ in range(3):
            with pytest.raises(httpx.RemoteProtocolError):
                client.post(f"{FLUX}/requests", json={"prompt": "a cat"}, headers=headers)
            ledger = client.get("/_simulator/ledger", params={"summary": "1"}).json()
            assert ledger["runs"] == runs_before_the_answer
            assert "by_key" not in ledger
        assert client.post(f"{FLUX}/requests", json={"prompt": "a cat"}, headers=headers).status_code == 201
        account = client.get("/_simulator/ledger").json()["by_key"]["one"]
    assert (account["sends"], account["runs"], account["billed"]) == (4, 1, 1)


def test_dropped_read_and_dropped_download() -> None:
    config = SimulatorConfig(duration=0.0, faults=parse_faults(["read_drop=1", "media_drop=1", "media_truncated=1"]))
    with SimulatorServer(config) as server, httpx.Client(headers={"X-API-Key": "k"}) as client:
        submitted = client.post(f"{server.base_url}{FLUX}/requests", json={"prompt": "a cat"}).json()
        with pytest.raises(httpx.RemoteProtocolError):
            client.get(submitted["response_url"])
        link = client.get(submitted["response_url"]).json()["result"]["sample"]
        with httpx.Client() as downloads:
            for _ in range(2):
                with pytest.raises(httpx.RemoteProtocolError):
                    downloads.get(link)
            assert downloads.get(link).content.startswith(b"\x89PNG")


def test_redirected_download_crosses_to_another_host() -> None:
    config = SimulatorConfig(duration=0.0, faults=parse_faults(["media_redirect=1"]))
    with SimulatorServer(config) as server, httpx.Client(headers={"X-API-Key": "k"}) as client:
        submitted = client.post(f"{server.base_url}{FLUX}/requests", json={"prompt": "a cat"}).json()
        link = client.get(submitted["response_url"]).json()["result"]["sample"]
        with httpx.Client(follow_redirects=True) as downloads:
            response = downloads.get(link)
    assert response.url.host == "localhost"
    assert response.content.startswith(b"\x89PNG")


def test_taken_port_is_said_clearly() -> None:
    with SimulatorServer(SimulatorConfig()) as server:
        port = int(server.base_url.rpartition(":")[2])
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}"):
            SimulatorServer(SimulatorConfig(port=port)).start()
