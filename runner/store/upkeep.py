"""What keeps the work going whatever is lost: finding due jobs, dead workers, free places, one holder at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text

from runner.core.types import BatchState, Policy, Step
from runner.store.admission import admit_within, finish_batch, lock_credential, withdraw_unsent
from runner.store.cancelling import cancel_open_jobs
from runner.store.engine import Database
from runner.store.hot import Hot, Row, Sql
from runner.store.jobs import GRACE, JobStore
from runner.store.records import Wake

#: A worker that was not seen for this long is taken for dead, in seconds; it is seen every two.
WORKER_TIMEOUT = 8.0
#: Clocks of two machines are not further apart than this, in seconds; a time beyond it is of a clock that was put back.
CLOCKS_APART = 60.0
#: A message that may have been lost is sent again after so many seconds at the latest.
LONGEST_PATIENCE = 60.0
#: How long a read is left alone whose answer was lost with the worker that got it, in seconds. The Router may have
#: named a wait in it (contract: `RouterQueuePollAfterHeader`), and an early read learns nothing.
SHORTEST_WAIT = Policy().poll_interval
LONGEST_WAIT = 60.0
#: Messages of one sweep: enough for any window, bounded for any accident.
SWEEP_LIMIT = 1000

_DUE = """
SELECT j.id, j.step, j.batch_id, j.row, j.queue_position, j.due_at FROM job j
JOIN credential c ON c.id = j.credential_id
WHERE j.credential_id = :credential AND j.wake_at <= :now AND j.step IS NOT NULL
  AND (j.claim_token IS NULL OR j.claim_until <= :now)
  AND (j.step <> 'submit' OR (j.batch_id = COALESCE(:only, j.batch_id)
    AND EXISTS (SELECT 1 FROM batch b WHERE b.id = j.batch_id AND b.state = 'active')))
  AND c.blocked IS NULL AND (c.cool_down_until IS NULL OR c.cool_down_until <= :now)
ORDER BY CASE WHEN j.step = 'submit' THEN 1 ELSE 0 END, COALESCE(j.deadline, j.wake_at),
  CASE WHEN j.step = 'fetch' THEN 0 ELSE 1 END, j.wake_at LIMIT :most
"""
_SELECT_DUE = Sql(_DUE, postgresql_suffix=" FOR UPDATE OF j SKIP LOCKED")
_WOKEN = Sql("UPDATE job SET wake_at = :wake WHERE id = :id")
_SEEN = text("""
INSERT INTO worker (id, credential_id, host, pid, concurrency, started_at, seen_at)
VALUES (:id, :credential_id, :host, :pid, :concurrency, :now, :now)
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at
""")
# Seen in the future: of a clock that was put back since, or of another machine's that is far ahead.
_WORKER = "id, credential_id, host, pid, concurrency"
_LIVE = "seen_at >= :before AND seen_at <= :ahead"
_DEAD = Sql(f"SELECT id FROM worker WHERE NOT ({_LIVE})")  # noqa: S608  # a constant
# The wait that the lost answer named is not known: as long as the one before, within bounds.
_WAIT_AGAIN = f"""
CASE WHEN due_at - decided_at > {SHORTEST_WAIT} AND due_at - decided_at < {LONGEST_WAIT} THEN due_at - decided_at
  WHEN due_at - decided_at >= {LONGEST_WAIT} THEN {LONGEST_WAIT} ELSE {SHORTEST_WAIT} END
"""
# Who held it may have sent the key, or read an answer, and had no time to say so.
_ANSWERED = "step IN ('collect', 'status') AND claim_until > :now"
_FREED = f"""
claim_token = NULL, claim_owner = NULL, claim_until = NULL,
  wake_at = CASE WHEN {_ANSWERED} THEN :now + {_WAIT_AGAIN} ELSE :now END,
  due_at = CASE WHEN {_ANSWERED} THEN :now + {_WAIT_AGAIN} ELSE due_at END,
  decided_at = CASE WHEN {_ANSWERED} THEN :now ELSE decided_at END,
  charge = CASE WHEN step = 'submit' AND charge = 'unbilled' THEN 'possible' ELSE charge END
