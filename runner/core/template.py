"""A JSON body with places for a row's columns.

`{"prompt": "a {{color}} chair", "seed": "{{seed:int}}"}`: inside a longer string a placeholder becomes text; a
string that is nothing but a placeholder becomes the column's value, of the type the placeholder names.
`{{picture:base64}}` and `{{picture:data-uri}}` stand for the content of the file that the column names.

The template is parsed first and filled afterwards, so nothing in a cell can leave its string, and a cell that itself
holds `{{...}}` stays as it is. Keys are never filled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from runner.core.cells import NAMED_TYPES, CellFault, read_cell, text_of
from runner.core.embedding import FILE_TYPES, EmbedFile, no_files
from runner.core.errors import UsageError
from runner.core.inputs import InputFields
from runner.core.jsontext import JSON, JsonFault, dump, parse

Columns: TypeAlias = Mapping[str, JSON]


class FillFault(ValueError):
    """A row that the template cannot be filled from; `column` is the one to mend."""

    def __init__(self, column: str, message: str, advice: str | None = None) -> None:
        super().__init__(message)
        self.column = column
        self.message = message
        self.advice = advice


class _Absent:
    """Stands for a place that is left out because its cell is empty."""


_ABSENT: Final = _Absent()
_Filler: TypeAlias = "Callable[[Columns, InputFields, EmbedFile], JSON | _Absent]"
_PLACEHOLDER: Final = re.compile(r"\{\{\s*((?:(?!\{\{|\}\}).)+?)\s*\}\}", re.DOTALL)


class Template:
    """A parsed template. `columns` are the columns it uses, in the order they appear."""

    def __init__(self, body: dict[str, JSON]) -> None:
        found: dict[str, None] = {}
        self._filler = _compile(body, "", found)
        self.columns: tuple[str, ...] = tuple(found)

    @classmethod
    def parse(cls, text: bytes) -> Template:
        """The template that the file holds (UTF-8, with or without a byte order mark).

        `UsageError` with the place when it is not one JSON object, or a placeholder in it is not well formed.
        """
        try:
            body = parse(text.decode("utf-8-sig"))
            dump(body)  # refuses what nests too deeply to be filled
        except UnicodeDecodeError as fault:
            line = text.count(b"\n", 0, fault.start) + 1
            byte = fault.start - text.rfind(b"\n", 0, fault.start)
            raise UsageError(f"template: line {line}, byte {byte}: not UTF-8", advice="save it as UTF-8") from None
        except JsonFault as fault:
            place = "" if fault.position is None else f"line {fault.lineno}, column {fault.colno}: "
            raise UsageError(f"template: {place}not JSON: {fault.message}") from None
        if not isinstance(body, dict):
            raise UsageError("template: not a JSON object", advice='write it like {"prompt": "{{prompt}}"}')
        return cls(body)

    def fill(self, columns: Columns, fields: InputFields | None = None, files: EmbedFile = no_files) -> dict[str, JSON]:
        """The body for a row; `FillFault` names the column that is missing or has the wrong type.

        `fields` are the model's input fields and are given for a manifest whose cells are text (CSV): a field at
        the top of the body that is one placeholder without a type then takes the type of the schema. `files` gives
        the content of local files where the template asks for it.
        """
        filled = self._filler(columns, fields or {}, files)
        assert isinstance(filled, dict)  # noqa: S101 - the template is an object, and so is what it becomes
        return filled


def _compile(node: JSON, place: str, found: dict[str, None], field: str | None = None) -> _Filler:
    """What makes a part of the body from a row. `place` is its JSON Pointer, `field` its name at the top."""
    if isinstance(node, dict):
        return _compile_object(node, place, found)
    if isinstance(node, list):
        items = [_compile(item, f"{place}/{index}", found) for index, item in enumerate(node)]

        def fill_list(columns: Columns, fields: InputFields, files: EmbedFile) -> JSON | _Absent:
            filled = [item(columns, fields, files) for item in items]
            return [value for value in filled if not isinstance(value, _Absent)]

        return fill_list
    if isinstance(node, str) and "{{" in node:
        return _compile_string(node, place, found, field)
    return lambda columns, fields, files: node


def _compile_object(node: dict[str, JSON], place: str, found: dict[str, None]) -> _Filler:
    members = []
    for key, value in node.items():
        pointer = f"{place}/{key.replace('~', '~0').replace('/', '~1')}"
        members.append((key, _compile(value, pointer, found, None if place else key)))

    def fill_object(columns: Columns, fields: InputFields, files: EmbedFile) -> JSON | _Absent:
        filled = [(key, member(columns, fields, files)) for key, member in members]
        return {key: value for key, value in filled if not isinstance(value, _Absent)}

    return fill_object


def _compile_string(text: str, place: str, found: dict[str, None], field: str | None) -> _Filler:
    #: Text and placeholders by turns; a placeholder is (column, type).
    parts: list[str | tuple[str, str | None]] = []
    end = 0
    for match in _PLACEHOLDER.finditer(text):
        parts += [text[end : match.start()], _column_and_type(match[1], place)]
        found[parts[-1][0]] = None
        end = match.end()
    parts.append(text[end:])
    if any(isinstance(part, str) and "{{" in part for part in parts):
        raise UsageError(f"template: {place}: `{{{{` without a column name and `}}}}` after it")
    if len(parts) == 3 and not parts[0] and not parts[2] and isinstance(parts[1], tuple):
        column, kind = parts[1]
        return _lone(column, kind, field)

    def fill_text(columns: Columns, _fields: InputFields, files: EmbedFile) -> JSON | _Absent:
        return "".join([part if isinstance(part, str) else text_of(_value(columns, *part, files)) for part in parts])

    return fill_text


def _column_and_type(name: str, place: str) -> tuple[str, str | None]:
    column, colon, kind = name.rpartition(":")
    if not colon:
        return name, None
    types = NAMED_TYPES | FILE_TYPES
    if kind.strip() not in types:
        # A column may have a colon in its name, but a mistyped type is likelier and would cost money.
        raise UsageError(f"template: {place}: {kind.strip()!r} is no type", advice=f"types are {', '.join(types)}")
    return column.strip(), types[kind.strip()]


def _lone(column: str, kind: str | None, field: str | None) -> _Filler:
    def fill_lone(columns: Columns, fields: InputFields, files: EmbedFile) -> JSON | _Absent:
        wanted = kind
        if kind is None and field is not None:
            wanted = fields.get(field)
        if column in columns and _is_empty(columns[column], wanted):
            return _ABSENT
        return _value(columns, column, wanted, files)

    return fill_lone


def _is_empty(value: JSON, kind: str | None) -> bool:
    """Whether the field is left out: no cell, a null, or white space where no text is wanted."""
    if isinstance(value, str):
        return not value or (kind not in (None, "string") and value.isspace())
    return value is None


def _value(columns: Columns, column: str, kind: str | None, files: EmbedFile) -> JSON:
    """The column's value; text is read as `kind`, and a value that has a type already must fit it."""
    if column not in columns:
        known = ", ".join(columns) or "none"
        raise FillFault(column, f"the template uses `{column}`, which is missing here", f"there are: {known}")
    value = columns[column]
    if kind in FILE_TYPES and (value is None or (isinstance(value, str) and not value.strip())):
        raise FillFault(column, "names no file")
    if kind is None or value is None or value == "":
        return value
    # A number's text reads as a number again; what is not text is read from its JSON text.
    text = str(value) if isinstance(value, str) else dump(value)
    try:
        return files(text.strip(), kind) if kind in FILE_TYPES else read_cell(text, kind)
    except CellFault as fault:
        raise FillFault(column, fault.message, fault.advice) from None
