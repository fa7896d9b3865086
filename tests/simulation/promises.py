"""What must hold of the database and the Router's ledger together, once nothing moves any more."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from runner.core.types import TERMINAL, AssetState, Charge, JobState
from runner.store.engine import Database
from runner.store.hot import Row
from tests.simulation.database import look
from tests.simulation.media import MemorySink, picture
from tests.simulation.router import RouterModel
from tests.simulation.runs import FAILURES
from tests.simulation.user import User
from tests.simulation.world import Violation

_ENDED = {state.value for state in TERMINAL}
_BEFORE_ACCEPTANCE = {JobState.PENDING.value, JobState.SUBMITTING.value}
_JOBS = """
SELECT j.*, b.state AS batch_state, b.pause_reason AS pause_reason, c.blocked AS blocked, p.body AS body,
  (SELECT count(*) FROM job o JOIN batch ob ON ob.id = o.batch_id
    WHERE o.state = 'submitting' AND o.first_sent_at IS NOT NULL AND ob.state = 'paused')
    >= CAST(c.window_size AS INTEGER) AS window_is_paused
FROM job j JOIN batch b ON b.id = j.batch_id JOIN credential c ON c.id = j.credential_id
JOIN payload p ON p.job_id = j.id ORDER BY j.id
"""


def check(database: Database, router: RouterModel, user: User, sinks: Mapping[str, MemorySink]) -> None:
    """Raise `Violation` at the first promise that is broken."""
    jobs = look(database, _JOBS)
    for job in jobs:
        _check_rest(job)
        _check_keys(job, router, user)
        _check_charge(job, router)
        if job["state"] == JobState.SUCCEEDED:
            _check_result(database, job, router, sinks[job["batch_id"]])
    _check_earlier_runs(database, router)
    _check_ends_stay(database, user)
    _check_batches(database)


def _fail(job: Row, what: str) -> None:
    raise Violation(f"job {job['id']} ({job['state']}, {job['charge']}): {what}")


def _check_rest(job: Row) -> None:
    """It has ended, or waits where the user sees it."""
    if job["state"] in _ENDED:
        if job["claim_token"] is not None or job["step"] is not None:
            _fail(job, "it has ended, but something is owed")
        return
    if job["state"] == JobState.HELD:
        if job["reason"] is None:
            _fail(job, "it is held without a reason")
        return
    # A full disk stops whatever would write to it; any other pause goes on collecting what was paid for.
    stopped = job["state"] in _BEFORE_ACCEPTANCE or job["pause_reason"] == "storage"
    paused = job["batch_state"] == "paused" and job["pause_reason"] and stopped
    # What was sent and not answered may be running, so that it keeps its place though its batch is paused.
    behind = job["window_is_paused"] and job["state"] == JobState.PENDING
    if not paused and not behind and not job["blocked"]:
        _fail(job, f"it is stuck at step {job['step']}, due {job['due_at']}, to be woken {job['wake_at']}")


def _check_keys(job: Row, router: RouterModel, user: User) -> None:
    """A key for each of the user's commands, and a run at most for each key."""
    allowed = 1 + user.retries[job["id"]]
    if job["run"] != allowed:
        _fail(job, f"run {job['run']} after {allowed - 1} retries")
    keys = router.ledger.by_owner.get(_owner(job), [])
    if len(keys) > allowed:
        _fail(job, f"{len(keys)} keys where {allowed} were asked for: {keys}")
    for key in keys:
        if len(router.ledger.runs.get(key, ())) > 1 or router.ledger.billed(key) > 1:
            _fail(job, f"{key} was paid for twice")
    if keys and job["first_sent_at"] is not None and keys[-1] != job["idempotency_key"]:
        _fail(job, f"its key is {job['idempotency_key']}, and {keys[-1]} was sent last")


def _owner(job: Row) -> str:
    return str(json.loads(job["body"])["prompt"])


def _check_charge(job: Row, router: RouterModel) -> None:
    billed = router.ledger.billed(job["idempotency_key"])
    if billed and job["charge"] == Charge.UNBILLED:
        _fail(job, "it was paid for, and the database says it was not")
    if not billed and job["charge"] == Charge.BILLED:
        _fail(job, "the database says it was paid for, and it was not")
    if job["state"] == JobState.SUCCEEDED and job["charge"] != Charge.BILLED:
        _fail(job, "it succeeded for nothing")


def _check_earlier_runs(database: Database, router: RouterModel) -> None:
    found = look(
        database,
        "SELECT e.run AS run, e.data AS data, j.batch_id AS batch_id, j.row AS row FROM event e "
        "JOIN job j ON j.id = e.job_id WHERE e.kind = 'retry'",
    )
    for event in found:
        key = f"cb-{event['batch_id']}-{event['row']}-{event['run']}"
        if json.loads(event["data"])["earlier_charge"] == Charge.UNBILLED and router.ledger.billed(key):
            raise Violation(f"{key} was paid for, and the database had said it was not")


def _check_result(database: Database, job: Row, router: RouterModel, sink: MemorySink) -> None:
    run = router.ledger.runs[job["idempotency_key"]][-1]
    if run.failure in FAILURES:
        _fail(job, f"its run failed with {run.failure}")
    if not look(database, "SELECT 1 FROM result WHERE job_id = :id", {"id": job["id"]}):
        _fail(job, "its result is not kept")
    assets = look(database, "SELECT * FROM asset WHERE job_id = :id ORDER BY number", {"id": job["id"]})
    if len(assets) != run.links + run.inline:
        _fail(job, f"{len(assets)} media files where the run made {run.links + run.inline}")
    for asset in assets:
        if asset["state"] == AssetState.FAILED and asset["error"]:
            continue
        if asset["state"] != AssetState.SAVED:
            _fail(job, f"its media file {asset['number']} is {asset['state']}")
        kept = sink.files.get(asset["path"], b"")
        right = kept == picture(_owner(job), asset["number"])
        if not right or hashlib.sha256(kept).hexdigest() != asset["sha256"]:
            _fail(job, f"its media file {asset['number']} is not what was saved")


def _check_ends_stay(database: Database, user: User) -> None:
    """Nothing leaves an end but by a retry, and a success only to fetch media that could not be had, by a resume."""
    left: dict[int, int] = {}
    for change in look(database, "SELECT * FROM change ORDER BY id"):
        if change["before"] == JobState.SUCCEEDED:
            if change["after"] != JobState.DOWNLOADING:
                raise Violation(f"job {change['job_id']} had succeeded, and is {change['after']}")
            continue
        if change["before"] in _ENDED or (change["before"] == JobState.HELD and change["after"] in _ENDED):
            left[change["job_id"]] = left.get(change["job_id"], 0) + 1
    for job_id, times in left.items():
        if times > user.retries[job_id]:
            raise Violation(f"job {job_id} left an end {times} times, and was retried {user.retries[job_id]} times")


def _check_batches(database: Database) -> None:
    for batch in look(database, "SELECT * FROM batch"):
        states = {
            job["state"] for job in look(database, "SELECT state FROM job WHERE batch_id = :id", {"id": batch["id"]})
        }
        if states <= _ENDED and batch["state"] not in ("finished", "paused"):
            raise Violation(f"all jobs of a batch have ended, and it is {batch['state']}")
        if batch["state"] == "finished" and not states <= _ENDED:
            raise Violation(f"a batch is finished, and its jobs are {sorted(states)}")
