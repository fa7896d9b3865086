"""What `export` writes."""

from __future__ import annotations

import json
from collections.abc import Iterable

from runner.cli.context import Context
from runner.core.errors import UsageError
from runner.report.again import csv_again, jsonl_again, unhappy
from runner.report.export import csv_lines, jsonl_lines
from runner.store.batches import BatchRecord


def export_lines(
    context: Context, batch: BatchRecord, form: str | None, *, failed: bool, for_spreadsheets: bool
) -> Iterable[str]:
    """The lines of an export. Raises `UsageError` for a format that there is not, or not for this."""
    columns: list[str] = json.loads(batch.columns)
    own = "csv" if columns else "jsonl"
    wanted = form or (own if failed else "csv")
    if wanted not in {"csv", "jsonl"}:
        raise UsageError(f"there is no export format `{wanted}`", advice="use --format csv or --format jsonl")
    if for_spreadsheets and wanted != "csv":
        raise UsageError("--for-spreadsheets means something for CSV only", advice="leave it away, or use --format csv")
    if not failed:
        jobs = context.queries.jobs
        if wanted == "jsonl":
            return jsonl_lines(jobs(batch.id))
        return csv_lines(lambda: jobs(batch.id), columns, for_spreadsheets=for_spreadsheets)
    if wanted != own or for_spreadsheets:
        raise UsageError(
            f"with --failed the rows stand as they stood in the manifest, which is {own}",
            advice="leave --format and --for-spreadsheets away",
        )
    rows = unhappy(context.queries.jobs(batch.id))
    return csv_again(rows, columns) if own == "csv" else jsonl_again(rows)
