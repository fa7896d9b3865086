"""Input fields out of a model's OpenAPI document."""

from __future__ import annotations

from typing import Any

import pytest

from runner.core.inputs import input_fields_from_schema


def document(schema: dict[str, Any], **components: Any) -> dict[str, Any]:
    operation = {"requestBody": {"content": {"application/json": {"schema": schema}}}}
    return {
        "openapi": "3.1.0",
        "paths": {"/v2/models/bfl/flux-2-pro": {"post": operation}},
        "components": {"schemas": components},
    }


def fields_of(**properties: Any) -> Any:
    return input_fields_from_schema(document({"type": "object", "properties": properties}))


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "integer"}, "integer"),
        ({"type": ["integer", "null"]}, "integer"),
        ({"type": ["integer", "number"]}, "number"),
        ({"type": "string", "nullable": True}, "string"),
        ({"anyOf": [{"type": "boolean"}, {"type": "null"}]}, "boolean"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "number"),
        ({"anyOf": [{"type": "string"}, {"type": "object"}]}, None),
        ({"anyOf": [{"type": "string"}, {}]}, None),
        ({"allOf": [{"description": "x"}, {"type": "array"}]}, "array"),
        ({"enum": ["png", "jpeg", None]}, "string"),
        ({"const": 1}, "integer"),
        ({"enum": [True, 1.5]}, None),
        ({"type": "file"}, None),
        ({}, None),
        (True, None),
    ],
)
def test_a_propertys_type(schema: Any, kind: str | None) -> None:
    assert fields_of(x=schema) == {"x": kind}


def test_local_references_are_followed() -> None:
    given = document(
        {"$ref": "#/components/schemas/In~1put"},
        **{
            "In/put": {"allOf": [{"$ref": "#/components/schemas/Base"}], "properties": {"seed": {"type": "integer"}}},
            "Base": {"properties": {"size": {"$ref": "#/components/schemas/Size"}}},
            "Size": {"type": "string", "enum": ["1K"]},
        },
    )
    assert input_fields_from_schema(given) == {"seed": "integer", "size": "string"}


def test_references_in_a_circle_or_to_nowhere_end() -> None:
    circle = document({"$ref": "#/components/schemas/A"}, A={"$ref": "#/components/schemas/A"})
    assert input_fields_from_schema(circle) is None
    own = document({"$ref": "#/components/schemas/A"}, A={"properties": {"a": {"$ref": "#/x"}}})
    own["components"]["schemas"]["A"]["allOf"] = [{"$ref": "#/components/schemas/A"}]
    assert input_fields_from_schema(own) == {"a": None}
    assert input_fields_from_schema(document({"$ref": "https://example.com/a.json"})) is None


def test_alternatives_give_the_fields_of_all() -> None:
    one = {"properties": {"a": {"type": "string"}, "b": {"type": "string"}}}
    other = {"properties": {"a": {"type": "integer"}, "c": {"type": "string"}}}
    assert input_fields_from_schema(document({"oneOf": [one, other]})) == {"a": None, "b": "string", "c": "string"}


@pytest.mark.parametrize("level", ["document", "operation", "schema", "reference"])
def test_a_schema_that_nobody_wrote_is_none(level: str) -> None:
    given = document({"$ref": "#/components/schemas/A"}, A={"properties": {"a": {}}})
    operation = given["paths"]["/v2/models/bfl/flux-2-pro"]["post"]
    places = {
        "document": given,
        "operation": operation,
        "schema": given["components"]["schemas"]["A"],
        "reference": operation["requestBody"]["content"]["application/json"]["schema"],
    }
    assert input_fields_from_schema(given) == {"a": None}
    places[level]["x-comfy-input-schema-authored"] = False
    assert input_fields_from_schema(given) is None


@pytest.mark.parametrize("given", [{}, {"paths": []}, {"paths": {"/x": {"get": {}}}}, document({})])
def test_a_document_without_a_request_body_is_none(given: dict[str, Any]) -> None:
    assert input_fields_from_schema(given) is None
