"""A model's inputs as people read them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from runner.core.inputs import properties_of, required_of, resolved, type_of
from runner.core.jsontext import clip

_BOUNDS: Final[Mapping[str, str]] = {
    "minimum": "from {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "to {}",
    "exclusiveMaximum": "less than {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} entries",
    "maxItems": "at most {} entries",
    "multipleOf": "a multiple of {}",
}


@dataclass(frozen=True, slots=True)
class InputField:
    """One field of a model's input; texts are empty where the schema says nothing."""

    name: str
    type: str
    required: bool
    #: As JSON.
    default: str
    allowed: str
    description: str


def described_fields(document: Mapping[str, object]) -> list[InputField]:
    """The fields of a model's OpenAPI document, in its order; none where it has no schema that could be trusted."""
    required = required_of(document)
    fields: dict[str, InputField] = {}
    for name, given in properties_of(document):
        schema = {**resolved(document, given), **given}
        fields[name] = InputField(
            name=name,
            type=type_of(document, given) or "any",
            required=name in required,
            default=json.dumps(schema["default"], ensure_ascii=False) if "default" in schema else "",
            allowed=", ".join(_allowed(schema)),
            description=_first_sentence(schema.get("description")),
        )
    return list(fields.values())


def _allowed(schema: Mapping[str, Any]) -> Iterator[str]:
    options = schema.get("enum")
    if isinstance(options, list):
        yield ", ".join(clip(option if isinstance(option, str) else json.dumps(option)) for option in options)
    for keyword, words in _BOUNDS.items():
        bound = schema.get(keyword)
        if isinstance(bound, int | float) and not isinstance(bound, bool):
            yield words.format(bound)


def _first_sentence(text: object) -> str:
    if not isinstance(text, str):
        return ""
    sentence, stop, _ = " ".join(text.split()).partition(". ")
    return sentence + stop.strip()
