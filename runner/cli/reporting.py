"""`report`: a batch as a page."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import IO

from rich.markup import escape

from runner.cli.context import Context
from runner.cli.output import err, out
from runner.core.types import JobState
from runner.report.again import UNHAPPY
from runner.report.export import write_whole
from runner.report.page import MOST_ROWS, Material, report_page
from runner.store.batches import BatchRecord
from runner.store.queries import JobView


def write_report(context: Context, batch: BatchRecord, output: Path | None, most_thumbnails: int) -> None:
    """Write the page, whole or not at all, and say where. Raises `DiskError`."""
    target = (output or Path(f"{batch.name}-report.html")).absolute()
    queries = context.queries
    material = Material(
        summary=queries.summary(batch),
        reasons=queries.reasons(batch.id, sorted(UNHAPPY)),
        models=queries.models(batch.id),
        timings=queries.timings(batch.id),
        jobs=_rows(context, batch),
        folder=target.parent,
        content=queries.content,
        most_thumbnails=most_thumbnails,
    )
    with err.status("Making the report …"):
        page = report_page(material).encode()

    def fill(file: IO[bytes]) -> None:
        file.write(page)

    write_whole(fill, target)
    out.print(str(target), markup=False)
    err.print(f"Next: open it in a browser. Media are shown from {escape(batch.output_dir)}, where they lie.")


def _rows(context: Context, batch: BatchRecord) -> list[JobView]:
    """At most `MOST_ROWS` rows in the manifest's order, those that did not succeed before all others."""
    jobs = context.queries.jobs
    unhappy = list(islice(jobs(batch.id, sorted(UNHAPPY)), MOST_ROWS))
    others = [state for state in JobState if state not in UNHAPPY]
    rest = islice(jobs(batch.id, others), MOST_ROWS - len(unhappy))
    return sorted((*unhappy, *rest), key=lambda job: job.row)
