"""Reading the record: counts, stories, rows for the export. Nothing here changes anything."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from sqlalchemy import RowMapping, bindparam, text

from runner.core.errors import NotFound
from runner.core.types import IN_FLIGHT, AssetState, Charge, JobState
from runner.store.batches import BatchRecord
from runner.store.engine import Database
from runner.store.hot import IN_FLIGHT_SQL

#: Rows read at a time by the export.
CHUNK = 1000
#: A step that has been due for so long was found by no worker, in seconds: the sweeper looks every one.
OVERDUE = 30.0


@dataclass(frozen=True, slots=True)
class Counts:
    """How many jobs of a batch stand where."""

    by_state: Mapping[JobState, int]

    @property
    def total(self) -> int:
        """All jobs."""
        return sum(self.by_state.values())

    @property
    def in_flight(self) -> int:
        """Between submitting and collected."""
        return sum(self.by_state[state] for state in IN_FLIGHT)

    @property
    def moving(self) -> int:
        """In flight or downloading: something happens to them without anybody's doing."""
        return self.in_flight + self.by_state[JobState.DOWNLOADING]

    def __getitem__(self, state: JobState) -> int:
        return self.by_state[state]


@dataclass(frozen=True, slots=True)
class Cost:
    """What is known of what some jobs cost, in US dollars: by the credits used where the Router said them, else by its
    quotes."""

    low: Decimal
    high: Decimal
    #: Jobs that may cost anything.
    unknown: int


@dataclass(frozen=True, slots=True)
class Summary:
    """A batch in numbers."""

    batch: BatchRecord
    counts: Counts
    charges: Mapping[Charge, int]
    assets: Mapping[AssetState, int]
    costs: Mapping[Charge, Cost] = field(default_factory=dict)

    @property
    def succeeded(self) -> bool:
        """Every job succeeded and all of its media are there."""
        return self.counts[JobState.SUCCEEDED] == self.counts.total and not self.assets[AssetState.FAILED]


@dataclass(frozen=True, slots=True)
class Alike:
    """Jobs that stand in one state for one reason."""

    state: JobState
    #: Both empty where there is none.
    reason: str
    error_type: str
    jobs: int
    #: The first of them, and what the Router said of it.
    row: int
    detail: str | None


@dataclass(frozen=True, slots=True)
class ModelLine:
    """What one model of a batch did."""

    model: str
    jobs: int
    succeeded: int
    #: Of what was, or may have been, charged.
    cost: Cost


@dataclass(frozen=True, slots=True)
class Timing:
    """When one job was accepted and when it ended; Unix seconds."""

    state: JobState
    model: str
    submitted_at: float | None
    finished_at: float | None

    @property
    def kind(self) -> str:
        """`succeeded`, `failed` or `other`."""
        return self.state.value if self.state in {JobState.SUCCEEDED, JobState.FAILED} else "other"


@dataclass(frozen=True, slots=True)
class Vitals:
    """The pace of a batch's credential, and the batch's places in the Router's queue."""

    in_flight: int
    window: int
    #: Until when no call goes out; Unix seconds.
    cool_down_until: float | None
    #: Least and greatest place of its requests that wait at the Router; `None` where none is known.
    first_place: int | None
    last_place: int | None


@dataclass(frozen=True, slots=True)
class Expiring:
    """Results and links that end soon, or have ended, uncollected."""

    jobs: int
    #: When the first of them ends; Unix seconds.
    first: float


@dataclass(frozen=True, slots=True)
class Overdue:
    """Steps that nobody takes."""

    jobs: int
    #: How long the first of them has been due, in seconds.
    seconds: float


@dataclass(frozen=True, slots=True)
class AssetView:
    """One media file as users see it."""

    number: int
    state: str
    path: str | None
    media_type: str | None
    size: int | None
    sha256: str | None
    mismatch: bool
    error: str | None
    secondary: bool


