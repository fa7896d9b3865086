"""A manifest becomes job specifications, or problems with their places.

Reading is a stream: memory does not grow with the file but for the index of ids (see `duplicates`), and rows come
out in the order they stand. A problem does not end the reading unless nothing after it could be trusted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from runner.core.bodies import BODY_PREFIX, CsvBodies, HeaderFault, split_type
from runner.core.csvrows import CsvRecords, read_header
from runner.core.duplicates import IdIndex
from runner.core.errors import Problem, UsageError
from runner.core.headers import case_hints, gives_prompt, no_prompt, no_template_column
from runner.core.inputs import InputFields, input_fields_from_schema
from runner.core.jobspec import SHOWN_PROBLEMS, JobSpec, ManifestOptions, ReadReport
from runner.core.jsonlrows import JsonlBodies, JsonlRecords, exported_row
from runner.core.jsontext import JSON, Number, clip, dump, quote
from runner.core.queryparams import QUERY_PARAMETERS, read_parameters
from runner.core.template import Template
from runner.core.textlines import TextLines, Unreadable

__all__ = [
    "SHOWN_PROBLEMS",
    "InputFields",
    "JobSpec",
    "ManifestOptions",
    "ReadReport",
    "Template",
    "input_fields_from_schema",
    "read_manifest",
]

#: Contract: RouterModelId.
_MODEL: Final = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*/[a-z0-9]+(?:[._-][a-z0-9]+)*")
_MAX_MODEL: Final = 193
#: Keeps an id of any script below what a PostgreSQL index entry may hold (2704 bytes).
_MAX_ID: Final = 512
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_NAME_ONE: Final = "name one with --model"


def read_manifest(
    chunks: Iterable[bytes],
    options: ManifestOptions,
    input_fields: Callable[[str], InputFields | None],
    report: ReadReport | None = None,
) -> Iterator[JobSpec | Problem]:
    """The rows of a manifest as jobs, and everything wrong with it, in the order of the file.

    `chunks` are the file's bytes in pieces of any size. `input_fields` is asked once for each model met and gives
    the model's input fields, or `None` where there is no schema. `report` is filled along the way. When a single
    problem comes, nothing of the manifest may be sent. `UsageError` for options that cannot be right.
    """
    report = ReadReport() if report is None else report
    delimiter = "\t" if options.delimiter == "\\t" else options.delimiter
    if len(delimiter) != 1 or delimiter in '"\r\n\0':
        raise UsageError(f"{options.delimiter!r} is no delimiter", advice="it is one character, like ';'")
    if options.model is not None and (fault := _model_fault(options.model)):
        raise UsageError(fault, advice="see `comfy-batch models`")
    lines = TextLines(chunks, options.encoding)
    rows: _CsvRows | _JsonlRows
    if options.format == "csv":
        rows = _CsvRows(CsvRecords(lines, delimiter), delimiter, options, input_fields, report)
    else:
        rows = _JsonlRows(JsonlRecords(lines), options, input_fields, report)
    return _noted(rows.read(), report)


def _noted(items: Iterator[JobSpec | Problem], report: ReadReport) -> Iterator[JobSpec | Problem]:
    try:
        for item in items:
            yield report.note(item) if isinstance(item, Problem) else item
    except Unreadable as stop:
        yield report.note(stop.problem)
    if not report.rows and not report.problem_count:
        yield report.note(Problem(None, "there are no rows"))


def _model_fault(model: str) -> str | None:
    if len(model) <= _MAX_MODEL and _MODEL.fullmatch(model):
        return None
    return f"{clip(model)!r} is no model id, which looks like `bfl/flux-2-pro`"


class _Rows:
    """What both formats do with a row: its id, its model."""

    def __init__(
        self,
        options: ManifestOptions,
        input_fields: Callable[[str], InputFields | None],
        report: ReadReport,
    ) -> None:
        self._options = options
        self._input_fields = input_fields
        self._report = report
        self._ids = IdIndex()
        self._batch_query = options.query.query

    def _custom_id(self, given: str, line: int, problems: list[Problem]) -> str:
        """The id given or made up; must be the file's first of that name, and one that can be stored."""
        custom_id = given if given and not given.isspace() else f"row-{self._report.rows}"
        if len(custom_id) > _MAX_ID or _CONTROL.search(custom_id):
            message = f"an id has at most {_MAX_ID} characters and no line breaks or control characters"
            problems.append(Problem(line, message, field="id"))
        first = self._ids.first_line(custom_id, line)
        if first is not None:
            message = f"the id {clip(custom_id)!r} is used on line {first} already"
            problems.append(Problem(line, message, field="id"))
        return custom_id

    def _model(self, given: str, line: int, problems: list[Problem]) -> str | None:
        """The row's model when it can be one."""
        model = given.strip() or self._options.model
        if model is None:
            problems.append(Problem(line, "no model", field="model", advice=_NAME_ONE))
            return None
        if model not in self._report.models:
            if fault := _model_fault(model):
                problems.append(Problem(line, fault, field="model"))
                return None
            self._report.models[model] = line
        return model

    def _query(self, own: dict[str, JSON], line: int, problems: list[Problem]) -> str:
        """The query parameters of a row: its own over the batch's."""
        if not own:
            return self._batch_query
        parameters, faults = read_parameters(own)
        problems += [Problem(line, fault, field=name) for name, fault in faults]
        return parameters.over(self._options.query).query


