"""The models of the simulator: their schemas, prices, billing facts and outputs."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property

from runner.simulator import outputs
from runner.simulator.check import Problem, Schema, check, unknown_fields
from runner.simulator.outputs import Finished, Output, RunInput

#: US dollars to Comfy credits (contract: `RouterCostEstimate.credits`).
CREDITS_PER_DOLLAR = 211
_LONGEST_PROMPT_KEPT = 4000


@dataclass(frozen=True)
class Model:
    """One model of the catalog."""

    id: str
    output: Callable[[Finished], Output]
    #: `None`: no schema has been authored, any object is accepted.
    input_schema: Schema | None
    output_schema: Schema
    modalities: tuple[str, ...]
    example: Mapping[str, object]
    #: Seconds that a run takes.
    duration: float = 1.0
    #: Contract: `RouterChargesOnPolicyRejection`.
    charges_on_policy_rejection: str = "no"
    #: US dollars a picture or clip; `None` cannot be quoted, two are a range.
    price: Decimal | tuple[Decimal, Decimal] | None = None
    #: False: the partner answers with bytes and the queue refuses the model.
    queueable: bool = True
    #: Other providers that a body can be translated for (contract: `ModelProvider`).
    alternates: frozenset[str] = frozenset()
    #: Where the prompt stands when it is no top-level field of that name.
    prompt_field: str = "prompt"

    @property
    def provider(self) -> str:
        """First segment of the id."""
        return self.id.partition("/")[0]

    @property
    def name(self) -> str:
        """Second segment of the id."""
        return self.id.partition("/")[2]

    def entry(self) -> dict[str, object]:
        """The catalog's line (contract: `RouterModelListEntry`)."""
        billing = {"charges_on_policy_rejection": self.charges_on_policy_rejection}
        return {"id": self.id, "provider": self.provider, "model": self.name, "billing": billing}

    @cached_property
    def schema_document(self) -> bytes:
        """The standalone OpenAPI document, as bytes so that its tag can be computed."""
        return json.dumps(_schema_document(self), indent=1).encode()

    @cached_property
    def schema_tag(self) -> str:
        """Strong entity tag over the document's bytes."""
        return f'"{hashlib.sha256(self.schema_document).hexdigest()}"'

    def problems(self, body: Mapping[str, object], *, strict: bool = False) -> list[Problem]:
        """What the input schema does not accept in a body."""
        if self.input_schema is None:
            return []
        found = list(check(self.input_schema, body))
        return found + unknown_fields(self.input_schema, body) if strict else found

    def read_input(self, body: Mapping[str, object]) -> RunInput:
        """What of a checked body decides the output."""
        width, height = _size(body)
        seed = body.get("seed")
        return RunInput(
            prompt=_prompt(body, self.prompt_field)[:_LONGEST_PROMPT_KEPT],
            count=_whole(body.get("n", body.get("num_images")), 1, 10),
            width=width,
            height=height,
            seed=seed if isinstance(seed, int) and not isinstance(seed, bool) else None,
        )

    def quote(self, given: RunInput, priced_at: str) -> dict[str, object]:
        """What a run would cost (contract: `RouterCostEstimate`)."""
        quote: dict[str, object] = {
            "source": "unknown",
            "currency": "USD",
            "provider": self.provider,
            "model": self.id,
            "pricing_as_of": priced_at,
        }
        if self.price is None:
            return quote | {"reason": "not_quotable"}
        if isinstance(self.price, tuple):
            low, high = self.price
            bounds = {"min_amount": str(low), "max_amount": str(high)}
            cents = {"min_amount_cents": float(low * 100), "max_amount_cents": float(high * 100)}
            return quote | {"source": "estimated"} | bounds | cents
        amount = self.price * given.count
        priced = round(float(amount * CREDITS_PER_DOLLAR), 2)
        exact = {"source": "exact", "amount": str(amount), "amount_cents": float(amount * 100)}
        return quote | exact | {"credits": priced}

    def credits_used(self, given: RunInput) -> str | None:
        """The text of `X-Comfy-Credits-Used`; `None` where the price is known only afterwards."""
        if not isinstance(self.price, Decimal):
            return None
        return f"{self.price * given.count * CREDITS_PER_DOLLAR:.2f}".rstrip("0").rstrip(".")


