"""What a call asks: its body, key, model and page, or the refusal that it earns."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping

from starlette.requests import Request

from runner.simulator.answers import InvalidBody, Refusal
from runner.simulator.catalog import CATALOG, Model
from runner.simulator.wording import no_model

#: Contract: `413` on every route that takes a body.
LARGEST_BODY = 10 * 1024 * 1024
_LONGEST_KEY = 255
_DEFAULT_PAGE, _LARGEST_PAGE = 20, 100
#: Spellings of "this model's own provider" (contract: `model_provider`).
_OWN_PROVIDER = frozenset({"", "default", "comfy", "comfyui"})
#: Fields of the models with alternates that these have no word for.
_UNTRANSLATED = frozenset({"safety_tolerance", "output_format"})


async def read_body(request: Request) -> bytes:
    """The body, read to its end even when it is too large, so that the caller sees the answer."""
    body = bytearray()
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= LARGEST_BODY:
            body += chunk
    if size > LARGEST_BODY:
        raise Refusal(413, "invalid_input", f"The body is larger than {LARGEST_BODY} bytes.")
    return bytes(body)


def idempotency_key(request: Request) -> str | None:
    """The key of a submit; a malformed one is refused."""
    key = request.headers.get("idempotency-key")
    if key is not None and not 1 <= len(key) <= _LONGEST_KEY:
        raise Refusal(400, "invalid_input", f"An Idempotency-Key has 1 to {_LONGEST_KEY} characters.")
    return key


def model_id_of(request: Request) -> str:
    """The id that the path names."""
    return f"{request.path_params['provider']}/{request.path_params['model']}"


def model_of(model_id: str) -> Model:
    """A model of the catalog, or a refusal with suggestions (contract: `model_not_found`)."""
    model = CATALOG.get(model_id)
    if model is None:
        raise no_model(model_id)
    return model


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def checked_body(request: Request, model: Model) -> Mapping[str, object]:
    """The body as a document that the model accepts (contract: `RouterModelValidationError`)."""
    provider = request.query_params.get("model_provider", "")
    if provider not in _OWN_PROVIDER and provider not in model.alternates:
        raise Refusal(400, "invalid_input", "The model_provider named does not serve this model.")
    try:
        document = json.loads(request.state.body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise Refusal(400, "invalid_input", "The body is not a JSON document.") from None
    if not isinstance(document, dict):
        text = "Input should be a valid dictionary"
        raise InvalidBody([{"loc": ["body"], "msg": text, "type": "dict_type", "input": document}])
    named = document.get("model")
    if isinstance(named, str) and named not in (model.id, model.name):
        text = f"The body names another model than the path, {model.id}"
        raise InvalidBody([{"loc": ["body", "model"], "msg": text, "type": "value_error", "input": named}])
    if _in_providers_own_form(request):
        return document
    problems = model.problems(document, strict=request.query_params.get("reject_unknown_fields") == "true")
    if problems:
        raise InvalidBody(problems)
    return document


def _in_providers_own_form(request: Request) -> bool:
    """Whether the body is another provider's, which nobody here can check (contract: `StrictMode`)."""
    other = request.query_params.get("model_provider", "") not in _OWN_PROVIDER
    return other and request.query_params.get("strict_mode") == "true"


def dropped_fields(request: Request, document: Mapping[str, object]) -> tuple[str, ...]:
    """What of the body the provider asked for has no word for (contract: `X-Comfy-Router-Dropped-Params`)."""
    provider = request.query_params.get("model_provider", "")
    if provider in _OWN_PROVIDER or _in_providers_own_form(request):
        return ()
    return tuple(f"{name} ({provider} has no such field)" for name in sorted(document.keys() & _UNTRANSLATED))


def page_size(text: str | None) -> int:
    """Contract: `RouterCatalogLimit`; clamped above, the default below 1."""
    try:
        limit = _DEFAULT_PAGE if text is None else int(text)
    except ValueError:
        raise Refusal(400, "invalid_input", "limit is not a whole number.") from None
    return _DEFAULT_PAGE if limit < 1 else min(limit, _LARGEST_PAGE)


def cursor_to(place: int) -> str:
    """An opaque cursor to the page that begins at a place."""
    return base64.urlsafe_b64encode(f"page:{place}".encode()).decode().rstrip("=")


def cursor_place(cursor: str | None) -> int:
    """The place that a cursor of `cursor_to` names; any other is refused."""
    if cursor is None:
        return 0
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except (ValueError, binascii.Error):
        text = ""
    word, _, place = text.partition(":")
    if word != "page" or not place.isdigit():
        raise Refusal(400, "invalid_input", "The cursor is malformed or has expired.")
    return int(place)
