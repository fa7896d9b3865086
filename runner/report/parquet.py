"""The same rows as a Parquet file, with types: for pandas, DuckDB and the like. Needs pyarrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import IO, Any

from runner.core.errors import UsageError
from runner.report.export import (
    OUTCOME_COLUMNS,
    asset_document,
    error_type,
    free_name,
    keys_of,
    outcome_names,
    own_cells,
)
from runner.store.queries import JobView

#: Rows that stand in memory, and in one group of the file.
GROUP = 10_000
#: The outcome columns of a CSV export, with all of an asset's fields in one.
OUTCOME = (*(name for name in OUTCOME_COLUMNS if not name.startswith("asset_")), "assets")


def write_parquet(jobs: Callable[[], Iterable[JobView]], columns: Sequence[str], file: IO[bytes]) -> None:
    """Write the manifest's columns as texts, digits as they were written, then the outcome with types of its own.

    Times are UTC in milliseconds, `assets` is a list of structs. Where the manifest named no columns (JSONL) `jobs` is
    read twice. Raises `UsageError` without pyarrow.
    """
    arrow, parquet = _arrow()
    own = list(columns) or keys_of(jobs())
    schema = _schema(arrow, own)
    rows = iter(jobs())
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        while group := list(islice(rows, GROUP)):
            writer.write_table(arrow.Table.from_pylist(list(_rows(group, own)), schema))


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UsageError(
            "Parquet files are written by pyarrow, which is not installed",
            advice="pip install 'comfy-batch[parquet]', or pip install pyarrow; or use --format csv or jsonl",
        ) from None
    return pyarrow, pyarrow.parquet


def _schema(arrow: Any, own: Sequence[str]) -> Any:
    moment = arrow.timestamp("ms", tz="UTC")
    asset = arrow.struct(
        [
            ("path", arrow.string()),
            ("media_type", arrow.string()),
            ("size", arrow.int64()),
            ("sha256", arrow.string()),
            ("state", arrow.string()),
        ]
    )
    types = {"row": arrow.int64(), "submitted_at": moment, "finished_at": moment, "assets": arrow.list_(asset)}
    outcome = zip(_outcome(own), OUTCOME, strict=True)
    return arrow.schema(
        [(name, arrow.string()) for name in own] + [(name, types.get(plain, arrow.string())) for name, plain in outcome]
    )


def _outcome(own: Sequence[str]) -> list[str]:
    names = dict(zip(OUTCOME_COLUMNS, outcome_names(own), strict=True))
    return [names.get(name) or free_name(name, own) for name in OUTCOME]


def _rows(jobs: Iterable[JobView], own: Sequence[str]) -> Iterator[dict[str, Any]]:
    names = _outcome(own)
    for job in jobs:
        values = (
            job.row,
            job.custom_id,
            job.model,
            job.state.value,
            error_type(job),
            job.error_detail,
            job.charge,
            job.request_id,
            job.idempotency_key,
            _milliseconds(job.submitted_at),
            _milliseconds(job.finished_at),
            job.result_path,
            [asset_document(asset) for asset in job.assets],
        )
        yield dict(zip(own, own_cells(job, own), strict=True)) | dict(zip(names, values, strict=True))


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)
