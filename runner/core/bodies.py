"""A row's values become the body to send."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from runner.core.cells import NAMED_TYPES, CellFault, read_cell
from runner.core.embedding import FILE_TYPES, EmbedFile, no_files
from runner.core.errors import Problem
from runner.core.inputs import InputFields
from runner.core.jsontext import JSON, JsonFault, encode
from runner.core.queryparams import QUERY_PARAMETERS
from runner.core.template import FillFault, Template

#: Contract: a longer body is answered with `413`.
MAX_BODY_BYTES: Final = 10 * 1024 * 1024
BODY_PREFIX: Final = "body."
#: Columns and keys with a meaning of their own; never an input field by name alone.
RESERVED: Final = frozenset({"id", "model", "prompt", "body", *QUERY_PARAMETERS})
#: What a header may name.
TYPES: Final = NAMED_TYPES | FILE_TYPES
_MISSING_PROMPT: Final = "the prompt is empty"


def prompt_field(model: str) -> str:
    """The field of the body that the prompt becomes: Gemini models on Vertex take `contents`."""
    return "contents" if model.startswith("vertexai/gemini-") else "prompt"


def compose(model: str, prompt: JSON, fields: Mapping[str, JSON]) -> dict[str, JSON]:
    """The body without a template: the prompt in the form the model takes, and the fields."""
    if prompt is None:
        return dict(fields)
    if prompt_field(model) == "contents":
        return {"contents": [{"role": "user", "parts": [{"text": prompt}]}], **fields}
    return {"prompt": prompt, **fields}


def encode_body(body: JSON, line: int, problems: list[Problem]) -> bytes:
    """The bytes to send; what forbids sending them is added to the problems.

    However the prompt got there, white space is never paid for.
    """
    prompt = body.get("prompt") if isinstance(body, dict) and not problems else None
    if isinstance(prompt, str) and prompt.isspace():
        problems.append(Problem(line, _MISSING_PROMPT, field="prompt"))
    try:
        data = encode(body)
    except JsonFault as fault:
        problems.append(Problem(line, fault.message))
        return b""
    if len(data) > MAX_BODY_BYTES:
        problems.append(Problem(line, f"the body has {len(data)} bytes, the Router takes {MAX_BODY_BYTES}"))
    return data


@dataclass(frozen=True, slots=True)
class BodyColumn:
    """A CSV column whose cells go into the body."""

    index: int
    #: As the header has it.
    column: str
    field: str
    #: JSON-schema type, `json` or one of `FILE_TYPES`; `None` keeps the text.
    kind: str | None


class HeaderFault(ValueError):
    """A header that names a body field in a way that cannot be meant."""

    def __init__(self, column: str, message: str, advice: str) -> None:
        super().__init__(message)
        self.column = column
        self.message = message
        self.advice = advice


def split_type(column: str) -> tuple[str, str | None]:
    """`width:int` is the field `width` of type `integer`; `HeaderFault` for a type that does not exist."""
    name, colon, kind = column.rpartition(":")
    if not colon:
        return column, None
    if kind not in TYPES:
        raise HeaderFault(column, f"{kind!r} is no type", f"types are {', '.join(TYPES)}")
    return name, TYPES[kind]


class CsvBodies:
    """Makes the bodies of one model's rows from cells; `faults` are of the columns, not of a row.

    With a template only `body.*` columns go into the body beside it, over its own fields.
    """

    def __init__(
        self,
        names: Sequence[str],
        model: str,
        fields: InputFields | None,
        template: Template | None,
        files: EmbedFile = no_files,
    ) -> None:
        self._files = files
        self._names = tuple(names)
        self._model = model
        self._fields = fields or {}
        self._template = template
        self._prompt = self._names.index("prompt") if "prompt" in self._names else None
        self._columns = [column for index, name in enumerate(names) if (column := self._column(index, name))]
        self.faults = self._conflicts()

    def _column(self, index: int, name: str) -> BodyColumn | None:
        if name.startswith(BODY_PREFIX):
            if self._template is not None and name in self._template.columns:
                return None
            field, kind = split_type(name[len(BODY_PREFIX) :])
            return BodyColumn(index, name, field, kind or self._fields.get(field))
        if self._template is not None or name in RESERVED:
            return None
        field, colon, kind = name.rpartition(":")
        if colon and kind in TYPES and field in self._fields and field not in RESERVED:
            return BodyColumn(index, name, field, TYPES[kind])
        return BodyColumn(index, name, name, self._fields[name]) if name in self._fields else None

    def _conflicts(self) -> list[tuple[str, str]]:
        """Column and message for columns that would fill a field which another one fills already."""
        taken: dict[str, str] = {}
        if self._template is None and self._prompt is not None:
            taken[prompt_field(self._model)] = "prompt"
        found = []
        for column in self._columns:
            other = taken.setdefault(column.field, column.column)
            if other != column.column:
                found.append((column.column, f"goes into the body as `{column.field}`, and so does `{other}`"))
        return found

    def build(self, cells: Sequence[str], line: int, problems: list[Problem]) -> bytes:
        """The body of a row; what is wrong with its cells is added to the problems."""
        values: dict[str, JSON] = {}
        for column in self._columns:
            cell = cells[column.index]
            # An empty cell leaves the field out; white space is empty for everything but text.
            if not cell or (column.kind not in (None, "string") and cell.isspace()):
                continue
            try:
                embedded = column.kind is not None and column.kind in FILE_TYPES
                values[column.field] = (
                    self._files(cell.strip(), column.kind or "") if embedded else read_cell(cell, column.kind)
                )
            except CellFault as fault:
                problems.append(Problem(line, fault.message, field=column.column, advice=fault.advice))
        if self._template is not None:
            body = fill(self._template, self._named(cells), self._fields, self._files, line, problems)
            body.update(values)
            return encode_body(body, line, problems)
        prompt = "" if self._prompt is None else cells[self._prompt]
        if not prompt or prompt.isspace():
            if not has_text(values.get(prompt_field(self._model))):
                problems.append(Problem(line, _MISSING_PROMPT, field="prompt"))
            return encode_body(values, line, problems)
        return encode_body(compose(self._model, prompt, values), line, problems)

    def _named(self, cells: Sequence[str]) -> dict[str, JSON]:
        return dict(zip(self._names, cells, strict=True))


def fill(
    template: Template,
    columns: Mapping[str, JSON],
    fields: InputFields | None,
    files: EmbedFile,
    line: int,
    problems: list[Problem],
) -> dict[str, JSON]:
    """The template filled from a row; what forbids it is added to the problems."""
    if "prompt" in template.columns and "prompt" in columns and not has_text(columns["prompt"]):
        problems.append(Problem(line, _MISSING_PROMPT, field="prompt"))
    try:
        return template.fill(columns, fields, files)
    except FillFault as fault:
        problems.append(Problem(line, fault.message, field=fault.column, advice=fault.advice))
        return {}


def has_text(value: JSON) -> bool:
    """Whether something would be said by it: white space is never paid for."""
    return bool(value.strip()) if isinstance(value, str) else value is not None
