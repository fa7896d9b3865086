"""Where a batch stands once nothing more happens, and what is wrong with that."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import text

from runner.core.errors import NotFound
from runner.store.batches import BatchRecord, BatchStore
from runner.store.engine import Database
from runner.store.jobs import JobStore
from runner.store.queries import JobView, Queries
from tests.acceptance.harness import API_KEY, Ended, Router


@dataclass(frozen=True, slots=True)
class RowEnd:
    """What became of one row, without what differs from batch to batch."""

    state: str
    charge: str
    run: int
    reason: str | None
    error_type: str | None
    error_detail: str | None
    remark: str | None
    billed: int
    #: Number, state, media type, size, hash, and what is odd about it.
    assets: tuple[tuple[object, ...], ...]
    kept_as_file: bool


@dataclass
class End:
    """Where a batch stands once nothing more happens."""

    rows: dict[str, RowEnd]
    exit_code: int
    calls: dict[str, int]
    early_polls: int
    #: What must never be, in words.
    faults: list[str] = field(default_factory=list)
    #: Whether the command died where it should.
    killed: bool = False
    #: Reads whose answers died with the process: the waits that these named cannot be kept.
    lost_reads: int = 0
    #: Seconds from the restart until the batch was finished.
    seconds: float = 0.0


def look(database: Database, router: Router, ended: Ended, began: float = 0.0) -> End:
    """Where everything stands after the last command's end, compared with what the Router and the disk say. `began` is
    when the last command was started."""
    ledger = router.ledger()
    batch = BatchStore(database).find("last")
    jobs = list(Queries(database).jobs(batch.id))
    faults = [*_faults_of_database(database, batch), *_faults_of_money(jobs, ledger)]
    faults += _faults_of_files(jobs, Path(batch.output_dir))
    faults += _faults_of_results(database, router, jobs)
    rows = {job.custom_id: _row_end(job, ledger) for job in jobs}
    if "Traceback" in ended.err:
        faults.append(ended.err)
    end = End(rows, ended.code, ledger["calls"], ledger["early_polls"], faults)
    end.seconds = max((batch.finished_at or time.time()) - began, 0.0)
    return end


def _row_end(job: JobView, ledger: Mapping[str, Any]) -> RowEnd:
    assets = tuple(
        (asset.number, asset.state, asset.media_type, asset.size, asset.sha256, asset.mismatch, asset.error)
        for asset in job.assets
    )
    return RowEnd(
        job.state.value,
        job.charge,
        job.run,
        job.reason,
        job.error_type,
        job.error_detail,
        job.remark,
        ledger["by_key"].get(job.idempotency_key, {}).get("billed", 0),
        assets,
        job.result_path is not None,
    )


#: Nothing of these may be left once the last worker has ended. (The names of dead workers and their leases may: they
#: run out by themselves.)
_LEFT_OVER = {
    "a job is owed something": "SELECT count(*) FROM job WHERE wake_at IS NOT NULL OR step IS NOT NULL",
    "a job is claimed": "SELECT count(*) FROM job WHERE claim_token IS NOT NULL",
    "there is more than one batch": "SELECT count(*) - 1 FROM batch",
    "a key was used twice": "SELECT count(*) - count(DISTINCT idempotency_key) FROM job",
}


def _faults_of_database(database: Database, batch: BatchRecord) -> list[str]:
    with database.read() as connection:
        counts = {what: connection.execute(text(query)).scalar_one() for what, query in _LEFT_OVER.items()}
    faults = [f"{what} ({count})" for what, count in counts.items() if count]
    return faults if batch.finished_at is not None else [*faults, f"the batch is {batch.state}"]


def _faults_of_money(jobs: list[JobView], ledger: Mapping[str, Any]) -> list[str]:
    accounts = ledger["by_key"]
    faults = [f"{key} had {account['runs']} runs" for key, account in accounts.items() if account["runs"] != 1]
    faults += [f"{key} was billed {a['billed']} times" for key, a in accounts.items() if a["billed"] > 1]
    strangers = accounts.keys() ^ {job.idempotency_key for job in jobs}
    faults += [f"{key} is not known to both sides" for key in strangers]
    if ledger["credentials_leaked"]:
        faults.append("a media host has seen the API key")
    return faults


def _faults_of_files(jobs: list[JobView], folder: Path) -> list[str]:
    known = {asset.path: (asset.size, asset.sha256) for job in jobs for asset in job.assets if asset.path}
    documents = {job.result_path for job in jobs if job.result_path}
    there = {str(path) for path in folder.rglob("*") if not path.is_dir()}
    faults = [f"{path} stands there and nobody knows it" for path in sorted(there - known.keys() - documents)]
    faults += [f"{path} is not there" for path in sorted((known.keys() | documents) - there)]
    for path in known.keys() & there:
        content = Path(path).read_bytes()
        if known[path] != (len(content), hashlib.sha256(content).hexdigest()):
            faults.append(f"{path} is not as recorded")
    return faults


def _faults_of_results(database: Database, router: Router, jobs: list[JobView]) -> list[str]:
    """Each stored result is byte for byte what the Router has; a text's file holds the same."""
    store = JobStore(database)
    faults = []
    for job in jobs:
        if job.state != "succeeded":
            continue
        try:
            kept = store.result_document(job.id).body
        except NotFound:
            faults.append(f"{job.custom_id} has succeeded without a result")
            continue
        if kept != _router_has(router, job):
            faults.append(f"the result of {job.custom_id} is not the Router's")
        if job.result_path and Path(job.result_path).read_bytes() != kept:
            faults.append(f"the file of {job.custom_id} is not its result")
    return faults


def _router_has(router: Router, job: JobView) -> bytes:
    connection = HTTPConnection(urlsplit(router.base_url).netloc, timeout=10)
    with closing(connection):
        connection.request("GET", f"/v2/models/{job.model}/requests/{job.request_id}", headers={"X-API-Key": API_KEY})
        answer = connection.getresponse()
        body = answer.read()
    return body if answer.status == 200 else b""