@dataclass(frozen=True, slots=True)
class JobView:
    """One job as users see it."""

    id: int
    batch_id: str
    row: int
    custom_id: str
    model: str
    state: JobState
    charge: str
    run: int
    idempotency_key: str
    request_id: str | None
    reason: str | None
    error_type: str | None
    error_detail: str | None
    queue_position: int | None
    due_at: float | None
    submit_call_id: str | None
    read_call_id: str | None
    submitted_at: float | None
    finished_at: float | None
    result_path: str | None
    remark: str | None
    #: The manifest row's own columns: one JSON object as text, its digits as they were written.
    columns: str
    #: Query parameters of the submit, as they are sent.
    query: str = ""
    #: What the Router expected the run to cost, as it said so (contract: `RouterCostEstimate`).
    estimate: Mapping[str, Any] = field(default_factory=dict)
    #: The result's headers about cost and provider, in lower case.
    notes: Mapping[str, str] = field(default_factory=dict)
    assets: Sequence[AssetView] = ()


@dataclass(frozen=True, slots=True)
class EventView:
    """One line of a job's story."""

    at: float
    kind: str
    state: str
    run: int
    http_status: int | None
    call_id: str | None
    data: Mapping[str, Any] = field(default_factory=dict)


_JOB = """
SELECT j.*, r.path AS result_path, r.remark AS remark, r.notes AS notes, p.columns AS columns, p.query AS query
FROM job j JOIN payload p ON p.job_id = j.id LEFT JOIN result r ON r.job_id = j.id
"""
# Jobs are counted alike by alike first, so that an index answers for a million of them. A key that went out and was not
# answered may have been charged, whatever stands in the row.
_NUMBERS = text("""
WITH alike AS (
  SELECT state, charge AS paid, credits_used, quote_low, quote_high, count(*) AS jobs
  FROM job WHERE batch_id = :id AND state <> 'submitting' GROUP BY state, charge, credits_used, quote_low, quote_high
  UNION ALL
  SELECT state, CASE WHEN first_sent_at IS NOT NULL AND charge = 'unbilled' THEN 'possible' ELSE charge END,
    credits_used, quote_low, quote_high, 1
  FROM job WHERE batch_id = :id AND state = 'submitting'
)
SELECT state, paid, SUM(jobs), COALESCE(SUM(credits_used * jobs), 0),
  COALESCE(SUM(CASE WHEN credits_used IS NULL THEN quote_low * jobs END), 0),
  COALESCE(SUM(CASE WHEN credits_used IS NULL THEN quote_high * jobs END), 0),
  SUM(CASE WHEN credits_used IS NULL AND quote_high IS NULL THEN jobs ELSE 0 END)
FROM alike GROUP BY state, paid
""")
_COSTS_BY_MODEL = text("""
SELECT model, count(*), SUM(CASE WHEN state = 'succeeded' THEN 1 ELSE 0 END),
  COALESCE(SUM(CASE WHEN charge <> 'unbilled' THEN credits_used END), 0),
  COALESCE(SUM(CASE WHEN charge <> 'unbilled' AND credits_used IS NULL THEN quote_low END), 0),
  COALESCE(SUM(CASE WHEN charge <> 'unbilled' AND credits_used IS NULL THEN quote_high END), 0),
  SUM(CASE WHEN charge <> 'unbilled' AND credits_used IS NULL AND quote_high IS NULL THEN 1 ELSE 0 END)
FROM job WHERE batch_id = :id GROUP BY model ORDER BY count(*) DESC, model
""")
_CONTENT = text("""
SELECT c.body FROM asset_content c JOIN asset a ON a.id = c.asset_id WHERE a.job_id = :job AND a.number = :number
""")
#: Comfy credits for a US dollar (contract: `RouterCostEstimate.credits`).
CREDITS_PER_DOLLAR = 211
_ASSETS = text("""
SELECT state, count(*) FROM asset WHERE batch_id = :id GROUP BY state
""")
_EXPIRING = text("""
SELECT count(*), MIN(deadline) FROM job
WHERE batch_id = :id AND state IN ('queued', 'running', 'downloading', 'held') AND deadline < :before
""")
_OVERDUE = text("""
SELECT count(*), MIN(wake_at) FROM job
WHERE batch_id = :id AND state IN ('submitting', 'queued', 'running', 'downloading') AND wake_at < :before
  AND (claim_token IS NULL OR claim_until < :now)
""")
_VITALS = text(f"""
SELECT (SELECT count(*) FROM job WHERE credential_id = :id AND {IN_FLIGHT_SQL}), window_size, cool_down_until,
  (SELECT MIN(queue_position) FROM job WHERE batch_id = :batch AND state = 'queued'),
  (SELECT MAX(queue_position) FROM job WHERE batch_id = :batch AND state = 'queued')
FROM credential WHERE id = :id
""")  # noqa: S608  # a constant
_REASONS = text("""
SELECT g.state, g.reason, g.error_type, g.jobs, g.first, j.error_detail FROM (
  SELECT state, COALESCE(reason, '') AS reason, COALESCE(error_type, '') AS error_type, count(*) AS jobs,
    MIN(row) AS first
  FROM job WHERE batch_id = :id AND state IN :states
  GROUP BY state, COALESCE(reason, ''), COALESCE(error_type, '')) g
JOIN job j ON j.batch_id = :id AND j.row = g.first ORDER BY g.jobs DESC, g.state
""").bindparams(bindparam("states", expanding=True))
_ASSETS_OF = text("SELECT * FROM asset WHERE job_id IN :ids ORDER BY job_id, number").bindparams(
    bindparam("ids", expanding=True)
)


