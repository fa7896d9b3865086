"""What keeps the work going whatever is lost: finding due jobs, dead workers, free places, one holder at a time."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import text

from runner.core.types import Step
from runner.store.admission import admit_within, finish_batch, lock_credential
from runner.store.engine import Database
from runner.store.hot import Row, Sql
from runner.store.jobs import GRACE, JobStore
from runner.store.records import Wake

#: A worker that was not seen for this long is taken for dead, in seconds; it is seen every two.
WORKER_TIMEOUT = 8.0
#: Messages of one sweep: enough for any window, bounded for any accident.
SWEEP_LIMIT = 1000

_DUE = """
SELECT j.id, j.step, j.batch_id, j.row, j.queue_position FROM job j
JOIN credential c ON c.id = j.credential_id
WHERE j.credential_id = :credential AND j.wake_at <= :now AND j.step IS NOT NULL
  AND (j.claim_token IS NULL OR j.claim_until <= :now)
  AND (j.step <> 'submit' OR EXISTS (SELECT 1 FROM batch b WHERE b.id = j.batch_id AND b.state = 'active'))
  AND c.blocked IS NULL AND (c.cool_down_until IS NULL OR c.cool_down_until <= :now)
ORDER BY CASE j.step WHEN 'fetch' THEN 0 WHEN 'submit' THEN 2 ELSE 1 END, j.wake_at LIMIT :most
"""
_SELECT_DUE = Sql(_DUE, postgresql_suffix=" FOR UPDATE OF j SKIP LOCKED")
_WOKEN = Sql("UPDATE job SET wake_at = :wake WHERE id = :id")
_SEEN = text("""
INSERT INTO worker (id, credential_id, host, pid, concurrency, started_at, seen_at)
VALUES (:id, :credential_id, :host, :pid, :concurrency, :now, :now)
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at
""")
_DEAD = Sql("SELECT id FROM worker WHERE seen_at < :before")
_DEAD_CLAIMS = Sql("""
UPDATE job SET claim_token = NULL, claim_owner = NULL, claim_until = NULL, wake_at = :now
WHERE claim_owner IS NOT NULL AND claim_owner NOT IN (SELECT id FROM worker WHERE seen_at >= :before)
""")
_DROP_LEASES = text("DELETE FROM lease WHERE holder = :id")
_FORGET_WORKER = Sql("DELETE FROM worker WHERE id = :id")
_RELEASE_CLAIMS = text("""
UPDATE job SET claim_token = NULL, claim_owner = NULL, claim_until = NULL, wake_at = :now WHERE claim_owner = :id
""")
_TAKE_LEASE = text("""
INSERT INTO lease (name, holder, until) VALUES (:name, :holder, :until)
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
WHERE lease.holder = excluded.holder OR lease.until < :now
""")
_DROP_LEASE = text("DELETE FROM lease WHERE name = :name AND holder = :holder")
_OPEN_BATCHES = Sql("""
SELECT id FROM batch WHERE credential_id = :id AND state IN ('active', 'cancelling') AND total IS NOT NULL
""")


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker as it shows itself to the others."""

    id: str
    credential_id: int
    host: str
    pid: int
    concurrency: int


class UpkeepStore:
    """Transactions of the sweeper."""

    def __init__(self, database: Database, jobs: JobStore) -> None:
        self._database = database
        self._jobs = jobs

    def take_lease(self, name: str, holder: str, now: float, seconds: float) -> bool:
        """Whether `holder` has the lease now; it lasts until `now + seconds` and must be taken again before."""
        values = {"name": name, "holder": holder, "now": now, "until": now + seconds}
        with self._database.write("lease") as connection:
            return connection.execute(_TAKE_LEASE, values).rowcount == 1

    def drop_lease(self, name: str, holder: str) -> None:
        """Give the lease back, if `holder` still has it."""
        with self._database.write("drop lease") as connection:
            connection.execute(_DROP_LEASE, {"name": name, "holder": holder})

    def seen(self, worker: WorkerInfo, now: float) -> None:
        """Note that the worker is alive."""
        values = {
            "id": worker.id,
            "credential_id": worker.credential_id,
            "host": worker.host,
            "pid": worker.pid,
            "concurrency": worker.concurrency,
            "now": now,
        }
        with self._database.write("seen") as connection:
            connection.execute(_SEEN, values)

    def gone(self, worker_id: str, now: float) -> None:
        """The worker has stopped: its claims and its leases are free at once."""
        with self._database.write("gone") as connection:
            connection.execute(_DROP_LEASES, {"id": worker_id})
            connection.execute(_RELEASE_CLAIMS, {"id": worker_id, "now": now})
            connection.execute(text(_FORGET_WORKER.sqlite), {"id": worker_id})

    def workers(self) -> list[WorkerInfo]:
        """Every worker that has not taken its leave."""
        with self._database.read() as connection:
            rows = connection.execute(text("SELECT id, credential_id, host, pid, concurrency FROM worker")).all()
        return [WorkerInfo(*row) for row in rows]

    def live_workers(self, credential_id: int, now: float) -> int:
        """How many workers were seen lately."""
        with self._database.read() as connection:
            found = connection.execute(
                text("SELECT count(*) FROM worker WHERE credential_id = :id AND seen_at >= :before"),
                {"id": credential_id, "before": now - WORKER_TIMEOUT},
            )
            return int(found.scalar_one())

    def sweep(self, credential_id: int, now: float) -> list[Wake]:
        """Free the claims of dead workers, let jobs into the window, and find every job whose message is missing."""
        with self._database.hot_write("sweep") as hot:
            before = {"before": now - WORKER_TIMEOUT, "now": now}
            hot.run(_DEAD_CLAIMS, before)
            for worker in hot.rows(_DEAD, before):
                hot.run(_FORGET_WORKER, {"id": worker["id"]})
            # Locks are taken in one order everywhere: job, credential, batch.
            due = hot.rows(_SELECT_DUE, {"credential": credential_id, "now": now, "most": SWEEP_LIMIT})
            hot.run_many(_WOKEN, [{"id": job["id"], "wake": now + 2 * GRACE} for job in due])
            wakes = [self._wake(job) for job in due]
            credential = lock_credential(hot, credential_id)
            wakes.extend(admit_within(hot, credential, now, self._jobs.batch_name))
            for batch in hot.rows(_OPEN_BATCHES, {"id": credential_id}):
                finish_batch(hot, batch["id"], now)
            return wakes

    def _wake(self, job: Row) -> Wake:
        name = self._jobs.batch_name(job["batch_id"])
        return Wake(job["id"], Step(job["step"]), name, job["row"], 0.0, job["queue_position"])
