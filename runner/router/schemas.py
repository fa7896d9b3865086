"""A model's schema, ready to check bodies against."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import jsonschema_rs

from runner.core.inputs import input_schema_of
from runner.core.violations import Violation


class BodyChecker:
    """Checks bodies of one model. Nothing is fetched: what a schema refers to outside its document is not looked at."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Raises `ValueError` for a schema that is none."""
        try:
            # What a format means is the provider's to say.
            self._validator = jsonschema_rs.Draft202012Validator(dict(schema), validate_formats=False, offline=True)
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
            raise ValueError("the schema cannot be read") from error

    def check(self, body: bytes) -> list[Violation]:
        """What of a body, which is a JSON document, the schema does not take."""
        document = json.loads(body)
        if self._validator.is_valid(document):
            return []
        return [
            Violation(tuple(error.instance_path), error.kind.name, error.kind.as_dict())
            for error in self._validator.iter_errors(document)
        ]


def checker_of(document: Mapping[str, object] | None) -> BodyChecker | None:
    """The checker of a model's OpenAPI document; `None` where its bodies cannot be checked ahead."""
    schema = input_schema_of(document) if document is not None else None
    if schema is None:
        return None
    try:
        return BodyChecker(schema)
    except ValueError:
        return None
