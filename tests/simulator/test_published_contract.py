"""The simulator against the published contract, by calls that nobody thought of.

The contract lies beside the checkout on some machines; where it does not, `test_contract.py` holds the same by hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from runner.simulator.config import SimulatorConfig
from runner.simulator.server import SimulatorServer

CONTRACT = Path(__file__).resolve().parents[2].parent / "shared" / "router-openapi.yaml"
KEY = "comfyui-known"
MODEL = "/v2/models/{provider}/{model}"
PAINT = "/v2/models/bfl/flux-2-pro"
#: What a run can end with, and the status under which its result is read then.
BUCKETS = {
    "content_policy_violation": 400,
    "invalid_input": 422,
    "provider_error": 502,
    "provider_timeout": 504,
    "queue_timeout": 504,
    "internal_error": 500,
}
#: How a submit is refused.
REFUSALS = {
    "bad_request": 400,
    "too_large": 413,
    "invalid_input": 422,
    "not_enabled": 403,
    "not_queueable": 403,
    "model_not_found": 404,
    "concurrency_limit": 429,
    "backlog_full": 429,
    "rate_limited": 429,
    "unauthorized": 401,
    "forbidden": 403,
    "unavailable": 503,
    "unavailable_bare": 503,
}


@pytest.fixture(scope="module")
def router() -> Iterator[str]:
    with SimulatorServer(SimulatorConfig(duration=0.2, api_keys=frozenset({KEY}))) as server:
        yield server.base_url


if CONTRACT.exists():
    import schemathesis
    from hypothesis import HealthCheck, settings
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_headers_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    #: A body that the contract takes need not be one that the model takes, so what is refused is not looked at.
    CHECKS = [
        not_a_server_error,
        status_code_conformance,
        content_type_conformance,
        response_headers_conformance,
        response_schema_conformance,
    ]
    schema = schemathesis.openapi.from_path(CONTRACT)
    # The synchronous form is not simulated.
    queued = schema.exclude(path="/v2/models/{provider}/{model}", method="POST")

    @queued.parametrize()
    @settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    def test_every_answer_is_one_that_the_contract_has(case: Any, router: str) -> None:
        case.call_and_validate(base_url=router, headers={"X-API-Key": KEY}, checks=CHECKS)

    def conforms(path: str, method: str, response: httpx.Response) -> None:
        schema[path][method].validate_response(response)

    def test_a_request_conforms_from_its_submit_to_its_end(router: str) -> None:
        with httpx.Client(base_url=router, headers={"X-API-Key": KEY}, timeout=10) as client:

            def set_faults(**faults: object) -> None:
                client.post("/_simulator/faults", json=faults)

            def submitted(key: str, prompt: str = "a cat") -> httpx.Response:
                response = client.post(f"{PAINT}/requests", json={"prompt": prompt}, headers={"Idempotency-Key": key})
                conforms(f"{MODEL}/requests", "POST", response)
                return response

            def read(handle: httpx.Response, until: int) -> None:
                for path, url in (("/status", "status_url"), ("", "response_url")):
                    response = client.get(handle.json()[url])
                    conforms(f"{MODEL}/requests/{{request_id}}{path}", "GET", response)
                assert response.status_code == until

            def cancelled(handle: httpx.Response) -> int:
                response = client.put(handle.json()["cancel_url"])
                conforms(f"{MODEL}/requests/{{request_id}}/cancel", "PUT", response)
                return response.status_code

            running = submitted("k1", "a cat [never]")
            assert [submitted("k1", "a cat [never]").status_code, submitted("k1", "a dog").status_code] == [201, 409]
            read(running, 202)
            assert cancelled(running) == 202
            read(running, 409)
            assert cancelled(running) == 409
            for number, bucket in enumerate(BUCKETS):
                read(submitted(f"failing-{number}", f"a cat [fail:{bucket}] [slow:0]"), BUCKETS[bucket])
            read(submitted("done", "a cat [slow:0]"), 200)
            for number, (fault, status) in enumerate(REFUSALS.items()):
                set_faults(**{fault: "always"})
                assert submitted(f"refused-{number}").status_code == status
                set_faults(**{fault: 0})
