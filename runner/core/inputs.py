"""What a model takes: field names and types, read from its OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

#: Field name to JSON-schema type: `string`, `integer`, `number`, `boolean`, `array`, `object`, or `None` where
#: the schema allows several or names none.
InputFields: TypeAlias = Mapping[str, str | None]

_TYPES: Final = frozenset({"string", "integer", "number", "boolean", "array", "object"})
_AUTHORED: Final = "x-comfy-input-schema-authored"
_MAX_DEPTH: Final = 24

_Node: TypeAlias = Mapping[str, Any]


def input_fields_from_schema(document: Mapping[str, object]) -> InputFields | None:
    """The input fields that `GET /v2/models/{id}/openapi.json` describes.

    `None` when the document describes none that could be trusted: there is no JSON request body, its schema has
    no properties, or it is marked `x-comfy-input-schema-authored: false`.
    """
    for way in _request_schemas(document):
        if any(node.get(_AUTHORED) is False for node in way):
            return None
        fields: dict[str, str | None] = {}
        for name, schema in _properties(document, way[-1], 0):
            kind = _type_of(document, schema, 0)
            fields[name] = kind if name not in fields or fields[name] == kind else None
        return fields or None
    return None


def properties_of(document: Mapping[str, object]) -> Iterator[tuple[str, _Node]]:
    """Name and schema of every field of the model's input; none where `input_fields_from_schema` has none."""
    for way in _request_schemas(document):
        if not any(node.get(_AUTHORED) is False for node in way):
            yield from _properties(document, way[-1], 0)
        return


def required_of(document: Mapping[str, object]) -> set[str]:
    """The fields that a body must have."""
    for way in _request_schemas(document):
        schema = way[-1]
        parts = (schema, *(_resolve(document, part) for part in _parts(schema, "allOf")))
        return {str(name) for part in parts if isinstance(part.get("required"), list) for name in part["required"]}
    return set()


def resolved(document: Mapping[str, object], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema that a reference within the document leads to."""
    return _resolve(document, schema)


def type_of(document: Mapping[str, object], schema: Mapping[str, Any]) -> str | None:
    """The field's JSON type; `None` where it may have several."""
    return _type_of(document, schema, 0)


def input_schema_of(document: Mapping[str, object]) -> dict[str, Any] | None:
    """The schema that a body must fit, as one JSON Schema (2020-12) that needs nothing outside itself.

    `None` where no body can be checked ahead: there is no schema, or it is marked as not authored.
    """
    for way in _request_schemas(document):
        if any(node.get(_AUTHORED) is False for node in way):
            return None
        given, schema = way[-2:]
        if not schema:
            return None
        whole: dict[str, Any] = {"allOf": [given], "components": document.get("components", {})}
        return _modern(whole) if str(document.get("openapi", "")).startswith("3.0") else whole
    return None


def _modern(node: Any) -> Any:
    """OpenAPI 3.0's own spellings in those of JSON Schema 2020-12: `nullable`, and exclusive bounds as marks."""
    if isinstance(node, list):
        return [_modern(item) for item in node]
    if not isinstance(node, Mapping):
        return node
    read = {key: _modern(value) for key, value in node.items()}
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(read.get(exclusive), bool) and read.pop(exclusive) and bound in read:
            read[exclusive] = read.pop(bound)
    if read.pop("nullable", None) is not True:
        return read
    if not isinstance(read.get("type"), str):
        return {"anyOf": [read, {"type": "null"}]}
    read["type"] = [read["type"], "null"]
    if isinstance(read.get("enum"), list) and None not in read["enum"]:
        read["enum"] = [*read["enum"], None]
    return read


def _request_schemas(document: _Node) -> Iterator[list[_Node]]:
    """For each POST: the nodes from the document down to the schema of its JSON request body."""
    info = _mapping(document.get("info"))
    paths = _mapping(document.get("paths"))
    # The document is of one model; a price or queue route beside the run would take the same body.
    for _, item in sorted(paths.items(), key=lambda pair: len(str(pair[0]))):
        operation = _mapping(_mapping(item).get("post"))
        request = _resolve(document, operation.get("requestBody"))
        for media_type, media in _mapping(request.get("content")).items():
            if str(media_type).split(";")[0].strip() == "application/json":
                given = _mapping(_mapping(media).get("schema"))
                schema = _resolve(document, given)
                yield [document, info, _mapping(item), operation, request, _mapping(media), given, schema]


def _properties(document: _Node, schema: _Node, depth: int) -> Iterator[tuple[str, _Node]]:
    """Name and schema of every property, of all the parts and alternatives that the schema is put together of."""
    if depth > _MAX_DEPTH:
        return
    for name, property_ in _mapping(schema.get("properties")).items():
        yield str(name), _mapping(property_)
    for part in _parts(schema, "allOf", "anyOf", "oneOf"):
        yield from _properties(document, _resolve(document, part), depth + 1)


def _type_of(document: _Node, schema: _Node, depth: int) -> str | None:
    kinds = _kinds(document, schema, depth) - {"null"}
    if kinds == {"integer", "number"}:
        return "number"
    if len(kinds) != 1:
        return None
    (kind,) = kinds
    return kind if kind in _TYPES else None


def _kinds(document: _Node, schema: _Node, depth: int) -> set[str]:
    """The JSON types that the schema lets through, `null` among them; empty when it does not say."""
    if depth > _MAX_DEPTH:
        return set()
    schema = _resolve(document, schema)
    declared = schema.get("type")
    if isinstance(declared, str):
        return {declared}
    if isinstance(declared, list):
        return {str(kind) for kind in declared}
    if "const" in schema or isinstance(schema.get("enum"), list):
        values = [schema["const"]] if "const" in schema else schema["enum"]
        return {_kind_of_value(value) for value in values}
    for part in _parts(schema, "allOf"):
        # Every part of an allOf holds, so the first that speaks of a type settles it.
        if kinds := _kinds(document, part, depth + 1):
            return kinds
    return _kinds_of_alternatives(document, schema, depth)


def _kinds_of_alternatives(document: _Node, schema: _Node, depth: int) -> set[str]:
    kinds: set[str] = set()
    for part in _parts(schema, "anyOf", "oneOf"):
        found = _kinds(document, part, depth + 1)
        if not found:
            return set()  # one alternative lets anything through
        kinds |= found
    return kinds


def _kind_of_value(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _parts(schema: _Node, *keywords: str) -> Iterator[_Node]:
    for keyword in keywords:
        parts = schema.get(keyword)
        for part in parts if isinstance(parts, list) else ():
            yield _mapping(part)


def _resolve(document: _Node, node: object) -> _Node:
    """The node that local references (`#/components/schemas/Input`) lead to; empty when they lead nowhere."""
    found = _mapping(node)
    for _ in range(_MAX_DEPTH):
        reference = found.get("$ref")
        if not isinstance(reference, str):
            return found
        if not reference.startswith("#/"):
            return {}
        place: object = document
        for step in reference[2:].split("/"):
            place = _mapping(place).get(step.replace("~1", "/").replace("~0", "~"))
        found = _mapping(place)
    return {}


def _mapping(value: object) -> _Node:
    return value if isinstance(value, Mapping) else {}