"""
_DEAD_CLAIMS = Sql(f"""
UPDATE job SET {_FREED}
WHERE claim_owner IS NOT NULL AND claim_owner NOT IN (SELECT id FROM worker WHERE {_LIVE})
""")  # noqa: S608  # a constant
_LOOK_NOW = text("""
UPDATE job SET wake_at = :now
WHERE credential_id = :id AND wake_at > :now AND due_at <= :now AND step IS NOT NULL AND claim_token IS NULL
""")
_SET_RIGHT = text("""
UPDATE job SET due_at = :now + (due_at - decided_at), decided_at = :now,
  wake_at = CASE WHEN wake_at IS NULL THEN NULL ELSE :now + (due_at - decided_at) END
WHERE credential_id = :id AND decided_at > :ahead AND (wake_at IS NOT NULL OR state = 'pending')
""")
_SET_COOLING_RIGHT = text("""
UPDATE credential SET cool_down_until = :now + (cool_down_until - cooled_at), cooled_at = :now
WHERE id = :id AND cooled_at > :ahead
""")
_SET_PACE_RIGHT = text("UPDATE credential SET paced_until = :now WHERE id = :id AND paced_until > :ahead")
_DROP_LEASES = text("DELETE FROM lease WHERE holder = :id")
_FORGET_WORKER = Sql("DELETE FROM worker WHERE id = :id")
_RELEASE_CLAIMS = text(f"UPDATE job SET {_FREED} WHERE claim_owner = :id")  # noqa: S608  # a constant
_FREE_CLAIM = text(f"UPDATE job SET {_FREED} WHERE id = :id AND claim_token = :token")  # noqa: S608  # a constant
_TAKE_LEASE = text("""
INSERT INTO lease (name, holder, until) VALUES (:name, :holder, :until)
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
WHERE lease.holder = excluded.holder OR lease.until < :now OR lease.until > :until + :ahead
""")
_DROP_LEASE = text("DELETE FROM lease WHERE name = :name AND holder = :holder")
_OPEN_BATCHES = Sql("""
SELECT id, state FROM batch WHERE credential_id = :id AND state IN ('active', 'cancelling') AND total IS NOT NULL
""")


@dataclass(frozen=True, slots=True)
class HeldClaim:
    """A claim that stands."""

    job_id: int
    token: str


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker as it shows itself to the others."""

    id: str
    credential_id: int
    host: str
    pid: int
    concurrency: int


def _patience(overdue: float) -> float:
    """Seconds until a message is sent once more: the longer the others were not heard, the fewer are added to them."""
    return min(max(2 * GRACE, overdue), LONGEST_PATIENCE)