class _CsvRows(_Rows):
    def __init__(
        self,
        records: CsvRecords,
        delimiter: str,
        options: ManifestOptions,
        input_fields: Callable[[str], InputFields | None],
        report: ReadReport,
    ) -> None:
        super().__init__(options, input_fields, report)
        self._records = records
        self._delimiter = delimiter
        self._bodies: dict[str, CsvBodies] = {}
        self._names: list[str] = []

    def read(self) -> Iterator[JobSpec | Problem]:
        """Header, then rows."""
        records, report = self._records, self._report
        self._names = names = report.columns = read_header(records, self._delimiter)
        problems = list(self._header_problems(records.line))
        if problems:
            yield from problems
            return
        places = {name: index for index, name in enumerate(names)}
        self._id_place, self._model_place = places.get("id"), places.get("model")
        self._query_places = {name: places[name] for name in QUERY_PARAMETERS if name in places}
        self._keys = [f"{quote(name)}:" for name in names]
        width = len(names)
        for cells in records:
            if isinstance(cells, Problem):
                report.rows += 1
                yield cells
            elif _is_blank(cells):
                report.blank_rows += 1
            else:
                report.rows += 1
                if len(cells) == width:
                    yield from self._row(cells, records.line)
                else:
                    yield _wrong_count(len(cells), width, records.line)

    def _row(self, cells: list[str], line: int) -> Sequence[JobSpec | Problem]:
        problems: list[Problem] = []
        # Made-up ids differ from each other, so without an id column there is nothing to compare.
        if self._id_place is None:
            custom_id = f"row-{self._report.rows}"
        else:
            custom_id = self._custom_id(cells[self._id_place], line, problems)
        model = self._model("" if self._model_place is None else cells[self._model_place], line, problems)
        body = b""
        if model is not None:
            bodies = self._bodies.get(model) or self._new_bodies(model, line, problems)
            body = bodies.build(cells, line, problems)
        query = self._query({name: cells[place] for name, place in self._query_places.items()}, line, problems)
        if problems or model is None:
            return problems
        columns = ",".join([key + quote(cell) for key, cell in zip(self._keys, cells, strict=True)])
        return (JobSpec(self._report.rows, line, custom_id, model, body, f"{{{columns}}}", query),)

    def _new_bodies(self, model: str, line: int, problems: list[Problem]) -> CsvBodies:
        fields = self._input_fields(model)
        bodies = CsvBodies(self._names, model, fields, self._options.template, self._options.files)
        self._bodies[model] = bodies
        problems += [Problem(line, message, field=column) for column, message in bodies.faults]
        self._report.hints += case_hints(self._names, fields or {}, model)
        return bodies

    def _header_problems(self, line: int) -> Iterator[Problem]:
        """What makes every row of the file wrong, said once."""
        template, names = self._options.template, self._names
        for name in names:
            if name.startswith(BODY_PREFIX):
                try:
                    if not split_type(name[len(BODY_PREFIX) :])[0]:
                        yield Problem(line, "no field is named after `body.`", field=name)
                except HeaderFault as fault:
                    yield Problem(line, fault.message, field=name, advice=fault.advice)
        if template is None and not any(gives_prompt(name) for name in names):
            yield Problem(line, "no column `prompt`", advice=no_prompt(names))
        for column in template.columns if template else ():
            if column not in names:
                message = f"the template uses the column `{column}`, which is not there"
                yield Problem(line, message, advice=no_template_column(column, names))
        if self._options.model is None and "model" not in names:
            yield Problem(line, "no column `model`, and no default", advice=_NAME_ONE)


class _JsonlRows(_Rows):
    def __init__(
        self,
        records: JsonlRecords,
        options: ManifestOptions,
        input_fields: Callable[[str], InputFields | None],
        report: ReadReport,
    ) -> None:
        super().__init__(options, input_fields, report)
        self._records = records
        self._bodies: dict[str, JsonlBodies] = {}

    def read(self) -> Iterator[JobSpec | Problem]:
        """Row by row."""
        for row in self._records:
            if row is None:
                self._report.blank_rows += 1
                continue
            self._report.rows += 1
            if isinstance(row, Problem):
                yield row
            else:
                yield from self._row(row, self._records.line)

    def _row(self, row: dict[str, JSON], line: int) -> Sequence[JobSpec | Problem]:
        problems: list[Problem] = []
        own = exported_row(row)
        columns = self._records.text if own is None else dump(own)
        row = row if own is None else own
        custom_id = self._custom_id(_text(row.get("id"), "id", line, problems), line, problems)
        model = self._model(_text(row.get("model"), "model", line, problems), line, problems)
        body = b""
        if model is not None:
            if model not in self._bodies:
                options = self._options
                self._bodies[model] = JsonlBodies(model, self._input_fields(model), options.template, options.files)
            body = self._bodies[model].build(row, line, problems)
        query = self._query({name: row[name] for name in QUERY_PARAMETERS if name in row}, line, problems)
        if problems or model is None:
            return problems
        return (JobSpec(self._report.rows, line, custom_id, model, body, columns, query),)


def _text(value: JSON, key: str, line: int, problems: list[Problem]) -> str:
    """An id or model: a text, or for an id also a number, whose digits are the id."""
    if value is None or type(value) is str:
        return value or ""
    if key == "id" and isinstance(value, Number):
        return str(value)
    problems.append(Problem(line, f"the {key} is not a text", field=key))
    return ""


def _is_blank(cells: list[str]) -> bool:
    first = cells[0]
    if first and not first.isspace():
        return False
    return not any(cell.strip() for cell in cells)


def _wrong_count(found: int, expected: int, line: int) -> Problem:
    noun = "field" if found == 1 else "fields"
    advice = 'put a cell with a delimiter in it in quotes, like "a cat, sitting"' if found > expected else None
    return Problem(line, f"{found} {noun}, the header has {expected}", advice=advice)
