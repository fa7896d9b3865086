"""What a body breaks of its schema, in words that name the place and never the value."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.inputs import input_schema_of
from runner.core.violations import MOST_OPTIONS, Violation, problems_of
from runner.router.schemas import BodyChecker, checker_of

FIELDS = {
    "prompt": {"type": "string", "minLength": 3, "maxLength": 10},
    "width": {"type": "integer", "minimum": 64, "maximum": 4096, "multipleOf": 16},
    "strength": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    "format": {"enum": ["png", "jpeg"]},
    "mode": {"const": "std"},
    "images": {"type": "array", "items": {"type": "object", "required": ["url"]}, "minItems": 1, "maxItems": 2},
    "upscale": {"type": "boolean"},
    "size": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
    "name": {"type": "string", "pattern": "^[a-z]+$"},
}
SCHEMA = {"type": "object", "properties": FIELDS, "required": ["prompt"], "additionalProperties": False}


def document(schema: object = SCHEMA, version: str = "3.1.0", **more: object) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Input"}}}
    return {
        "openapi": version,
        "paths": {"/v2/models/a/b": {"post": {"requestBody": {"content": content}}}},
        "components": {"schemas": {"Input": schema}},
        **more,
    }


def checker(schema: object = SCHEMA, version: str = "3.1.0") -> BodyChecker:
    found = checker_of(document(schema, version))
    assert found is not None
    return found


def said(body: object, schema: object = SCHEMA, version: str = "3.1.0") -> list[str]:
    violations = checker(schema, version).check(json.dumps(body).encode())
    return [str(problem) for problem in problems_of(violations, 7, FIELDS)]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"prompt": "ab"}, "line 7, `body.prompt`: has fewer than 3 characters"),
        ({"prompt": "x" * 11}, "line 7, `body.prompt`: has more than 10 characters"),
        ({"prompt": 5}, "line 7, `body.prompt`: must be a text"),
        ({"width": 8192}, "line 7, `body.width`: must be at most 4096"),
        ({"width": 48}, "line 7, `body.width`: must be at least 64"),
        ({"width": 65}, "line 7, `body.width`: must be a multiple of 16"),
        ({"width": "64"}, "line 7, `body.width`: must be a whole number"),
        ({"strength": 1}, "line 7, `body.strength`: must be less than 1"),
        ({"strength": 0}, "line 7, `body.strength`: must be more than 0"),
        ({"format": "gif"}, "line 7, `body.format`: must be one of png, jpeg"),
        ({"mode": "pro"}, "line 7, `body.mode`: must be std"),
        ({"images": []}, "line 7, `body.images`: has fewer than 1 entries"),
        ({"images": [{"url": 1}, {}]}, "line 7, `body.images[1].url`: is missing"),
        ({"upscale": "yes"}, "line 7, `body.upscale`: must be true or false"),
        ({"size": []}, "line 7, `body.size`: has none of the forms that the model takes"),
        ({"name": "A1"}, "line 7, `body.name`: does not have the form that the model takes"),
        ({"widht": 64}, "line 7, `body.widht`: the model has no such field (the nearest is `width`)"),
        ({"zzz": 64}, "line 7, `body.zzz`: the model has no such field"),
    ],
)
def test_each_rule_that_is_broken_is_named_with_its_field(change: dict[str, object], expected: str) -> None:
    assert said({"prompt": "a cat"} | change) == [expected]


def test_a_missing_field_is_named_and_every_fault_of_a_body_is_told() -> None:
    assert sorted(said({"width": 1, "format": "bmp"})) == [
        "line 7, `body.format`: must be one of png, jpeg",
        "line 7, `body.prompt`: is missing",
        "line 7, `body.width`: must be a multiple of 16",
        "line 7, `body.width`: must be at least 64",
    ]


def test_a_body_that_fits_has_no_faults() -> None:
    assert said({"prompt": "a cat", "width": 1024, "images": [{"url": "https://a.invalid/x"}]}) == []


def test_of_many_options_some_are_shown_and_the_rest_counted() -> None:
    (problem,) = problems_of([Violation(("voice",), "enum", {"options": [f"v{n}" for n in range(40)]})], 1, ())
    assert problem.message.count("v") == MOST_OPTIONS
    assert problem.message.endswith("… (40 in all)")


def test_a_keyword_of_the_future_is_named() -> None:
    (problem,) = problems_of([Violation(("x",), "unheardOf", {})], 1, ())
    assert problem.message == "is not what the model takes (unheardOf)"


@given(st.text(min_size=11, max_size=400).filter(lambda text: not text.isascii() or len(set(text)) > 5))
def test_no_message_holds_the_text_that_is_wrong(prompt: str) -> None:
    assert all(prompt not in problem for problem in said({"prompt": prompt}))


class TestOlderSpellings:
    """OpenAPI 3.0 has words of its own for two things."""

    def test_a_nullable_field_takes_null_and_still_says_what_else_it_takes(self) -> None:
        schema = {"type": "object", "properties": {"n": {"type": "integer", "nullable": True, "enum": [1, 2]}}}
        assert said({"n": None}, schema, "3.0.2") == []
        assert said({"n": 3}, schema, "3.0.2") == ["line 7, `body.n`: must be one of 1, 2, null"]

    def test_an_exclusive_bound_is_a_mark_beside_the_bound(self) -> None:
        schema = {"type": "object", "properties": {"n": {"type": "number", "maximum": 1, "exclusiveMaximum": True}}}
        assert said({"n": 1}, schema, "3.0.0") == ["line 7, `body.n`: must be less than 1"]
        assert said({"n": 0.5}, schema, "3.0.0") == []


class TestWhatCannotBeCheckedAhead:
    @pytest.mark.parametrize(
        "document",
        [
            document() | {"x-comfy-input-schema-authored": False},
            {"openapi": "3.1.0", "paths": {}},
            document({"$ref": "https://elsewhere.invalid/schema.json"}),
            document({"type": "object", "properties": {"a": {"$ref": "https://elsewhere.invalid/schema.json"}}}),
            document({"type": "no such type"}),
            {},
        ],
        ids=["not authored", "no body", "elsewhere", "in part elsewhere", "no schema", "nothing"],
    )
    def test_there_is_no_checker_and_nothing_is_fetched(self, document: dict[str, Any]) -> None:
        assert checker_of(document) is None

    def test_without_a_document_there_is_none_either(self) -> None:
        assert checker_of(None) is None
        assert input_schema_of({}) is None