class Queries:
    """Questions about batches and jobs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def counts(self, batch_id: str) -> Counts:
        """Jobs by state."""
        with self._database.read() as connection:
            rows = connection.execute(
                text("SELECT state, count(*) FROM job WHERE batch_id = :id GROUP BY state"), {"id": batch_id}
            ).all()
        found = {JobState(state): count for state, count in rows}
        return Counts({state: found.get(state, 0) for state in JobState})

    def summary(self, batch: BatchRecord) -> Summary:
        """The batch in numbers."""
        with self._database.read() as connection:
            rows = connection.execute(_NUMBERS, {"id": batch.id}).all()
            assets: dict[str, int] = {row[0]: row[1] for row in connection.execute(_ASSETS, {"id": batch.id})}
        counts = dict.fromkeys(JobState, 0)
        charges = dict.fromkeys(Charge, 0)
        costs: dict[Charge, tuple[float, float, float, int]] = {}
        for state, paid, jobs, *sums in rows:
            charge = Charge(paid)
            counts[JobState(state)] += int(jobs)
            charges[charge] += int(jobs)
            used, low, high, unknown = costs.get(charge, (0.0, 0.0, 0.0, 0))
            costs[charge] = used + sums[0], low + sums[1], high + sums[2], unknown + int(sums[3])
        return Summary(
            batch,
            Counts(counts),
            charges,
            {state: assets.get(state.value, 0) for state in AssetState},
            {charge: _cost_of(*sums) for charge, sums in costs.items()},
        )

    def reasons(self, batch_id: str, states: Sequence[JobState]) -> list[Alike]:
        """Jobs in `states` by what they ended with, the most frequent first."""
        with self._database.read() as connection:
            rows = connection.execute(_REASONS, {"id": batch_id, "states": [state.value for state in states]}).all()
        return [Alike(JobState(row[0]), *row[1:]) for row in rows]

    def models(self, batch_id: str) -> list[ModelLine]:
        """What each model did, the one with most rows first."""
        with self._database.read() as connection:
            rows = connection.execute(_COSTS_BY_MODEL, {"id": batch_id}).all()
        return [ModelLine(row[0], row[1], row[2], _cost_of(*row[3:])) for row in rows]

    def timings(self, batch_id: str) -> list[Timing]:
        """Of every job that ended, in no order."""
        with self._database.read() as connection:
            rows = connection.execute(
                text("""
                SELECT state, model, submitted_at, finished_at FROM job
                WHERE batch_id = :id AND finished_at IS NOT NULL
                """),
                {"id": batch_id},
            )
            return [Timing(JobState(row[0]), row[1], row[2], row[3]) for row in rows]

    def content(self, job_id: int, number: int) -> bytes | None:
        """The bytes of a media file that is kept in the database; `None` where it is not."""
        with self._database.read() as connection:
            found = connection.execute(_CONTENT, {"job": job_id, "number": number}).scalar()
        return None if found is None else bytes(found)

    def perhaps_paid(self, batch_id: str, states: Sequence[JobState], error_types: Sequence[str] = ()) -> int:
        """How many jobs in `states` were, or may have been, charged; `error_types` narrows them."""
        with self._database.read() as connection:
            rows = connection.execute(
                text("""
                SELECT COALESCE(error_type, ''), count(*) FROM job
                WHERE batch_id = :id AND state IN :states AND charge <> 'unbilled' GROUP BY error_type
                """).bindparams(bindparam("states", expanding=True)),
                {"id": batch_id, "states": [state.value for state in states]},
            ).all()
        return sum(count for error_type, count in rows if not error_types or error_type in error_types)

    def vitals(self, batch: BatchRecord) -> Vitals:
        """How the batch's credential stands, over all of its batches."""
        with self._database.read() as connection:
            row = connection.execute(_VITALS, {"id": batch.credential_id, "batch": batch.id}).one()
        return Vitals(row[0], int(row[1]), row[2], row[3], row[4])

    def slowest(self, batch_id: str) -> tuple[int, float] | None:
        """Row and time of acceptance of the job that has been in flight for longest."""
        with self._database.read() as connection:
            row = connection.execute(
                text("""
                SELECT row, COALESCE(submitted_at, first_sent_at) AS since FROM job
                WHERE batch_id = :id AND state IN ('submitting', 'queued', 'running', 'downloading')
                  AND COALESCE(submitted_at, first_sent_at) IS NOT NULL ORDER BY since LIMIT 1
                """),
                {"id": batch_id},
            ).one_or_none()
        return (row[0], row[1]) if row else None

    def expiring(self, batch_id: str, before: float) -> Expiring | None:
        """What has not been collected or downloaded and is gone by `before`; `None` when nothing is."""
        with self._database.read() as connection:
            row = connection.execute(_EXPIRING, {"id": batch_id, "before": before}).one()
        return Expiring(row[0], row[1]) if row[0] else None

    def overdue(self, batch_id: str, now: float) -> Overdue | None:
        """Steps that nobody takes though they have been due for `OVERDUE` seconds; `None` when there are none."""
        with self._database.read() as connection:
            row = connection.execute(_OVERDUE, {"id": batch_id, "now": now, "before": now - OVERDUE}).one()
        return Overdue(row[0], now - row[1]) if row[0] else None

    def find_jobs(self, reference: str) -> list[JobView]:
        """Jobs by id, request id, idempotency key or `custom_id`, or as `BATCH:ROW`; the newest first."""
        conditions, values = ["j.custom_id = :text", "j.request_id = :text", "j.idempotency_key = :text"], {}
        if reference.isdigit() and len(reference) < 10:
            conditions.append("j.id = :number")
            values["number"] = int(reference)
        name, _, row = reference.rpartition(":")
        if name and row.isdigit() and len(row) < 10:
            conditions.append(
                "(j.row = :row AND (j.batch_id IN (SELECT id FROM batch WHERE name = :name OR id = :name) OR "
                "(CAST(:name AS TEXT) = 'last' AND j.batch_id = "
                "(SELECT id FROM batch ORDER BY created_at DESC, id DESC LIMIT 1))))"
            )
            values |= {"row": int(row), "name": name}  # type: ignore[dict-item]  # one dict for both kinds of value
        statement = text(f"{_JOB} WHERE {' OR '.join(conditions)} ORDER BY j.id DESC LIMIT 20")
        with self._database.read() as connection:
            rows = connection.execute(statement, {"text": reference, **values}).mappings().all()
        if not rows:
            raise NotFound(
                f"there is no job `{reference}`", advice="name one as BATCH:ROW, by its id or by its request id"
            )
        return self._views(rows)

    def events(self, job_id: int) -> list[EventView]:
        """The job's story, in order."""
        with self._database.read() as connection:
            rows = connection.execute(
                text("SELECT * FROM event WHERE job_id = :id ORDER BY at, id"), {"id": job_id}
            ).mappings()
            return [
                EventView(
                    row["at"],
                    row["kind"],
                    row["state"],
                    row["run"],
                    row["http_status"],
                    row["call_id"],
                    json.loads(row["data"]) if row["data"] else {},
                )
                for row in rows
            ]

    def jobs(self, batch_id: str, states: Sequence[JobState] = tuple(JobState)) -> Iterator[JobView]:
        """The jobs of a batch in the manifest's order, read in chunks; `states` narrows them."""
        after = 0
        among = "" if len(states) == len(JobState) else "AND j.state IN :states"
        statement = text(f"{_JOB} WHERE j.batch_id = :id AND j.row > :after {among} ORDER BY j.row LIMIT {CHUNK}")
        values: dict[str, Any] = {"id": batch_id}
        if among:
            statement = statement.bindparams(bindparam("states", expanding=True))
            values["states"] = [state.value for state in states]
        while True:
            with self._database.read() as connection:
                rows = connection.execute(statement, values | {"after": after}).mappings().all()
            if not rows:
                return
            yield from self._views(rows)
            after = rows[-1]["row"]

    def _views(self, rows: Sequence[RowMapping]) -> list[JobView]:
        assets: dict[int, list[AssetView]] = {}
        with self._database.read() as connection:
            for asset in connection.execute(_ASSETS_OF, {"ids": [row["id"] for row in rows]}).mappings():
                assets.setdefault(asset["job_id"], []).append(_asset_view(asset))
        return [_job_view(row, assets.get(row["id"], [])) for row in rows]