class UpkeepStore:
    """Transactions of the sweeper."""

    def __init__(self, database: Database, jobs: JobStore) -> None:
        self._database = database
        self._jobs = jobs

    def take_lease(self, name: str, holder: str, now: float, seconds: float) -> bool:
        """Whether `holder` has the lease now; it lasts until `now + seconds` and must be taken again before."""
        values = {"name": name, "holder": holder, "now": now, "until": now + seconds, "ahead": CLOCKS_APART}
        with self._database.write("lease") as connection:
            return connection.execute(_TAKE_LEASE, values).rowcount == 1

    def lease_holder(self, name: str) -> str | None:
        """Who has the lease, or had it last; `None` when it was given back."""
        with self._database.read() as connection:
            found = connection.execute(text("SELECT holder FROM lease WHERE name = :name"), {"name": name})
            holder: str | None = found.scalar_one_or_none()
            return holder

    def drop_lease(self, name: str, holder: str) -> None:
        """Give the lease back, if `holder` still has it."""
        with self._database.write("drop lease") as connection:
            connection.execute(_DROP_LEASE, {"name": name, "holder": holder})

    def seen(self, worker: WorkerInfo, now: float, forgotten: Sequence[HeldClaim] = ()) -> None:
        """Note that the worker is alive, and free those of its claims that it has forgotten, if they still stand."""
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
            for claim in forgotten:
                connection.execute(_FREE_CLAIM, {"id": claim.job_id, "token": claim.token, "now": now})

    def gone(self, worker_id: str, now: float) -> None:
        """The worker has stopped: its claims and its leases are free at once."""
        with self._database.write("gone") as connection:
            connection.execute(_DROP_LEASES, {"id": worker_id})
            connection.execute(_RELEASE_CLAIMS, {"id": worker_id, "now": now})
            connection.execute(text(_FORGET_WORKER.sqlite), {"id": worker_id})

    def workers(self) -> list[WorkerInfo]:
        """Every worker that has not taken its leave."""
        with self._database.read() as connection:
            rows = connection.execute(text(f"SELECT {_WORKER} FROM worker")).all()  # noqa: S608  # a constant
        return [WorkerInfo(*row) for row in rows]

    def live_workers(self, credential_id: int, now: float) -> list[WorkerInfo]:
        """The workers that were seen lately."""
        with self._database.read() as connection:
            found = connection.execute(
                text(f"SELECT {_WORKER} FROM worker WHERE credential_id = :id AND {_LIVE}"),  # noqa: S608  # a constant
                {"id": credential_id, "before": now - WORKER_TIMEOUT, "ahead": now + CLOCKS_APART},
            )
            return [WorkerInfo(*row) for row in found]

    def set_clock_right(self, credential_id: int, now: float) -> None:
        """Shorten what a clock made too long that was put back since: a delay counts from when it was written."""
        values = {"id": credential_id, "now": now, "ahead": now + CLOCKS_APART}
        with self._database.write("set clock right") as connection:
            for statement in (_SET_RIGHT, _SET_COOLING_RIGHT, _SET_PACE_RIGHT):
                connection.execute(statement, values)

    def claims_of(self, worker_id: str) -> list[HeldClaim]:
        """The claims that stand under a worker's name."""
        with self._database.read() as connection:
            found = connection.execute(
                text("SELECT id, claim_token FROM job WHERE claim_owner = :id"), {"id": worker_id}
            )
            return [HeldClaim(row[0], row[1]) for row in found]

    def look_now(self, credential_id: int, now: float) -> None:
        """A worker begins, perhaps since none was left: what is due need not wait for the messages of before."""
        with self._database.write("look now") as connection:
            connection.execute(_LOOK_NOW, {"id": credential_id, "now": now})

    def sweep(self, credential_id: int, now: float, *, bury: bool = True) -> list[Wake]:
        """Free the claims of dead workers, let jobs into the window, and find every job whose message is missing.

        Without `bury` nobody is taken for dead: after the database was away, the living could not show themselves.
        """
        with self._database.hot_write("sweep") as hot:
            if bury:
                self._bury(hot, now)
            # Locks are taken in one order everywhere: job, credential, batch.
            only = self._jobs.only_batch
            withdraw_unsent(hot, credential_id, only, now)
            due = hot.rows(_SELECT_DUE, {"credential": credential_id, "now": now, "most": SWEEP_LIMIT, "only": only})
            hot.run_many(_WOKEN, [{"id": job["id"], "wake": now + _patience(now - job["due_at"])} for job in due])
            wakes = [self._wake(job) for job in due]
            credential = lock_credential(hot, credential_id)
            wakes.extend(admit_within(hot, credential, now, self._jobs.batch_name, only))
            for batch in hot.rows(_OPEN_BATCHES, {"id": credential_id}):
                if batch["state"] == BatchState.CANCELLING:
                    wakes.extend(cancel_open_jobs(hot, batch["id"], self._jobs.batch_name(batch["id"]), now))
                finish_batch(hot, batch["id"], now)
            return wakes

    def _bury(self, hot: Hot, now: float) -> None:
        values = {"before": now - WORKER_TIMEOUT, "now": now, "ahead": now + CLOCKS_APART}
        hot.run(_DEAD_CLAIMS, values)
        for worker in hot.rows(_DEAD, values):
            hot.run(_FORGET_WORKER, {"id": worker["id"]})

    def _wake(self, job: Row) -> Wake:
        name = self._jobs.batch_name(job["batch_id"])
        return Wake(job["id"], Step(job["step"]), name, job["row"], 0.0, job["queue_position"])
