"""The manifest's own rows in their order, with what became of each."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from runner.core.errors import DiskError
from runner.core.jsontext import JSON, Number, dump
from runner.report.csvtext import csv_record
from runner.store.queries import AssetView, JobView

#: Outcome columns of a CSV export, in order.
OUTCOME_COLUMNS = (
    "row",
    "custom_id",
    "model",
    "state",
    "error_type",
    "error_detail",
    "charge",
    "request_id",
    "idempotency_key",
    "submitted_at",
    "finished_at",
    "result_path",
    "asset_paths",
    "asset_states",
)
#: Put before an outcome column whose plain name the manifest uses itself.
PREFIX = "comfy_"
#: How a cell begins that spreadsheets calculate instead of showing it.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?")


def jsonl_lines(jobs: Iterable[JobView]) -> Iterator[str]:
    """One JSON object a job; its `input` is the manifest row's text, digit for digit."""
    for job in jobs:
        document = {
            "row": job.row,
            "custom_id": job.custom_id,
            "model": job.model,
            "state": job.state.value,
            "error_type": error_type(job),
            "error_detail": job.error_detail,
            "charge": job.charge,
            "request_id": job.request_id,
            "idempotency_key": job.idempotency_key,
            "submitted_at": _moment(job.submitted_at),
            "finished_at": _moment(job.finished_at),
            "result_path": job.result_path,
            "assets": [asset_document(asset) for asset in job.assets],
        }
        yield f'{json.dumps(document, ensure_ascii=False)[:-1]}, "input": {job.columns}}}\n'


def csv_lines(
    jobs: Callable[[], Iterable[JobView]], columns: Sequence[str], *, for_spreadsheets: bool = False
) -> Iterator[str]:
    """A header and one record a job: the manifest's `columns`, then `OUTCOME_COLUMNS`.

    Where the manifest named no columns (JSONL), they are all the keys of its objects, in the order of their first use;
    `jobs` is then read twice. `for_spreadsheets` puts an apostrophe before cells that a spreadsheet would calculate.
    """
    own = list(columns) or keys_of(jobs())
    outcome = outcome_names(own)
    written = _harmless if for_spreadsheets else str
    yield csv_record([written(name) for name in (*own, *outcome)])
    for job in jobs():
        cells = [*(cell or "" for cell in own_cells(job, own)), *_outcome(job)]
        yield csv_record([written(cell) for cell in cells])


def _harmless(cell: str) -> str:
    return f"'{cell}" if cell.startswith(_FORMULA) and not _NUMBER.fullmatch(cell) else cell


def write_whole(fill: Callable[[IO[bytes]], None], target: Path) -> None:
    """Have `fill` write one file that appears whole or not at all. Raises `DiskError`.

    A link is followed. What is no file, such as a pipe or `/dev/stdout`, is written to as it is and never replaced.
    """
    try:
        if target.exists() and not target.is_file() and not target.is_dir():
            with target.open("wb") as device:
                fill(device)
            return
        target = target.resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise DiskError(f"{target} cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(handle, "wb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files for the owner only; an export is a file like any other.
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        os.replace(name, target)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise DiskError(f"{target} cannot be written: {error.strerror}") from error
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def error_type(job: JobView) -> str | None:
    """Why the job did not succeed, in a word."""
    return job.error_type or job.reason


def asset_document(asset: AssetView) -> dict[str, Any]:
    """One media file as an export tells of it."""
    return {
        "path": asset.path,
        "media_type": asset.media_type,
        "size": asset.size,
        "sha256": asset.sha256,
        "state": asset.state,
    }


def _outcome(job: JobView) -> list[str]:
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
        _moment(job.submitted_at),
        _moment(job.finished_at),
        job.result_path,
        "\n".join(asset.path for asset in job.assets if asset.path),
        "\n".join(asset.state for asset in job.assets),
    )
    return ["" if value is None else str(value) for value in values]


def outcome_names(own: Sequence[str]) -> list[str]:
    """What the outcome columns are called beside the manifest's own."""
    return [free_name(name, own) for name in OUTCOME_COLUMNS]


def free_name(name: str, own: Sequence[str]) -> str:
    """The outcome column's name, with `PREFIX` as often before it as the manifest's own columns ask for."""
    while name in own:
        name = PREFIX + name
    return name


def own_cells(job: JobView, own: Sequence[str]) -> list[str | None]:
    """The manifest row's own values as text, digits as they were written; `None` where there is none."""
    cells = cells_of(job)
    return [cells.get(name) for name in own]


def cells_of(job: JobView) -> dict[str, str | None]:
    """All of them by their names."""
    given = json.loads(job.columns, parse_float=Number, parse_int=Number)
    return {name: _cell(value) for name, value in given.items()}


def keys_of(jobs: Iterable[JobView]) -> list[str]:
    """All the keys of the manifest's rows, in the order of their first use."""
    found: dict[str, None] = {}
    for job in jobs:
        found.update(dict.fromkeys(json.loads(job.columns)))
    return list(found)


def _cell(value: JSON) -> str | None:
    return value if value is None or isinstance(value, str) else dump(value)


def _moment(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(round(seconds, 3), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
