"""What `export` writes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import IO

from runner.cli.context import Context
from runner.core.errors import UsageError
from runner.report.again import csv_again, jsonl_again, unhappy
from runner.report.export import csv_lines, jsonl_lines, write_whole
from runner.store.batches import BatchRecord

FORMATS = ("csv", "jsonl", "parquet")
#: Which format a file is to have by its ending, where none is named.
_ENDINGS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}


def export(
    context: Context, batch: BatchRecord, form: str | None, output: str, *, failed: bool, for_spreadsheets: bool
) -> None:
    """Write the rows of a batch to a file, whole or not at all, or to standard output (`-`).

    Raises `UsageError` for a format that there is not, or not for this, and `DiskError`.
    """
    columns: list[str] = json.loads(batch.columns)
    own = "csv" if columns else "jsonl"
    wanted = form or _ENDINGS.get(Path(output).suffix.lower()) or (own if failed else "csv")
    if wanted not in FORMATS:
        raise UsageError(f"there is no export format `{wanted}`", advice=f"use --format {', '.join(FORMATS)}")
    if for_spreadsheets and wanted != "csv":
        raise UsageError("--for-spreadsheets means something for CSV only", advice="leave it away, or use --format csv")
    if failed and (wanted != own or for_spreadsheets):
        raise UsageError(
            f"with --failed the rows stand as they stood in the manifest, which is {own}",
            advice="leave --format and --for-spreadsheets away",
        )
    if output == "-" and wanted == "parquet" and sys.stdout.isatty():
        raise UsageError("a Parquet file is nothing to read on a terminal", advice="--output FILE writes it to a file")
    fill = _filler(context, batch, columns, wanted, failed=failed, for_spreadsheets=for_spreadsheets)
    if output == "-":
        fill(sys.stdout.buffer)
    else:
        _keep_manifest(batch, Path(output))
        write_whole(fill, Path(output))


def _keep_manifest(batch: BatchRecord, target: Path) -> None:
    """Raise `UsageError` where the export would replace the manifest that its batch was made of."""
    try:
        same = target.samefile(batch.manifest)
    except OSError:
        return
    if same:
        raise UsageError(f"{target} is the manifest of `{batch.name}`", advice="name another file with --output")


def _filler(
    context: Context, batch: BatchRecord, columns: list[str], form: str, *, failed: bool, for_spreadsheets: bool
) -> Callable[[IO[bytes]], None]:
    jobs = partial(context.queries.jobs, batch.id)
    if form == "parquet":
        from runner.report.parquet import write_parquet

        return partial(write_parquet, jobs, columns)
    if failed:
        rows = unhappy(jobs())
        return partial(_write, csv_again(rows, columns) if form == "csv" else jsonl_again(rows))
    if form == "jsonl":
        return partial(_write, jsonl_lines(jobs()))
    return partial(_write, csv_lines(jobs, columns, for_spreadsheets=for_spreadsheets))


def _write(lines: Iterable[str], file: IO[bytes]) -> None:
    for line in lines:
        file.write(line.encode())
