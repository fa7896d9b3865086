"""Batches: created from a manifest, found by name, resumed, retried, paused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection, RowMapping, text
from sqlalchemy.exc import IntegrityError

from runner.core.errors import NotFound, UsageError
from runner.core.lifecycle import decide
from runner.core.types import BatchState, Charge, JobState, Outcome, OutcomeKind, Policy
from runner.store.admission import finish_batch
from runner.store.cancelling import cancel_open_jobs, count_open
from runner.store.engine import Database
from runner.store.events import event_of, insert_event
from runner.store.hot import Sql
from runner.store.records import Wake
from runner.store.rows import job_of

#: Rows written in one transaction while a manifest is read, and about how many bytes of them at most.
CHUNK = 2000
CHUNK_BYTES = 16 * 1024 * 1024

_INSERT_JOB = text("""
INSERT INTO job (id, batch_id, credential_id, row, custom_id, model, state, charge, run, idempotency_key,
  attempts, recollects, due_at)
VALUES (:id, :batch_id, :credential_id, :row, :custom_id, :model, :state, :charge, 1, :key, 0, 0, :now)
""")
_INSERT_PAYLOAD = text("INSERT INTO payload (job_id, body, query, columns) VALUES (:id, :body, :query, :columns)")
_NEXT_IDS = {
    "sqlite": text("SELECT COALESCE(MAX(id), 0) + 1 FROM job WHERE :count > 0"),
    "postgresql": text("SELECT nextval(pg_get_serial_sequence('job', 'id')) FROM generate_series(1, :count)"),
}
_NEW_BATCH = text("""
INSERT INTO batch (id, name, fingerprint, credential_id, state, simulated, manifest, columns, asset_store,
  output_dir, created_at)
VALUES (:id, :name, :fingerprint, :credential_id, :state, :simulated, :manifest, '[]', :asset_store,
  :output_dir, :now)
""")
_WAKE_ALL = text("""
UPDATE job SET wake_at = :now WHERE batch_id = :id AND step IS NOT NULL AND claim_token IS NULL AND due_at <= :now
""")
# Whoever resumes says that the network is back; a wait that the Router itself named is kept.
_TRY_AGAIN = text("""
UPDATE job SET due_at = :now, attempts = 0 WHERE batch_id = :id AND step IS NOT NULL AND last = :last AND due_at > :now
""")
_WAKE_LATER = text("""
UPDATE job SET wake_at = due_at WHERE batch_id = :id AND step IS NOT NULL AND claim_token IS NULL AND due_at > :now
""")
_MOVED = text("""
UPDATE job SET state = :state, step = :step, charge = :charge, attempts = 0, last = :last, recollects = 0,
  reason = :reason, error_type = :error_type, error_detail = :error_detail, due_at = :now, wake_at = :wake_at,
  finished_at = NULL
WHERE id = :id AND state = :was
""")
_TO_MOVE = "SELECT * FROM job WHERE batch_id = :id AND state = :state ORDER BY row"
_SELECT_TO_MOVE = {"sqlite": text(_TO_MOVE), "postgresql": text(_TO_MOVE + " FOR UPDATE")}
# Of those that succeeded, only the ones whose media could not all be had.
_LOST = """
SELECT * FROM job WHERE batch_id = :id AND state = :state
  AND id IN (SELECT job_id FROM asset WHERE state = 'failed') ORDER BY row
"""
_SELECT_LOST = {"sqlite": text(_LOST), "postgresql": text(_LOST + " FOR UPDATE")}
_EXPECT_AGAIN = text(
    "UPDATE asset SET state = 'expected', attempts = 0, error = NULL WHERE job_id = :id AND state = 'failed'"
)
# A finished or paused batch has jobs to do again.
_REOPEN = text("""
UPDATE batch SET state = 'active', finished_at = NULL, pause_reason = NULL, pause_detail = NULL, alike = 0,
  alike_as = NULL
WHERE id = :id AND state IN ('finished', 'paused')
""")
_NEW_RUN = text("""
UPDATE job SET run = run + 1, idempotency_key = :key, first_sent_at = NULL, submitted_at = NULL, request_id = NULL,
  status_url = NULL, response_url = NULL, cancel_url = NULL, queue_position = NULL, estimate = NULL,
  quote_low = NULL, quote_high = NULL, credits_used = NULL,
  cancel_asked_at = NULL
