"""JSONL lines become objects, and objects become bodies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from runner.core.bodies import BODY_PREFIX, RESERVED, TYPES, compose, encode_body, fill, has_text, prompt_field
from runner.core.embedding import EmbedFile, no_files
from runner.core.errors import Problem
from runner.core.inputs import InputFields
from runner.core.jsontext import JSON, JsonFault, parse
from runner.core.template import Template
from runner.core.textlines import TextLines, Unreadable

#: Keys that tell a line of `export --format jsonl`, whose `input` is the manifest's row.
_EXPORTED: Final = frozenset({"row", "custom_id", "model", "state", "charge", "idempotency_key", "input"})
_OPENING_ONLY: Final = re.compile(r"[\[{\s]+")
_BLANKS: Final = " \t\r\n"


class JsonlRecords:
    """The objects of a JSONL file.

    `line` is the physical line of the record given last, `text` its text. Iterating gives an object, `None` for
    a blank line, or the problem of the line; `Unreadable` when the file is one document over many lines.
    """

    def __init__(self, lines: TextLines) -> None:
        self._lines = lines
        self.line = 0
        self.text = ""

    def __iter__(self) -> Iterator[dict[str, JSON] | Problem | None]:
        first = True
        for line in self._lines:
            self.line = self._lines.number
            self.text = line.strip(_BLANKS)
            if self._lines.faults:
                yield from self._lines.faults
                self._lines.faults.clear()
            elif not line or line.isspace():
                yield None
                continue
            else:
                yield self._object(line, first)
            first = False

    def _object(self, line: str, first: bool) -> dict[str, JSON] | Problem:
        try:
            value = parse(line)
        except JsonFault as fault:
            if first and fault.position is not None:
                self._check_spread()
            return self._problem(line, fault)
        if isinstance(value, dict):
            return value
        advice = "`jq -c '.[]'` writes the objects of a list one a line" if isinstance(value, list) else None
        return Problem(self.line, f"not an object but {_name(value)}", advice=advice)

    def _check_spread(self) -> None:
        """Stops at a document that goes on over the next lines: one message, not one for each."""
        text = self.text
        if _OPENING_ONLY.fullmatch(text) or (text.startswith("[") and not text.endswith("]")):
            what, program = ("list", ".[]") if text.startswith("[") else ("object", ".")
            raise Unreadable(
                Problem(
                    self.line,
                    f"one {what} over many lines, where JSONL has one object a line",
                    advice=f"jq -c '{program}' FILE > FILE.jsonl",
                )
            )

    def _problem(self, line: str, fault: JsonFault) -> Problem:
        if fault.position is None:
            return Problem(self.line, fault.message)
        byte = self._lines.byte(line[: fault.position])
        if fault.message == "Extra data":
            return Problem(self.line, "something follows the object", byte=byte, advice="write one object a line")
        return Problem(self.line, f"not JSON: {fault.message}", byte=byte)


def _name(value: JSON) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "a list" if isinstance(value, list) else "a text or number"


def exported_row(row: dict[str, JSON]) -> dict[str, JSON] | None:
    """The manifest's own row in a line of an export, with the model it ran with; `None` for any other line."""
    own = row.get("input")
    if not isinstance(own, dict) or not row.keys() >= _EXPORTED:
        return None
    return own if own.get("model") else {**own, "model": row["model"]}


class JsonlBodies:
    """Makes the bodies of one model's rows from objects.

    A `body` is sent as it is. Otherwise `prompt`, `body.*` keys and, without a template, keys named like one of
    the model's input fields go into the body; a null leaves its field out, as an empty cell does.
    """

    def __init__(
        self, model: str, fields: InputFields | None, template: Template | None, files: EmbedFile = no_files
    ) -> None:
        self._files = files
        self._model = model
        self._fields = fields or {}
        self._template = template

    def build(self, row: dict[str, JSON], line: int, problems: list[Problem]) -> bytes:
        """The body of a row; what is wrong with its keys is added to the problems."""
        if row.get("body") is not None:
            return self._own_body(row, line, problems)
        values = self._values(row, line, problems)
        if self._template is not None:
            body = fill(self._template, row, None, self._files, line, problems)
            body.update(values)
            return encode_body(body, line, problems)
        self._check_prompt(row.get("prompt"), values.get(prompt_field(self._model)), line, problems)
        return encode_body(compose(self._model, row.get("prompt"), values), line, problems)

    def _own_body(self, row: dict[str, JSON], line: int, problems: list[Problem]) -> bytes:
        if not isinstance(row["body"], dict):
            problems.append(Problem(line, "the body is not an object", field="body"))
        for key in row:
            if key.startswith(BODY_PREFIX):
                message = f"beside a `body`, which is sent as it is, `{key}` has no place"
                problems.append(Problem(line, message, field=key, advice="put it into the body"))
        return encode_body(row["body"], line, problems)

    def _values(self, row: dict[str, JSON], line: int, problems: list[Problem]) -> dict[str, JSON]:
        values: dict[str, JSON] = {}
        used = () if self._template is None else self._template.columns
        for key, value in row.items():
            if key.startswith(BODY_PREFIX) and key not in used:
                field = key[len(BODY_PREFIX) :]
                if not field or (":" in field and field.rpartition(":")[2] in TYPES):
                    problems.append(Problem(line, "a key of JSONL is `body.` and a field, no type", field=key))
            elif self._template is None and key in self._fields and key not in RESERVED:
                field = key
            else:
                continue
            if value is None:
                continue
            if field in values:
                problems.append(Problem(line, f"`{field}` goes into the body twice", field=key))
            values[field] = value
        return values

    def _check_prompt(self, prompt: JSON, in_body: JSON, line: int, problems: list[Problem]) -> None:
        field = prompt_field(self._model)
        if not has_text(in_body if prompt is None else prompt):
            problems.append(Problem(line, "the prompt is empty or missing", field="prompt"))
        elif prompt is None:
            return
        elif in_body is not None:
            problems.append(Problem(line, f"`prompt` and `body.{field}` both give the prompt", field="prompt"))
        # A number is a str to this reader (`Number`), but not to the model.
        elif type(prompt) is not str and (field != "prompt" or self._fields.get("prompt") in (None, "string")):
            problems.append(Problem(line, "the prompt is not a text", field="prompt"))
