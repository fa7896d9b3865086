"""The model catalog: what the Router says of a model before anything is sent to it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol
from urllib.parse import quote

from runner.core.errors import BatchError
from runner.core.queryparams import MODEL_PROVIDER
from runner.core.quotes import NO_ANSWER, NOT_OFFERED, Quote, read_quote
from runner.core.wire import HttpRequest, HttpResponse, Reply

#: Pages of the catalog that are read: a cursor that leads round in a circle would have no end.
MOST_PAGES = 1000


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
class CatalogEntry:
    """One line of the catalog."""

    id: str
    charges_on_policy_rejection: str


@dataclass(frozen=True, slots=True)
class NoSuchModel:
    """The Router does not know the model; `detail` may name others like it."""

    id: str
    detail: str


def look_up_model(router: Exchange, model: str, known: ModelInfo | None = None) -> ModelInfo | NoSuchModel:
    """Two reads: the model's entry and its schema document (contract: `getRouterModel`, `getRouterModelInputSchema`).

    The document of `known` is sent for only where it has changed. Raises `RouterUnusable` where either cannot be had.
    """
    path = f"{router.base_url}/v2/models/{quote(model)}"
    entry = router.exchange(HttpRequest("GET", path))
    missing = _missing(entry, model)
    if missing is not None:
        return missing
    fields = _document(entry, model)
    held = known.etag if known is not None and known.document is not None else None
    schema = router.exchange(HttpRequest("GET", f"{path}/openapi.json", {"If-None-Match": held} if held else {}))
    status = schema.status if isinstance(schema, HttpResponse) else None
    if known is not None and held and status == 304:
        return replace(known, charges_on_policy_rejection=_charges(fields))
    return ModelInfo(
        id=model,
        charges_on_policy_rejection=_charges(fields),
        document=None if status == 404 else _document(schema, model),
        etag=schema.headers.get("etag") if isinstance(schema, HttpResponse) else None,
    )


def list_models(router: Exchange) -> Iterator[CatalogEntry]:
    """The whole catalog, page by page (contract: `listRouterModels`). Raises `RouterUnusable`."""
    cursor = ""
    for _ in range(MOST_PAGES):
        page = _document(router.exchange(HttpRequest("GET", f"{router.base_url}/v2/models?limit=100{cursor}")), "")
        entries = page.get("data")
        for fields in entries if isinstance(entries, list) else ():
            if isinstance(fields, dict) and isinstance(fields.get("id"), str):
                yield CatalogEntry(fields["id"], _charges(fields))
        following = page.get("next_cursor")
        if page.get("has_more") is not True or not isinstance(following, str):
            return
        cursor = f"&cursor={quote(following, safe='')}"


def ask_quote(router: Exchange, model: str, query: str, body: bytes) -> Quote:
    """What a body would cost (contract: `estimateRouterModelCost`, which takes no parameter but the provider)."""
    provider = "&".join(part for part in query.split("&") if part.startswith(f"{MODEL_PROVIDER}="))
    url = f"{router.base_url}/v2/models/{quote(model)}/estimate" + (f"?{provider}" if provider else "")
    reply = router.exchange(HttpRequest("POST", url, {"Content-Type": "application/json"}, body))
    if not isinstance(reply, HttpResponse):
        return Quote(reason=NO_ANSWER)
    if reply.status == 200:
        return read_quote(_json(reply.body))
    bucket = reply.headers.get("x-comfy-error-type") or _json(reply.body).get("error_type")
    if reply.status == 403 and bucket == "not_enabled":
        return Quote(reason=NOT_OFFERED)
    return Quote(reason=bucket if isinstance(bucket, str) and bucket else NO_ANSWER)


def _charges(fields: Mapping[str, Any]) -> str:
    billing = fields.get("billing")
    charges = billing.get("charges_on_policy_rejection") if isinstance(billing, dict) else None
    return charges if isinstance(charges, str) else "unknown"


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
        raise RouterUnusable(f"{_subject(model)} cannot be looked up: {reply.cause}", advice="comfy-batch doctor")
    if reply.status in {401, 403}:
        raise RouterUnusable(
            f"the Router refuses the API key ({reply.status})", advice="check COMFY_API_KEY, then: comfy-batch doctor"
        )
    document = _json(reply.body)
    if reply.status != 200 or not document:
        raise RouterUnusable(
            f"{_subject(model)} cannot be looked up: the Router answers {reply.status}",
            advice="the same command again in a minute",
        )
    return document


def _subject(model: str) -> str:
    return f"the model `{model}`" if model else "the catalog"


def _json(body: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