WHERE id = :id
""")


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """A batch as it stands."""

    id: str
    name: str
    fingerprint: str
    credential_id: int
    credential_fingerprint: str
    router: str
    state: BatchState
    pause_reason: str | None
    pause_detail: str | None
    simulated: bool
    manifest: str
    columns: str
    asset_store: str
    output_dir: str
    total: int | None
    created_at: float
    started_at: float | None
    finished_at: float | None


@dataclass(frozen=True, slots=True)
class NewBatch:
    """What a manifest's batch is made of."""

    id: str
    name: str
    fingerprint: str
    credential_id: int
    simulated: bool
    manifest: str
    asset_store: str
    output_dir: str


@dataclass(frozen=True, slots=True)
class NewJob:
    """One row to write."""

    row: int
    custom_id: str
    model: str
    body: bytes
    columns: str
    query: str = ""


def idempotency_key(batch_id: str, row: int, run: int) -> str:
    """The key of a job's run: the same whenever it is asked for, and nobody else's in the workspace.

    The batch's id is 128 random bits, so that keys of other programs and machines never meet it.
    """
    return f"cb-{batch_id}-{row}-{run}"


def next_key(key: str, run: int) -> str:
    """The key of a later run: of the batch and row that the job began with, since an edited manifest renumbers rows."""
    return f"{key.rpartition('-')[0]}-{run}"


