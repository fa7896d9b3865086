"""The model catalog: what the Router says of a model before anything is sent to it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote

from runner.core.errors import BatchError
from runner.core.wire import HttpRequest, HttpResponse, Reply


class Exchange(Protocol):
    """The Router's side of one exchange."""

    base_url: str

    def exchange(self, request: HttpRequest) -> Reply:
        """Send `request` once."""
        ...


class RouterUnusable(BatchError):
    """The Router cannot be asked, or answered with something else than the catalog."""

    exit_code = 3


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """One model as the catalog has it."""

    id: str
    charges_on_policy_rejection: str
    #: The model's own OpenAPI document; `None` where it has none.
    document: Mapping[str, Any] | None
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class NoSuchModel:
    """The Router does not know the model; `detail` may name others like it."""

    id: str
    detail: str


def look_up_model(router: Exchange, model: str) -> ModelInfo | NoSuchModel:
    """Two reads: the model's entry and its schema document (contract: `getRouterModel`, `getRouterModelInputSchema`).

    Raises `RouterUnusable` where either cannot be had.
    """
    path = f"{router.base_url}/v2/models/{quote(model)}"
    entry = router.exchange(HttpRequest("GET", path))
    missing = _missing(entry, model)
    if missing is not None:
        return missing
    fields = _document(entry, model)
    schema = router.exchange(HttpRequest("GET", f"{path}/openapi.json"))
    known = not (isinstance(schema, HttpResponse) and schema.status == 404)
    billing = fields.get("billing")
    charges = billing.get("charges_on_policy_rejection") if isinstance(billing, dict) else None
    return ModelInfo(
        id=model,
        charges_on_policy_rejection=charges if isinstance(charges, str) else "unknown",
        document=_document(schema, model) if known else None,
        etag=schema.headers.get("etag") if isinstance(schema, HttpResponse) else None,
    )


def check_access(router: Exchange) -> str | None:
    """One cheap read of the catalog under the key: `None` when the Router answers it, else why not."""
    reply = router.exchange(HttpRequest("GET", f"{router.base_url}/v2/models?limit=1"))
    if not isinstance(reply, HttpResponse):
        return reply.cause
    if reply.status == 200:
        return None
    return f"it answers {reply.status} {reply.headers.get('x-comfy-error-type', '')}".strip()


def _missing(reply: Reply, model: str) -> NoSuchModel | None:
    if not isinstance(reply, HttpResponse) or reply.status != 404:
        return None
    detail = _json(reply.body).get("detail")
    return NoSuchModel(model, detail if isinstance(detail, str) else "the Router does not know it")


def _document(reply: Reply, model: str) -> Mapping[str, Any]:
    if not isinstance(reply, HttpResponse):
        raise RouterUnusable(f"the model `{model}` cannot be looked up: {reply.cause}", advice="comfy-batch doctor")
    if reply.status in {401, 403}:
        raise RouterUnusable(
            f"the Router refuses the API key ({reply.status})", advice="check COMFY_API_KEY, then: comfy-batch doctor"
        )
    document = _json(reply.body)
    if reply.status != 200 or not document:
        raise RouterUnusable(
            f"the model `{model}` cannot be looked up: the Router answers {reply.status}",
            advice="the same command again in a minute",
        )
    return document


def _json(body: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
