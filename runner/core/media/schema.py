"""What a model's output schema says about a place in its output.

Reads JSON Schema as OpenAPI 3.0 and 3.1 write it: `properties`, `items`, `prefixItems`,
`additionalProperties`, the three combinators and local `$ref`s. Marks: `format: uri`, `format: byte`,
`contentEncoding: base64`, `contentMediaType`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

Schema = Mapping[str, object]

#: Schemas of one place, after references and combinators; more than this is a maze, not a description.
_MOST = 64


class OutputSchema:
    """An output schema, asked one level at a time."""

    def __init__(self, document: Schema | None) -> None:
        """`document` is a JSON Schema, or a whole OpenAPI document with one operation's `200` in it."""
        self._document: Schema = document if document is not None else {}

    def root(self) -> tuple[Schema, ...]:
        """The schemas that speak of the whole output."""
        if "paths" in self._document:
            return self._spread(list(_answers(self._document["paths"])))
        return self._spread([self._document] if self._document else [])

    def field(self, schemas: Sequence[Schema], name: str) -> tuple[Schema, ...]:
        """Those that speak of one member of an object."""
        found: list[object] = []
        for schema in schemas:
            properties = schema.get("properties")
            if isinstance(properties, Mapping) and name in properties:
                found.append(properties[name])
            else:
                found.append(schema.get("additionalProperties"))
        return self._spread(found)

    def element(self, schemas: Sequence[Schema], index: int) -> tuple[Schema, ...]:
        """Those that speak of one element of a list."""
        found: list[object] = []
        for schema in schemas:
            prefix = schema.get("prefixItems")
            if isinstance(prefix, list) and index < len(prefix):
                found.append(prefix[index])
            else:
                found.append(schema.get("items"))
        return self._spread(found)

    def _spread(self, schemas: Sequence[object]) -> tuple[Schema, ...]:
        """The schemas themselves and what they refer to or combine, each once."""
        waiting = [schema for schema in reversed(schemas) if isinstance(schema, Mapping)]
        found: list[Schema] = []
        seen: set[int] = set()
        while waiting and len(found) < _MOST:
            schema = waiting.pop()
            if id(schema) in seen:
                continue
            seen.add(id(schema))
            found.append(schema)
            parts = [self._resolve(schema.get("$ref"))]
            for word in ("allOf", "anyOf", "oneOf"):
                combined = schema.get(word)
                parts += combined if isinstance(combined, list) else []
            waiting += [part for part in reversed(parts) if isinstance(part, Mapping)]
        return tuple(found)

    def _resolve(self, reference: object) -> object:
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        node: object = self._document
        for step in reference[1:].split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            node = node.get(name) if isinstance(node, Mapping) else None
        return node


def marks_link(schemas: Sequence[Schema]) -> bool:
    """Whether the schema calls the string a link."""
    return any(schema.get("format") in ("uri", "url", "iri", "uri-reference") for schema in schemas)


def marks_bytes(schemas: Sequence[Schema]) -> bool:
    """Whether the schema calls the string encoded bytes."""
    return any(
        schema.get("format") in ("byte", "base64", "binary") or schema.get("contentEncoding") in ("base64", "base64url")
        for schema in schemas
    )


def media_type(schemas: Sequence[Schema]) -> str | None:
    """The media type that the schema gives the string, if any."""
    named = (schema.get("contentMediaType") for schema in schemas)
    return next((name for name in named if isinstance(name, str) and "/" in name), None)


#: Below an operation, the way to the answer that a success gives: depth ─▶ key.
_STEPS = {2: "responses", 3: "200", 4: "content"}


def _answers(paths: object) -> Iterator[object]:
    """Every schema under a `200` of an OpenAPI document's `paths`."""
    waiting: list[tuple[object, int]] = [(paths, 0)]
    while waiting:
        node, depth = waiting.pop()
        if not isinstance(node, Mapping) or depth > 6:
            continue
        for key, child in node.items():
            if key == "schema" and depth == 6:
                yield child
            elif key == _STEPS.get(depth, key):
                waiting.append((child, depth + 1))