class BatchStore:
    """Transactions that users' commands ask for."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # ---- credentials ----

    def credential(self, fingerprint: str, router: str, max_in_flight: int, *, keeps_window: bool = False) -> int:
        """The id of the credential, made at first sight; its window may open up to `max_in_flight` jobs, or, with
        `keeps_window`, as far as it might before."""
        values = {"fingerprint": fingerprint, "router": router, "window": float(max_in_flight)}
        with self._database.write("credential") as connection:
            connection.execute(
                text("""
                INSERT INTO credential (fingerprint, router, window_size, window_max)
                VALUES (:fingerprint, :router, :window, :window)
                ON CONFLICT (fingerprint) DO NOTHING
                """),
                values,
            )
            if not keeps_window:
                connection.execute(
                    text("""
                UPDATE credential SET window_max = :window,
                  window_size = CASE WHEN window_size >= window_max OR window_size > :window THEN :window
                                ELSE window_size END
                WHERE fingerprint = :fingerprint
                """),
                    values,
                )
            found = connection.execute(text("SELECT id FROM credential WHERE fingerprint = :fingerprint"), values)
            return int(found.scalar_one())

    def unblock(self, credential_id: int) -> None:
        """A user's command says that what stopped the credential is mended; the next call finds out."""
        with self._database.write("unblock") as connection:
            connection.execute(
                text("UPDATE credential SET blocked = NULL, blocked_detail = NULL WHERE id = :id"),
                {"id": credential_id},
            )
            # What met the block has no message any more, whichever batch it is of.
            connection.execute(
                text("""
                UPDATE job SET wake_at = due_at
                WHERE credential_id = :id AND wake_at IS NULL AND step IS NOT NULL AND claim_token IS NULL
                """),
                {"id": credential_id},
            )

    # ---- creating ----

    def create(self, new: NewBatch, now: float) -> None:
        """Write an empty batch. Raises `UsageError` when the name is taken."""
        values = {
            "id": new.id,
            "name": new.name,
            "fingerprint": new.fingerprint,
            "credential_id": new.credential_id,
            "state": BatchState.ACTIVE.value,
            "simulated": new.simulated,
            "manifest": new.manifest,
            "asset_store": new.asset_store,
            "output_dir": new.output_dir,
            "now": now,
        }
        try:
            with self._database.write("create batch", durable=True) as connection:
                connection.execute(_NEW_BATCH, values)
        except IntegrityError as error:
            raise UsageError(
                f"a batch named `{new.name}` exists already", advice="name this one with --name NAME"
            ) from error

    def write_rows(self, batch: NewBatch, rows: Iterable[NewJob], now: float) -> Iterable[int]:
        """Write the rows in chunks, each one transaction, yielding how many stand by now. Nothing is sent before
        `complete` has been called."""
        iterator = iter(rows)
        written = 0
        while chunk := _next_chunk(iterator):
            with self._database.write("write rows") as connection:
                ids = self._next_ids(connection, len(chunk))
                jobs, payloads = _rows(batch, chunk, ids, now)
                connection.execute(_INSERT_JOB, jobs)
                connection.execute(_INSERT_PAYLOAD, payloads)
            written += len(chunk)
            yield written

    def complete(self, batch_id: str, total: int, columns: str, now: float) -> None:
        """All rows stand; from here on they may be sent. Durable, since it makes the batch's keys count."""
        with self._database.write("complete batch", durable=True) as connection:
            connection.execute(
                text("UPDATE batch SET total = :total, columns = :columns WHERE id = :id"),
                {"id": batch_id, "total": total, "columns": columns},
            )

    def discard_rows(self, batch_id: str) -> None:
        """Remove the rows of a batch that was never completed, so nothing of it was ever sent."""
        with self._database.write("discard rows") as connection:
            unfinished = {"id": batch_id}
            where = (
                "SELECT job.id FROM job JOIN batch ON batch.id = job.batch_id WHERE batch.id = :id AND total IS NULL"
            )
            connection.execute(text(f"DELETE FROM payload WHERE job_id IN ({where})"), unfinished)  # noqa: S608  # constants
            connection.execute(text(f"DELETE FROM job WHERE id IN ({where})"), unfinished)  # noqa: S608  # constants

    def discard(self, batch_id: str) -> None:
        """Remove a batch that was never completed."""
        self.discard_rows(batch_id)
        with self._database.write("discard batch") as connection:
            connection.execute(text("DELETE FROM batch WHERE id = :id AND total IS NULL"), {"id": batch_id})

    def _next_ids(self, connection: Connection, count: int) -> Sequence[int]:
        found = connection.execute(_NEXT_IDS[connection.dialect.name], {"count": count}).scalars().all()
        return range(found[0], found[0] + count) if len(found) == 1 else found

    # ---- finding ----

    def by_fingerprint(self, fingerprint: str) -> BatchRecord | None:
        """The latest batch of the very same manifest and options."""
        return self._one("b.fingerprint = :value ORDER BY b.created_at DESC, b.id LIMIT 1", fingerprint)

    def by_name(self, name: str) -> BatchRecord | None:
        """The batch of that name."""
        return self._one("b.name = :value", name)

    def find(self, reference: str) -> BatchRecord:
        """A batch by name, by id, or `last`. Raises `NotFound`."""
        if reference == "last":
            found = self._one(":value = :value ORDER BY b.created_at DESC, b.id DESC LIMIT 1", "")
        else:
            found = self.by_name(reference) or self._one("b.id = :value", reference)
        if found is None:
            advice = "comfy-batch status" if reference != "last" else "comfy-batch run MANIFEST"
            raise NotFound(f"there is no batch `{reference}`", advice=advice)
        return found

    def all(self) -> list[BatchRecord]:
        """Every batch, the newest first."""
        return self._many(":value = :value ORDER BY b.created_at DESC, b.id DESC", "")

    def names_like(self, prefix: str) -> set[str]:
        """Names that start with `prefix`."""
        with self._database.read() as connection:
            rows = connection.execute(text("SELECT name FROM batch")).scalars()
            return {name for name in rows if name.startswith(prefix)}

    def _one(self, condition: str, value: str) -> BatchRecord | None:
        found = self._many(condition, value)
        return found[0] if found else None

    def _many(self, condition: str, value: str) -> list[BatchRecord]:
        statement = text(f"""
            SELECT b.*, c.fingerprint AS credential_fingerprint, c.router AS router, c.blocked AS blocked,
              c.blocked_detail AS blocked_detail
            FROM batch b JOIN credential c ON c.id = b.credential_id WHERE {condition}
        """)  # noqa: S608  # conditions are constants of this class, values are bound
        with self._database.read() as connection:
            return [_batch_of(row) for row in connection.execute(statement, {"value": value}).mappings()]

    # ---- commands ----

    def resume(self, batch_id: str, now: float, policy: Policy) -> int:
        """Put everything that is owed back to work: lift the pause, take back what is safe, wake what is due.

        Returns how many held jobs were taken back, and how many that lost media are asked for them again.
        """
        taken = self.move(batch_id, OutcomeKind.RESUME, (JobState.HELD,), now, policy)
        taken += self.move(batch_id, OutcomeKind.RESUME, (JobState.SUCCEEDED,), now, policy)
        with self._database.write("resume") as connection:
            connection.execute(
                text("""
                UPDATE batch SET state = 'active', pause_reason = NULL, pause_detail = NULL, finished_at = NULL,
                  alike = 0, alike_as = NULL
                WHERE id = :id AND NOT (COALESCE(pause_reason, '') = 'max_cost' AND max_cost < quoted + dearest - 1e-9)
                AND (state = 'paused' OR (state = 'finished' AND EXISTS (
                  SELECT 1 FROM job WHERE batch_id = :id
                  AND state NOT IN ('succeeded', 'failed', 'cancelled', 'expired'))))
                """),
                {"id": batch_id},
            )
            connection.execute(_TRY_AGAIN, {"id": batch_id, "now": now, "last": OutcomeKind.UNREACHABLE.value})
            connection.execute(_WAKE_ALL, {"id": batch_id, "now": now})
            connection.execute(_WAKE_LATER, {"id": batch_id, "now": now})
        return taken

    def move(
        self,
        batch_id: str,
        kind: OutcomeKind,
        states: Iterable[JobState],
        now: float,
        policy: Policy,
        error_types: Iterable[str] = (),
    ) -> int:
        """Apply a user's command to the batch's jobs in `states`, all in one durable transaction.

        New runs also reopen the batch. `error_types` narrows them to jobs that ended with one of these. Returns how
        many changed their state.
        """
        wanted = set(error_types)
        moved = 0
        with self._database.write("command", durable=True) as connection:
            for state in states:
                select = _SELECT_LOST if state is JobState.SUCCEEDED else _SELECT_TO_MOVE
                rows = connection.execute(
                    select[connection.dialect.name], {"id": batch_id, "state": state.value}
                ).mappings()
                chosen = [row for row in rows if not wanted or row["error_type"] in wanted]
                moved += sum(self._move_one(connection, row, kind, now, policy) for row in chosen)
            if moved and kind is OutcomeKind.RETRY:
                connection.execute(_REOPEN, {"id": batch_id})
        return moved

    def _move_one(self, connection: Connection, row: RowMapping, kind: OutcomeKind, now: float, policy: Policy) -> int:
        job = job_of(row)
        outcome = Outcome(kind)
        transition = decide(job, outcome, now, policy)
        if transition.state is job.state:
            return 0
        told: dict[str, object] = {}
        if transition.new_run:
            told = {"earlier_request": row["request_id"], "earlier_charge": row["charge"]}
            key = next_key(row["idempotency_key"], row["run"] + 1)
            connection.execute(_NEW_RUN, {"id": job.id, "key": key})
            for table in ("asset_content", "asset", "result"):
                connection.execute(_FORGET[table], {"id": job.id})
        connection.execute(
            _MOVED,
            {
                "id": job.id,
                "was": job.state.value,
                "state": transition.state.value,
                "step": transition.step.value if transition.step else None,
                "charge": transition.charge.value,
                "last": kind.value,
                "reason": transition.reason.value if transition.reason else None,
                "error_type": transition.error_type,
                "error_detail": transition.error_detail,
                "now": now,
                "wake_at": now if transition.step else None,
            },
        )
        if transition.state is JobState.DOWNLOADING:
            connection.execute(_EXPECT_AGAIN, {"id": job.id})
        insert_event(connection, event_of(job, outcome, transition, now, **told))
        return 1

    def pause(self, batch_id: str) -> bool:
        """Send nothing more of an active batch until it is resumed; returns whether it was active."""
        with self._database.write("pause") as connection:
            found = connection.execute(
                text("""
                UPDATE batch SET state = 'paused', pause_reason = 'user', pause_detail = NULL
                WHERE id = :id AND state = 'active'
                """),
                {"id": batch_id},
            )
            return found.rowcount == 1

    def cancel(self, batch_id: str, name: str, now: float) -> dict[JobState, int]:
        """Begin to cancel: what was not sent ends now, what the Router holds is to be asked for.

        Returns how many jobs stood in each state that this touches. The messages for the rest are the sweeper's.
        """
        with self._database.hot_write("cancel batch") as hot:
            counts = count_open(hot, batch_id)
            hot.run(_CANCEL, {"id": batch_id})
        while self._cancel_some(batch_id, name, now):
            continue
        return counts

    def _cancel_some(self, batch_id: str, name: str, now: float) -> list[Wake] | bool:
        with self._database.hot_write("cancel jobs") as hot:
            before = sum(count_open(hot, batch_id).values())
            wakes = cancel_open_jobs(hot, batch_id, name, now)
            finish_batch(hot, batch_id, now)
            return wakes or sum(count_open(hot, batch_id).values()) < before

    def set_cancel_after(self, batch_id: str, seconds: float) -> None:
        """From now on the Router is asked to cancel requests of the batch that take longer."""
        with self._database.write("set cancel after") as connection:
            connection.execute(
                text("UPDATE batch SET cancel_after = :seconds WHERE id = :id"), {"id": batch_id, "seconds": seconds}
            )

    def set_name_template(self, batch_id: str, template: str) -> None:
        """From now on the batch's media are named so."""
        with self._database.write("set name template") as connection:
            connection.execute(
                text("UPDATE batch SET name_template = :template WHERE id = :id"),
                {"id": batch_id, "template": template},
            )

    def set_max_cost(self, batch_id: str, dollars: Decimal) -> None:
        """From now on the batch is paused before the quotes of its sends add up to more."""
        with self._database.write("set max cost", durable=True) as connection:
            connection.execute(
                text("""
                UPDATE batch SET max_cost = :dollars,
                  quoted = (SELECT COALESCE(SUM(quote_high), 0) FROM job WHERE batch_id = :id),
                  dearest = COALESCE((SELECT MAX(quote_high) FROM job WHERE batch_id = :id), dearest)
                WHERE id = :id
                """),
                {"id": batch_id, "dollars": float(dollars)},
            )

    # ---- catalog ----

    def known_model(self, model: str) -> KnownModel | None:
        """What is kept of a model; `None` for one that was never looked up."""
        with self._database.read() as connection:
            row = connection.execute(
                text("SELECT charges_on_policy_rejection, document, etag FROM model WHERE id = :id"), {"id": model}
            ).one_or_none()
        return KnownModel(*row) if row else None

    def remember_model(self, model: str, charges: str, document: str | None, etag: str | None, now: float) -> None:
        """Keep what the catalog says of a model."""
        with self._database.write("remember model") as connection:
            connection.execute(
                text("""
                INSERT INTO model (id, charges_on_policy_rejection, etag, document, fetched_at)
                VALUES (:id, :charges, :etag, :document, :now)
                ON CONFLICT (id) DO UPDATE SET charges_on_policy_rejection = excluded.charges_on_policy_rejection,
                  etag = excluded.etag, document = excluded.document, fetched_at = excluded.fetched_at
                """),
                {"id": model, "charges": charges, "etag": etag, "document": document, "now": now},
            )


