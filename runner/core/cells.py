"""A text cell becomes a JSON value of a named type, or a reason why it cannot."""

from __future__ import annotations

import math
import re
from typing import Final

from runner.core.jsontext import JSON, JsonFault, Number, clip, dump, parse

#: The types that a header or a placeholder may name (`body.width:int`, `{{seed:int}}`), as JSON-schema types.
NAMED_TYPES: Final = {
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "json": "json",
}

_INTEGER: Final = re.compile(r"(-?)0*([0-9]+)")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_SPREADSHEET: Final = re.compile(r"[+-]?[0-9]+(?:[.,][0-9]+)?[eE][+-]?[0-9]+")
_DECIMAL: Final = re.compile(r"[+-]?[0-9]+[.,][0-9]*")

_AS_TEXT: Final = "format the column as text in the spreadsheet, mend the values and export again"


class CellFault(ValueError):
    """A cell that cannot be read as the type its field has."""

    def __init__(self, message: str, advice: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice


def read_cell(text: str, kind: str | None) -> JSON:
    """The value of the cell as a JSON-schema type or `json`; `None` and `string` leave the text as it is.

    Digits are kept as they stand (`Number`); only white space around a value that is not text is dropped.
    """
    if kind is None or kind == "string":
        return text
    return _READERS[kind](text.strip())


def text_of(value: JSON) -> str:
    """The value for use inside a longer text: as written for numbers, empty for null, JSON for the rest."""
    if value is None:
        return ""
    return str(value) if isinstance(value, str) else dump(value)


def _integer(text: str) -> JSON:
    if match := _INTEGER.fullmatch(text):
        return _held(match[1] + match[2])
    if _SPREADSHEET.fullmatch(text):
        raise CellFault(f"{clip(text)} is not a whole number: a spreadsheet has cut its digits", _AS_TEXT)
    if _DECIMAL.fullmatch(text):
        raise CellFault(
            f"{clip(text)} is not a whole number: a decimal point may mean that digits were rounded", _AS_TEXT
        )
    raise CellFault(f"{clip(text)!r} is not a whole number")


def _number(text: str) -> JSON:
    if not _NUMBER.fullmatch(text):
        raise CellFault(f"{clip(text)!r} is not a number", "write it like 7, 0.5 or 1e-3")
    return _held(text)


def _held(text: str) -> JSON:
    if math.isinf(float(text)):
        raise CellFault(f"{clip(text)} is beyond what a number can hold")
    return Number(text)


def _boolean(text: str) -> JSON:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise CellFault(f"{clip(text)!r} is neither true nor false")
    return lowered == "true"


def _json(text: str) -> JSON:
    try:
        return parse(text)
    except JsonFault as fault:
        place = "" if fault.position is None else f" at its character {fault.position + 1}"
        raise CellFault(f"the cell is not JSON{place}: {fault.message}") from None


def _array(text: str) -> JSON:
    value = _json(text)
    if not isinstance(value, list):
        raise CellFault(f"{clip(text)!r} is not a list", 'write it as JSON, like ["a", "b"]')
    return value


def _object(text: str) -> JSON:
    value = _json(text)
    if not isinstance(value, dict):
        raise CellFault(f"{clip(text)!r} is not an object", 'write it as JSON, like {"a": 1}')
    return value


_READERS: Final = {
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "json": _json,
    "array": _array,
    "object": _object,
}
