"""A simulator whose clock the test holds, called without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from runner.simulator.app import create_app
from runner.simulator.config import SimulatorConfig

FLUX = "/v2/models/bfl/flux-2-pro"


class Bench:
    """One simulator, a clock, and calls under one API key."""

    def __init__(self, config: SimulatorConfig) -> None:
        self.now = 1_800_000_000.0
        self.config = config
        self.app: Starlette = create_app(config, lambda: self.now)

    def call(self, method: str, url: str, *, key: str | None = "comfyui-test", **more: Any) -> httpx.Response:
        """One call; `key` is the API key."""
        headers = httpx.Headers(more.pop("headers", None))
        if key is not None:
            headers["X-API-Key"] = key

        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://simulator.test") as client:
                return await client.request(method, url, headers=headers, **more)

        return asyncio.run(send())

    def get(self, url: str, **more: Any) -> httpx.Response:
        """A read."""
        return self.call("GET", url, **more)

    def submit(
        self, idempotency_key: str | None = None, *, model: str = FLUX, body: object = None, **more: Any
    ) -> httpx.Response:
        """A submit of a small body."""
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        document = {"prompt": "a cat"} if body is None else body
        return self.call("POST", f"{model}/requests", json=document, headers=headers, **more)

    def ledger(self) -> dict[str, Any]:
        """The truth about money."""
        document: dict[str, Any] = self.get("/_simulator/ledger").json()
        return document

    def restart(self) -> None:
        """End the process, as it were, and start another on the same journal."""
        self.app = create_app(self.config, lambda: self.now)

    def close(self) -> None:
        """Let go of the journal."""
        self.app.state.simulator.close()


@pytest.fixture
def start(request: pytest.FixtureRequest) -> Callable[..., Bench]:
    """Start a simulator with some settings."""

    def make(**settings: Any) -> Bench:
        bench = Bench(SimulatorConfig(**settings))
        request.addfinalizer(bench.close)
        return bench

    return make


@pytest.fixture
def bench(start: Callable[..., Bench]) -> Bench:
    """A simulator with two slots and runs of ten seconds."""
    return start(duration=10.0, concurrency=2)
