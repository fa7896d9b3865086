"""What a body breaks of its model's schema, in words: by line and field, and never with the value itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final

from runner.core.errors import Problem
from runner.core.jsontext import clip

#: Options named in a message; of more only the count.
MOST_OPTIONS: Final = 12
_LIMITS: Final[Mapping[str, str]] = {
    "maximum": "must be at most {limit}",
    "minimum": "must be at least {limit}",
    "exclusiveMaximum": "must be less than {limit}",
    "exclusiveMinimum": "must be more than {limit}",
    "maxLength": "has more than {limit} characters",
    "minLength": "has fewer than {limit} characters",
    "maxItems": "has more than {limit} entries",
    "minItems": "has fewer than {limit} entries",
    "maxProperties": "has more than {limit} fields",
    "minProperties": "has fewer than {limit} fields",
    "multipleOf": "must be a multiple of {multiple_of}",
    "uniqueItems": "has an entry twice",
    "pattern": "does not have the form that the model takes",
    "anyOf": "has none of the forms that the model takes",
    "oneOf": "has not exactly one of the forms that the model takes",
}
_TYPES: Final[Mapping[str, str]] = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


@dataclass(frozen=True, slots=True)
class Violation:
    """One rule of a schema that a body breaks: where, which keyword, and what the keyword says."""

    path: tuple[str | int, ...]
    keyword: str
    data: Mapping[str, Any] = field(default_factory=dict)


def problems_of(violations: Iterable[Violation], line: int, fields: Iterable[str]) -> list[Problem]:
    """The violations of one row's body as problems of its line; `fields` are those that the model has."""
    known = list(fields)
    return [problem for violation in violations for problem in _problems(violation, line, known)]


def _problems(violation: Violation, line: int, known: Sequence[str]) -> Iterable[Problem]:
    data = violation.data
    if violation.keyword == "required":
        return (Problem(line, "is missing", field=_place((*violation.path, str(data.get("property", "?"))))),)
    if violation.keyword in {"additionalProperties", "unevaluatedProperties"}:
        names = [str(name) for name in data.get("unexpected", ())]
        advice = known if not violation.path else ()
        return [
            Problem(
                line, "the model has no such field", field=_place((*violation.path, name)), advice=_near(name, advice)
            )
            for name in names
        ]
    return (Problem(line, _words(violation.keyword, data), field=_place(violation.path)),)


def _near(name: str, known: Sequence[str]) -> str | None:
    close = get_close_matches(name, known, n=1)
    return f"the nearest is `{close[0]}`" if close else None


def _place(path: Sequence[str | int]) -> str:
    """`body.contents[0].parts`."""
    return "body" + "".join(f"[{part}]" if isinstance(part, int) else f".{clip(part)}" for part in path)


def _words(keyword: str, data: Mapping[str, Any]) -> str:
    if keyword == "type":
        return f"must be {' or '.join(_TYPES.get(kind, kind) for kind in data.get('types', ()))}"
    if keyword in {"enum", "const"}:
        options = list(data.get("options", ())) or [data.get("expected_value")]
        shown = ", ".join(
            clip(value if isinstance(value, str) else json.dumps(value)) for value in options[:MOST_OPTIONS]
        )
        more = f" … ({len(options)} in all)" if len(options) > MOST_OPTIONS else ""
        return f"must be one of {shown}{more}" if len(options) > 1 else f"must be {shown}"
    if keyword in _LIMITS:
        try:
            return _LIMITS[keyword].format(**data)
        except KeyError:
            pass
    return f"is not what the model takes ({keyword})"
