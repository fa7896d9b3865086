"""A manifest is read: opened, checked row by row against the models' schemas, priced by shape."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from runner.cli.context import Context
from runner.cli.localfiles import LocalFiles
from runner.cli.output import err
from runner.core.errors import Excerpt, ManifestError, Problem, UsageError
from runner.core.excerpts import excerpts_of
from runner.core.inputs import InputFields, input_fields_from_schema
from runner.core.manifest import JobSpec, ManifestOptions, ReadReport, read_manifest
from runner.core.queryparams import NOTHING_SAID, QueryParameters
from runner.core.quotes import Shapes
from runner.core.template import Template
from runner.core.violations import problems_of
from runner.router.catalog import Exchange, ModelInfo, NoSuchModel, look_up_model
from runner.router.schemas import BodyChecker, checker_of

#: Problems shown in full; the rest are counted.
SHOWN_PROBLEMS = 100
#: Columns of a terminal that stand before a line that is shown: its number, and a rule.
EXCERPT_MARGIN = 14
#: Bytes read at a time.
CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Intake:
    """What a user says about a manifest."""

    manifest: str
    model: str | None = None
    template: Path | None = None
    name: str | None = None
    output: Path | None = None
    delimiter: str = ","
    encoding: str | None = None
    new: bool = False
    simulated: bool = False
    #: For rows that say nothing of their own.
    query: QueryParameters = NOTHING_SAID
    #: Whether bodies are checked against their models' schemas.
    check: bool = True
    #: A folder whose files may be embedded, beside the manifest's own.
    files_below: Path | None = None


def _format_of(manifest: str, beginning: bytes) -> Literal["csv", "jsonl"]:
    """By the file's suffix; where it says nothing, as for a pipe, an object at the beginning is no header of a CSV."""
    suffix = Path(manifest).suffix.lower()
    if suffix in {".jsonl", ".ndjson"}:
        return "jsonl"
    if suffix in {".csv", ".tsv", ".txt"}:
        return "csv"
    return "jsonl" if beginning.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{" else "csv"


class Reading:
    """One reading of a manifest: its problems, and the models it names."""

    def __init__(
        self,
        context: Context,
        intake: Intake,
        router: Exchange | None,
        template: Template | None,
        beginning: bytes,
        *,
        priced: bool,
    ) -> None:
        self._checks = intake.check
        #: Whether any row breaks its model's schema.
        self.breaks_a_schema = False
        #: Whether anybody asks what the rows cost; to compare their shapes takes longer than to read them.
        self._priced = priced
        self._context = context
        self._router = router
        self._unknown: dict[str, str] = {}
        self._fields: dict[str, InputFields | None] = {}
        self._checkers: dict[str, BodyChecker] = {}
        #: Models whose bodies cannot be checked ahead, in the order in which they were met.
        self.unchecked: list[str] = []
        #: What there is to price; empty where nobody asks.
        self.shapes = Shapes()
        self.path = intake.manifest
        self.report = ReadReport()
        self.problems: list[Problem] = []
        self.count = 0
        kind = _format_of(intake.manifest, beginning)
        self.options = ManifestOptions(
            format=kind,
            model=intake.model,
            template=template,
            delimiter=intake.delimiter,
            encoding=intake.encoding,
            query=intake.query,
            files=LocalFiles(Path(intake.manifest).parent, intake.files_below),
        )

    def rows(self, file: BinaryIO) -> Iterator[JobSpec]:
        """The rows, until the first problem; then only problems are collected, to the end of the file."""
        chunks = iter(lambda: file.read(CHUNK), b"")
        for item in read_manifest(chunks, self.options, self._input_fields, self.report):
            if isinstance(item, Problem):
                self._note(item)
                continue
            for problem in self._faults(item):
                self._note(problem)
            if not self.count:
                if self._priced:
                    self.shapes.add(item.model, item.query, item.body)
                yield item
        for model, line in self.report.models.items():
            if model in self._unknown:
                self._note(Problem(line, f"there is no model `{model}`: {self._unknown[model]}", field="model"))

    def fail_if_faulty(self, file: BinaryIO) -> None:
        """Raises `ManifestError` with every problem that was met, and the lines of `file` for whoever is there to see
        them."""
        if self.count:
            problems = sorted(self.problems, key=lambda problem: problem.line or 0)
            advice = "mend these; should a schema be wrong, run and submit take --no-check"
            raise ManifestError(
                self.path,
                problems,
                self.count,
                advice=advice if self.breaks_a_schema else None,
                excerpts=self._excerpts(file, problems) if err.is_terminal else (),
            )

    def _excerpts(self, file: BinaryIO, problems: list[Problem]) -> list[Excerpt | None]:
        def read() -> Iterator[bytes]:
            file.seek(0)
            return iter(lambda: file.read(CHUNK), b"")

        return excerpts_of(read, self.options, problems, max(40, err.width - EXCERPT_MARGIN))

    def _faults(self, row: JobSpec) -> list[Problem]:
        checker = self._checkers.get(row.model)
        # Another provider's own form is that provider's to judge (contract: `StrictMode`).
        if checker is None or "strict_mode=true" in row.query:
            return []
        violations = checker.check(row.body)
        if not violations:
            return []
        self.breaks_a_schema = True
        return problems_of(violations, row.line, self._fields[row.model] or ())

    def _note(self, problem: Problem) -> None:
        self.count += 1
        if len(self.problems) < SHOWN_PROBLEMS:
            self.problems.append(problem)

    def _input_fields(self, model: str) -> InputFields | None:
        if model not in self._fields:
            self._fields[model] = self._look_up(model)
        return self._fields[model]

    def _look_up(self, model: str) -> InputFields | None:
        if self._router is None:
            self.unchecked.append(model)
            return None
        known = self._known(model)
        info = look_up_model(self._router, model, known)
        if isinstance(info, NoSuchModel):
            self._unknown[model] = info.detail
            return None
        if info != known:
            document = json.dumps(info.document) if info.document is not None else None
            charges = info.charges_on_policy_rejection
            self._context.batches.remember_model(model, charges, document, info.etag, time.time())
        if self._checks:
            self._keep_checker(model, checker_of(info.document))
        return input_fields_from_schema(info.document) if info.document is not None else None

    def _keep_checker(self, model: str, checker: BodyChecker | None) -> None:
        if checker is None:
            self.unchecked.append(model)
        else:
            self._checkers[model] = checker

    def _known(self, model: str) -> ModelInfo | None:
        kept = self._context.batches.known_model(model)
        if kept is None:
            return None
        document = json.loads(kept.document) if kept.document is not None else None
        return ModelInfo(model, kept.charges_on_policy_rejection, document, kept.etag)


def read_template(path: Path | None) -> bytes:
    """The template's bytes; none without one. Raises `UsageError` when it cannot be read."""
    if path is None:
        return b""
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"the template {path} cannot be read: {error.strerror}") from error


def parse_template(path: Path | None, content: bytes) -> Template | None:
    """The template itself. Raises `UsageError`, naming the file, for one that cannot be right."""
    if path is None:
        return None
    try:
        return Template.parse(content)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", advice=error.advice) from error


@contextmanager
def opened(manifest: str) -> Iterator[BinaryIO]:
    """The manifest as a file that can be read twice."""
    if manifest == "-":
        with _spooled(sys.stdin.buffer) as file:
            yield file
        return
    with ExitStack() as stack:
        try:
            file = stack.enter_context(Path(manifest).open("rb"))
        except OSError as error:
            raise UsageError(
                f"{manifest} cannot be read: {error.strerror}",
                advice="name a CSV or JSONL file, or - for standard input",
            ) from error
        yield file if file.seekable() else stack.enter_context(_spooled(file))


@contextmanager
def _spooled(source: BinaryIO) -> Iterator[BinaryIO]:
    """What comes from a pipe, as a file that can be read twice."""
    with tempfile.TemporaryFile() as file:
        while chunk := source.read(CHUNK):
            file.write(chunk)
        file.seek(0)
        yield file
