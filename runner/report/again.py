"""A manifest of the rows that did not succeed, ready to be mended and run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from runner.core.types import AssetState, JobState
from runner.report.csvtext import csv_record
from runner.store.queries import JobView

#: What is over, or waits for a user's word, without the row having succeeded.
UNHAPPY = frozenset({JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED, JobState.HELD})
_MODEL = "model"


def unhappy(jobs: Iterable[JobView]) -> Iterator[JobView]:
    """Those that did not succeed, or not with all of their media."""
    for job in jobs:
        lost = any(asset.state == AssetState.FAILED for asset in job.assets)
        if job.state in UNHAPPY or (job.state is JobState.SUCCEEDED and lost):
            yield job


def csv_again(jobs: Iterable[JobView], columns: Sequence[str], delimiter: str = ",") -> Iterator[str]:
    """The manifest's own header and rows, with a column `model` where it has none: the batch's default is not known to
    whoever runs them."""
    names = [*columns] if _MODEL in columns else [*columns, _MODEL]
    yield csv_record(names, delimiter)
    for job in jobs:
        cells = json.loads(job.columns)
        cells[_MODEL] = cells.get(_MODEL) or job.model
        yield csv_record([cells.get(name) or "" for name in names], delimiter)


def jsonl_again(jobs: Iterable[JobView]) -> Iterator[str]:
    """The manifest's own objects, letter for letter but for a `model` where one has none."""
    for job in jobs:
        row = job.columns
        given = json.loads(row)
        if _MODEL not in given:
            comma = ", " if given else ""
            row = f"{row.rstrip().removesuffix('}')}{comma}{json.dumps(_MODEL)}: {json.dumps(job.model)}}}"
        yield f"{row}\n"
