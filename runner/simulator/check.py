"""Checks a body against a model's input schema and says what is wrong in the FastAPI form.

Knows the part of JSON Schema that the demo models use; the Router's own check is larger (contract:
`RouterValidationErrorDetail`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

Schema = Mapping[str, object]
Problem = dict[str, object]
Place = tuple[str | int, ...]

_TYPES: dict[str, tuple[tuple[type, ...], str, str]] = {
    "string": ((str,), "string_type", "Input should be a valid string"),
    "integer": ((int,), "int_type", "Input should be a valid integer"),
    "number": ((int, float), "float_type", "Input should be a valid number"),
    "boolean": ((bool,), "bool_type", "Input should be a valid boolean"),
    "array": ((list,), "list_type", "Input should be a valid list"),
    "object": ((dict,), "dict_type", "Input should be a valid dictionary"),
}


def _problem(place: Place, kind: str, text: str, value: object, context: Problem | None = None) -> Problem:
    problem: Problem = {"loc": list(place), "msg": text, "type": kind}
    if context is not None:
        problem["ctx"] = context
    problem["input"] = value
    return problem


def _has_type(value: object, name: str) -> bool:
    # In Python a boolean is an integer; in JSON it is not.
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, _TYPES[name][0])


def _bounds(schema: Schema, value: int | float, place: Place) -> Iterator[Problem]:
    low, high = schema.get("minimum"), schema.get("maximum")
    if isinstance(low, int | float) and value < low:
        text = f"Input should be greater than or equal to {low}"
        yield _problem(place, "greater_than_equal", text, value, {"ge": low})
    if isinstance(high, int | float) and value > high:
        text = f"Input should be less than or equal to {high}"
        yield _problem(place, "less_than_equal", text, value, {"le": high})


def _lengths(schema: Schema, value: str | Sequence[object], place: Place) -> Iterator[Problem]:
    short, long, noun, low, high = (
        ("string_too_short", "string_too_long", "String", "minLength", "maxLength")
        if isinstance(value, str)
        else ("too_short", "too_long", "List", "minItems", "maxItems")
    )
    least, most = schema.get(low), schema.get(high)
    if isinstance(least, int) and len(value) < least:
        text = f"{noun} should have at least {least} items or characters"
        yield _problem(place, short, text, value, {"min_length": least})
    if isinstance(most, int) and len(value) > most:
        text = f"{noun} should have at most {most} items or characters"
        yield _problem(place, long, text, value, {"max_length": most})


def _members(schema: Schema, value: Mapping[str, object], place: Place) -> Iterator[Problem]:
    properties = schema.get("properties")
    known: Mapping[str, Schema] = properties if isinstance(properties, dict) else {}
    required = schema.get("required")
    for name in required if isinstance(required, list) else ():
        if name not in value:
            yield _problem((*place, name), "missing", "Field required", dict(value))
    for name, member in value.items():
        if name in known:
            yield from check(known[name], member, (*place, name))


def check(schema: Schema, value: object, place: Place = ("body",)) -> Iterator[Problem]:
    """Every problem of a value, each with its place."""
    name = schema.get("type")
    if isinstance(name, str) and not _has_type(value, name):
        _, kind, text = _TYPES[name]
        yield _problem(place, kind, text, value)
        return
    choices = schema.get("enum")
    if isinstance(choices, list) and value not in choices:
        expected = " or ".join(repr(choice) for choice in choices)
        yield _problem(place, "literal_error", f"Input should be {expected}", value, {"expected": expected})
    if isinstance(value, dict):
        yield from _members(schema, value, place)
    elif isinstance(value, list | str):
        yield from _lengths(schema, value, place)
        items = schema.get("items")
        if isinstance(value, list) and isinstance(items, dict):
            for index, item in enumerate(value):
                yield from check(items, item, (*place, index))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _bounds(schema, value, place)


def unknown_fields(schema: Schema, body: Mapping[str, object]) -> list[Problem]:
    """Top-level fields that the schema does not declare (contract: `reject_unknown_fields`)."""
    properties = schema.get("properties")
    if schema.get("additionalProperties") is not False or not isinstance(properties, dict):
        return []
    return [
        _problem(("body", name), "extra_forbidden", "Extra inputs are not permitted", value)
        for name, value in body.items()
        if name not in properties
    ]