def _whole(value: object, default: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        return default
    return min(most, max(1, value))


_LARGEST_SIDE = 16_384


def _size(body: Mapping[str, object]) -> tuple[int, int]:
    """Width and height, from their own fields or from a `size` of the form `1024x1536`."""
    size = body.get("size")
    if isinstance(size, str):
        wide, cross, high = size.partition("x")
        if cross and wide.isdigit() and high.isdigit():
            return _whole(int(wide), 1024, _LARGEST_SIDE), _whole(int(high), 1024, _LARGEST_SIDE)
    return _whole(body.get("width"), 1024, _LARGEST_SIDE), _whole(body.get("height"), 1024, _LARGEST_SIDE)


def _texts(value: object) -> list[str]:
    """Every `text` or `content` string below a value, in order."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
    if isinstance(value, dict):
        wanted = (value.get("parts"), value.get("content"), value.get("text"))
        return [text for item in wanted if item is not None for text in _texts(item)]
    return []


def _prompt(body: Mapping[str, object], field_name: str) -> str:
    for name in (field_name, "prompt", "text", "input", "contents", "messages"):
        texts = _texts(body.get(name))
        if texts:
            return "\n".join(texts)
    return json.dumps(body, sort_keys=True)


def _schema_document(model: Model) -> dict[str, object]:
    """One operation with the input under `requestBody` and the output under `200` (contract: openapi.json)."""
    authored = model.input_schema is not None
    given = model.input_schema or {"type": "object", "additionalProperties": True}
    extensions: dict[str, object] = {
        "x-comfy-input-schema-authored": authored,
        "x-comfy-router-output-modalities": list(model.modalities),
    }
    media_type = "application/json" if model.queueable else "audio/mpeg"
    operation: dict[str, object] = {
        "operationId": "run",
        "summary": f"Run {model.id}",
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {"$ref": "#/components/schemas/Input"},
                    "example": dict(model.example),
                }
            },
        },
        "responses": {
            "200": {
                "description": "The model's native output.",
                "content": {media_type: {"schema": {"$ref": "#/components/schemas/Output"}}},
            }
        },
    }
    return {
        "openapi": "3.0.2",
        "info": {"title": model.id, "version": "1.0"},
        **extensions,
        "paths": {f"/v2/models/{model.id}": {"post": operation | extensions}},
        "components": {"schemas": {"Input": dict(given), "Output": dict(model.output_schema)}},
    }


def _object(properties: Mapping[str, Schema], *required: str, closed: bool = False) -> Schema:
    schema: dict[str, object] = {"type": "object", "properties": dict(properties)}
    if required:
        schema["required"] = list(required)
    if closed:
        schema["additionalProperties"] = False
    return schema


def _list(items: Schema, **more: object) -> Schema:
    return {"type": "array", "items": items, **more}


_TEXT: Schema = {"type": "string"}
_PROMPT: Schema = {"type": "string", "minLength": 1, "maxLength": 32_000, "description": "What to make."}
_SEED: Schema = {"type": "integer", "minimum": 0, "description": "The same seed gives the same output."}
_SIDE: Schema = {"type": "integer", "minimum": 64, "maximum": 4096, "default": 1024}
_URI: Schema = {"type": "string", "format": "uri"}
_BYTES: Schema = {"type": "string", "format": "byte"}

_FLUX_INPUT = _object(
    {
        "prompt": _PROMPT,
        "width": _SIDE,
        "height": _SIDE,
        "seed": _SEED,
        "output_format": {"type": "string", "enum": ["png", "jpeg"], "default": "png"},
        "safety_tolerance": {"type": "integer", "minimum": 0, "maximum": 5, "default": 2},
        "input_image": {"type": "string", "description": "A picture to edit: base64 or a link."},
    },
    "prompt",
    closed=True,
)
_FLUX_OUTPUT = _object(
    {
        "id": _TEXT,
        "status": _TEXT,
        "result": _object({"sample": _URI, "prompt": _TEXT, "seed": {"type": "integer"}}),
    }
)
_FLUX_EXAMPLE = {"prompt": "A single red maple leaf on a plain white background."}
_MESSAGE = _object({"role": {"type": "string", "enum": ["user", "assistant"]}}, "role")

_MODELS = (
    Model(
        "bfl/flux-2-pro",
        outputs.bfl,
        _FLUX_INPUT,
        _FLUX_OUTPUT,
        ("image",),
        _FLUX_EXAMPLE,
        duration=1.2,
        alternates=frozenset({"fal", "wavespeed"}),
        charges_on_policy_rejection="no",
        price=Decimal("0.03"),
    ),
    Model(
        "bfl/flux-2-flex",
        outputs.bfl,
        _object(
            {
                "prompt": _PROMPT,
                "width": _SIDE,
                "height": _SIDE,
                "seed": _SEED,
                "steps": {"type": "integer", "minimum": 1, "maximum": 50, "default": 28},
                "guidance": {"type": "number", "minimum": 1.5, "maximum": 10, "default": 4.5},
                "prompt_upsampling": {"type": "boolean", "default": True},
            },
            "prompt",
            closed=True,
        ),
        _FLUX_OUTPUT,
        ("image",),
        _FLUX_EXAMPLE,
        duration=0.8,
        charges_on_policy_rejection="yes",
        price=(Decimal("0.05"), Decimal("0.12")),
    ),
    Model(
        "recraft/recraftv3",
        outputs.recraft,
        _object(
            {
                "prompt": {"type": "string", "minLength": 1, "maxLength": 1000},
                "n": {"type": "integer", "minimum": 1, "maximum": 6, "default": 1},
                "size": {"type": "string", "default": "1024x1024"},
                "style": {"type": "string"},
            },
            "prompt",
        ),
        _object({"created": {"type": "integer"}, "data": _list(_object({"image_id": _TEXT, "url": _URI}))}),
        ("image",),
        {"prompt": "A single red maple leaf on a plain white background.", "n": 1},
        duration=1.0,
        charges_on_policy_rejection="unknown",
        price=Decimal("0.04"),
    ),
    Model(
        "openai/gpt-image-2",
        outputs.openai_image,
        _object(
            {
                "prompt": _PROMPT,
                "n": {"type": "integer", "minimum": 1, "maximum": 10, "default": 1},
                "size": {"type": "string", "enum": ["1024x1024", "1536x1024", "1024x1536", "auto"]},
                "quality": {"type": "string", "enum": ["low", "medium", "high", "auto"]},
            },
            "prompt",
        ),
        _object({"created": {"type": "integer"}, "data": _list(_object({"b64_json": _BYTES}))}),
        ("image",),
        {"prompt": "a rocketship on a launchpad", "quality": "low", "size": "1024x1024"},
        duration=2.0,
        charges_on_policy_rejection="yes",
    ),
    Model(
        "vertexai/gemini-3-pro-image",
        outputs.gemini,
        _object({"contents": _list({"type": "object"}, minItems=1)}, "contents"),
        _object({"candidates": _list(_object({"content": {"type": "object"}, "finishReason": _TEXT}))}),
        ("image", "text"),
        {"contents": [{"role": "user", "parts": [{"text": "A robot learning to paint."}]}]},
        duration=1.5,
        charges_on_policy_rejection="unknown",
        prompt_field="contents",
    ),
    Model(
        "kling/kling-v3",
        outputs.kling,
        _object(
            {
                "prompt": {"type": "string", "minLength": 1, "maxLength": 2500},
                "duration": {"type": "string", "enum": ["5", "10"], "default": "5"},
                "aspect_ratio": {"type": "string", "enum": ["16:9", "9:16", "1:1"]},
                "mode": {"type": "string", "enum": ["std", "pro"]},
            },
            "prompt",
        ),
        _object(
            {
                "data": _object(
                    {"task_result": _object({"videos": _list(_object({"id": _TEXT, "url": _URI}))})},
                )
            }
        ),
        ("video",),
        {"prompt": "A red fox trotting through falling snow.", "duration": "5", "mode": "std"},
        duration=3.0,
        price=Decimal("0.35"),
    ),
    Model(
        "heygen/starfish",
        outputs.heygen,
        _object({"text": _PROMPT, "voice_id": _TEXT}, "text", "voice_id"),
        _object({"data": _object({"audio_url": _URI, "duration": {"type": "number"}})}),
        ("audio",),
        {"text": "Hello from Comfy.", "voice_id": "d2f4f24783d04e22ab49ee8fdc3715e0"},
        duration=0.6,
        prompt_field="text",
    ),
    Model(
        "meshy/meshy-7",
        outputs.meshy,
        _object(
            {
                "prompt": {"type": "string", "minLength": 1, "maxLength": 600},
                "mode": {"type": "string", "enum": ["preview", "refine"]},
                "art_style": {"type": "string", "enum": ["realistic", "sculpture"]},
            },
            "prompt",
            "mode",
        ),
        _object({"model_urls": _object({"glb": _URI}), "thumbnail_url": _URI}),
        ("3d",),
        {"prompt": "a red cube", "mode": "preview", "art_style": "realistic"},
        duration=2.5,
        price=Decimal("0.20"),
    ),
    Model(
        "anthropic/claude-sonnet-5",
        outputs.claude,
        _object(
            {
                "messages": _list(_MESSAGE, minItems=1),
                "max_tokens": {"type": "integer", "minimum": 1},
            },
            "messages",
            "max_tokens",
        ),
        _object({"content": _list(_object({"type": _TEXT, "text": _TEXT}))}),
        ("text",),
        {"max_tokens": 64, "messages": [{"role": "user", "content": "Reply with the single word: ok"}]},
        duration=0.5,
        prompt_field="messages",
    ),
    Model(
        "fal/h3-max",
        outputs.fal_video,
        _object({"prompt": _PROMPT, "seed": _SEED}, "prompt"),
        _object({"video": _object({"url": _URI, "content_type": _TEXT, "file_name": _TEXT})}),
        ("video", "audio"),
        {"prompt": "A paper boat on a stream."},
        duration=2.0,
        charges_on_policy_rejection="unknown",
    ),
    Model(
        "fal/fal-gpt-image-2",
        outputs.fal_images,
        None,
        {"type": "object", "additionalProperties": True},
        ("image",),
        {"prompt": "a rocketship on a launchpad"},
        duration=1.0,
        charges_on_policy_rejection="unknown",
    ),
    Model(
        "elevenlabs/eleven-v3",
        outputs.heygen,
        _object({"text": _PROMPT, "voice_id": _TEXT}, "text"),
        {"type": "string", "format": "binary"},
        ("audio",),
        {"text": "Hello from Comfy."},
        queueable=False,
        prompt_field="text",
    ),
)

#: By id, in the order of the catalog's pages.
CATALOG: Mapping[str, Model] = {model.id: model for model in sorted(_MODELS, key=lambda model: model.id)}


def suggestions(model_id: str) -> list[str]:
    """Up to three ids that look like an unknown one (contract: `model_not_found`)."""
    close = difflib.get_close_matches(model_id, CATALOG, n=3, cutoff=0.5)
    if close:
        return close
    provider = model_id.partition("/")[0]
    return [known for known in CATALOG if known.startswith(f"{provider}/")][:3]