@dataclass(frozen=True, slots=True)
class KnownModel:
    """What was kept of a model when it was last looked up."""

    charges_on_policy_rejection: str
    document: str | None
    etag: str | None


_CANCEL = Sql("""
UPDATE batch SET state = 'cancelling', pause_reason = NULL, pause_detail = NULL
WHERE id = :id AND state IN ('active', 'paused')
""")
_FORGET = {
    "asset_content": text("DELETE FROM asset_content WHERE asset_id IN (SELECT id FROM asset WHERE job_id = :id)"),
    "asset": text("DELETE FROM asset WHERE job_id = :id"),
    "result": text("DELETE FROM result WHERE job_id = :id"),
}


def _next_chunk(rows: Iterator[NewJob]) -> list[NewJob]:
    """Rows for one transaction: bodies with pictures in them are large, and memory is to stay flat."""
    chunk, size = [], 0
    for row in rows:
        chunk.append(row)
        size += len(row.body)
        if len(chunk) >= CHUNK or size >= CHUNK_BYTES:
            break
    return chunk


def _rows(
    batch: NewBatch, chunk: Sequence[NewJob], ids: Sequence[int], now: float
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    jobs = [
        {
            "id": job_id,
            "batch_id": batch.id,
            "credential_id": batch.credential_id,
            "row": new.row,
            "custom_id": new.custom_id,
            "model": new.model,
            "state": JobState.PENDING.value,
            "charge": Charge.UNBILLED.value,
            "key": idempotency_key(batch.id, new.row, 1),
            "now": now,
        }
        for job_id, new in zip(ids, chunk, strict=True)
    ]
    payloads = [
        {"id": job_id, "body": new.body, "query": new.query, "columns": new.columns}
        for job_id, new in zip(ids, chunk, strict=True)
    ]
    return jobs, payloads


def _batch_of(row: RowMapping) -> BatchRecord:
    state = BatchState(row["state"])
    reason, detail = row["pause_reason"], row["pause_detail"]
    if row["blocked"] is not None and state is BatchState.ACTIVE:
        # What stops the credential stops each of its batches; it is written once, where it belongs.
        state, reason, detail = BatchState.PAUSED, row["blocked"], row["blocked_detail"]
    return BatchRecord(
        id=row["id"],
        name=row["name"],
        fingerprint=row["fingerprint"],
        credential_id=row["credential_id"],
        credential_fingerprint=row["credential_fingerprint"],
        router=row["router"],
        state=state,
        pause_reason=reason,
        pause_detail=detail,
        simulated=bool(row["simulated"]),
        manifest=row["manifest"],
        columns=row["columns"],
        asset_store=row["asset_store"],
        output_dir=row["output_dir"],
        total=row["total"],
        created_at=row["created_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
    )
