"""What a manifest is read into, and how it is to be read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from runner.core.embedding import EmbedFile, no_files
from runner.core.errors import Problem
from runner.core.queryparams import NOTHING_SAID, QueryParameters
from runner.core.template import Template

#: Problems kept with their texts; beyond them only the count goes on.
SHOWN_PROBLEMS: Final = 100


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One row of a manifest: one generation to be paid for."""

    #: From 1, in the order of the file, blank rows not counted.
    row: int
    #: Physical line, from 1, on which the row begins.
    line: int
    custom_id: str
    model: str
    #: The exact bytes to send: one compact JSON object in UTF-8.
    body: bytes
    #: The row's own columns as one JSON object, in the manifest's order; a JSONL row's object as it stood.
    columns: str
    #: What is said beside the body, as it is sent: `model_provider=fal`, or nothing.
    query: str = ""


@dataclass(frozen=True, slots=True)
class ManifestOptions:
    """How to read a manifest. `model` is the default for rows that name none."""

    format: Literal["csv", "jsonl"]
    model: str | None = None
    template: Template | None = None
    #: CSV only: one character, or the two of `\\t`, since a tab is hard to type.
    delimiter: str = ","
    #: A name that Python knows; `None` is UTF-8, or what the file's byte order mark says.
    encoding: str | None = None
    #: For rows that say nothing of their own.
    query: QueryParameters = NOTHING_SAID
    #: Gives the content of local files that a template or a header asks for.
    files: EmbedFile = no_files


@dataclass(slots=True)
class ReadReport:
    """What was met while reading; complete once the reading has ended."""

    #: Data rows, with the faulty ones.
    rows: int = 0
    #: Rows without anything in them, passed over.
    blank_rows: int = 0
    #: CSV: the header's names in order.
    columns: list[str] = field(default_factory=list)
    #: Model to the line that names it first (or gets it by default).
    models: dict[str, int] = field(default_factory=dict)
    #: The first `SHOWN_PROBLEMS` problems.
    problems: list[Problem] = field(default_factory=list)
    #: All of them.
    problem_count: int = 0
    #: Sentences about what is no fault but may not be what was meant.
    hints: list[str] = field(default_factory=list)

    def note(self, problem: Problem) -> Problem:
        """Counts the problem, and keeps it while it is among the first."""
        self.problem_count += 1
        if len(self.problems) < SHOWN_PROBLEMS:
            self.problems.append(problem)
        return problem
