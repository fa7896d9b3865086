"""Comfy's own client understands the simulator."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from comfy_sdk import NO_RETRY, AlreadyCompleted, Comfy
from comfy_sdk.router_exceptions import (
    Cancelled,
    ContentPolicyViolation,
    InsufficientCredits,
    InvalidInput,
    ModelNotFound,
    NotEnabled,
    ProviderError,
    RequestNotFound,
    RouterError,
    Unauthorized,
)

from runner.simulator.catalog import CATALOG
from runner.simulator.config import SimulatorConfig
from runner.simulator.faults import parse_faults
from runner.simulator.server import SimulatorServer

FLUX = "bfl/flux-2-pro"


@pytest.fixture(scope="module")
def server() -> Iterator[SimulatorServer]:
    with SimulatorServer(SimulatorConfig(duration=0.0, api_keys=frozenset({"comfyui-test"}))) as running:
        yield running


@pytest.fixture
def client(server: SimulatorServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Comfy]:
    monkeypatch.setenv("COMFY_ROUTER_BASE_URL", server.base_url)
    with Comfy(api_key="comfyui-test", retry=NO_RETRY) as sdk:
        yield sdk


def test_submits_follows_and_collects(client: Comfy) -> None:
    handle = client.models.submit(FLUX, {"prompt": "a cat"})
    updates = list(handle.iter_events(timeout=20))
    assert updates[-1].is_completed
    assert updates[-1].error_type is None
    result = handle.get(timeout=20)
    assert isinstance(result, dict)
    assert result["status"] == "Ready"
    assert "/media/" in result["result"]["sample"]


def test_follows_a_run_that_takes_time(client: Comfy) -> None:
    handle = client.models.submit(FLUX, {"prompt": "a cat [slow:0.6]"})
    updates = list(handle.iter_events(timeout=20))
    assert [update.status for update in updates] == ["IN_PROGRESS", "COMPLETED"]
    assert updates[0].retry_after == 1


def test_replays_and_meets_a_conflict(client: Comfy) -> None:
    first = client.models.submit(FLUX, {"prompt": "a cat"}, idempotency_key="peer-replay")
    second = client.models.submit(FLUX, {"prompt": "a cat"}, idempotency_key="peer-replay")
    assert first.request_id == second.request_id
    with pytest.raises(InvalidInput) as caught:
        client.models.submit(FLUX, {"prompt": "a dog"}, idempotency_key="peer-replay")
    assert caught.value.http_status == 409


def test_cancels(client: Comfy) -> None:
    handle = client.models.submit(FLUX, {"prompt": "[never]"})
    assert handle.status().status == "IN_PROGRESS"
    assert handle.cancel().status == "CANCELLATION_REQUESTED"
    assert handle.status().error_type == "cancelled"
    with pytest.raises(Cancelled):
        handle.get(timeout=20)
    with pytest.raises(AlreadyCompleted):
        handle.cancel()


@pytest.mark.parametrize(
    ("bucket", "kind"),
    [
        ("content_policy_violation", ContentPolicyViolation),
        ("provider_error", ProviderError),
        ("brand_new_bucket", RouterError),
    ],
)
def test_failed_runs_raise_their_own_errors(client: Comfy, bucket: str, kind: type[RouterError]) -> None:
    handle = client.models.submit(FLUX, {"prompt": f"[fail:{bucket}]"})
    with pytest.raises(kind) as caught:
        handle.get(timeout=20)
    assert caught.value.error_type == bucket


def test_refused_submits_raise_their_own_errors(client: Comfy) -> None:
    with pytest.raises(InvalidInput) as invalid:
        client.models.submit(FLUX, {"prompt": "x", "width": 1})
    assert invalid.value.http_status == 422
    assert invalid.value.errors[0].location == "body.width"
    assert invalid.value.errors[0].ctx == {"ge": 64}
    assert invalid.value.request_id
    with pytest.raises(ModelNotFound, match="bfl/flux-2-pro"):
        client.models.submit("bfl/flux-2-prooo", {"prompt": "x"})
    with pytest.raises(NotEnabled):
        client.models.submit("elevenlabs/eleven-v3", {"text": "x"})
    with pytest.raises(RequestNotFound):
        client.models.handle(FLUX, "6f1a1a6e-6a53-4a5f-9d3a-2b3b0a1f9c21").status()


def test_bad_key_is_unauthorized(server: SimulatorServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMFY_ROUTER_BASE_URL", server.base_url)
    with Comfy(api_key="comfyui-other", retry=NO_RETRY) as sdk, pytest.raises(Unauthorized):
        sdk.models.submit(FLUX, {"prompt": "x"})


def test_catalog_and_schema(client: Comfy) -> None:
    assert {model.id for model in client.models.list(limit=5)} == set(CATALOG)
    page = client.models.list(limit=5).page()
    assert (page.limit, page.has_more) == (5, True)
    schema = client.models.schema(FLUX)
    assert schema.document is not None
    assert f"/v2/models/{FLUX}" in schema.document["paths"]
    again = client.models.schema(FLUX, etag=schema.etag)
    assert again.unchanged
    assert again.etag == schema.etag


def test_own_retry_gets_through_lost_answers_and_pays_once(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = parse_faults(["rate_limited=1", "deadline_exceeded=1", "retry_after=1"])
    with SimulatorServer(SimulatorConfig(duration=0.0, faults=faults)) as server:
        monkeypatch.setenv("COMFY_ROUTER_BASE_URL", server.base_url)
        with Comfy(api_key="comfyui-test") as sdk:
            handle = sdk.models.submit(FLUX, {"prompt": "a cat"}, idempotency_key="peer-lost")
            assert isinstance(handle.get(timeout=20), dict)
        account = httpx.get(f"{server.base_url}/_simulator/ledger").json()["by_key"]["peer-lost"]
    assert (account["sends"], account["runs"], account["billed"]) == (2, 1, 1)


def test_account_without_credits(monkeypatch: pytest.MonkeyPatch) -> None:
    with SimulatorServer(SimulatorConfig(duration=0.0, faults=parse_faults(["credits=1"]))) as server:
        monkeypatch.setenv("COMFY_ROUTER_BASE_URL", server.base_url)
        with Comfy(api_key="comfyui-test", retry=NO_RETRY) as sdk:
            sdk.models.submit(FLUX, {"prompt": "x"})
            with pytest.raises(InsufficientCredits):
                sdk.models.submit(FLUX, {"prompt": "x"})