def _cost_of(credits_used: float, low: float, high: float, unknown: int) -> Cost:
    used = credits_used / CREDITS_PER_DOLLAR
    # Quotes have eight decimals at most; adding up floats makes more.
    return Cost(Decimal(str(round(used + low, 6))), Decimal(str(round(used + high, 6))), int(unknown))


def _asset_view(row: RowMapping) -> AssetView:
    return AssetView(
        row["number"],
        row["state"],
        row["path"],
        row["media_type"],
        row["size"],
        row["sha256"],
        bool(row["mismatch"]),
        row["error"],
        bool(row["secondary"]),
    )


def _job_view(row: RowMapping, assets: Sequence[AssetView]) -> JobView:
    return JobView(
        id=row["id"],
        batch_id=row["batch_id"],
        row=row["row"],
        custom_id=row["custom_id"],
        model=row["model"],
        state=JobState(row["state"]),
        charge=row["charge"],
        run=row["run"],
        idempotency_key=row["idempotency_key"],
        request_id=row["request_id"],
        reason=row["reason"],
        error_type=row["error_type"],
        error_detail=row["error_detail"],
        queue_position=row["queue_position"],
        due_at=row["due_at"] if row["step"] else None,
        submit_call_id=row["submit_call_id"],
        read_call_id=row["read_call_id"],
        submitted_at=row["submitted_at"],
        finished_at=row["finished_at"],
        result_path=row["result_path"],
        remark=row["remark"],
        columns=row["columns"],
        query=row["query"],
        estimate=json.loads(row["estimate"]) if row["estimate"] else {},
        notes=json.loads(row["notes"]) if row["notes"] else {},
        assets=tuple(assets),
    )
