"""The tables. Times are Unix seconds (UTC), sizes are bytes, JSON stands as text so that digits stay as written."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Double, Index, LargeBinary, String, Text, UniqueConstraint, text
from sqlmodel import Field, SQLModel

from runner.store.hot import IN_FLIGHT_SQL

#: Jobs whose media somebody is to fetch.
_DOWNLOADING = "state = 'downloading' AND wake_at IS NOT NULL"
#: Jobs that have been in the window and wait to come in again.
_RELEASED = "state = 'pending' AND decided_at IS NOT NULL"


def _time(*, nullable: bool = True) -> Column[float]:
    return Column(Double, nullable=nullable)


class Credential(SQLModel, table=True):
    """One API key at one Router, known by a fingerprint only; its pace is shared by all workers."""

    id: int | None = Field(default=None, primary_key=True)
    fingerprint: str = Field(unique=True, max_length=64)
    router: str
    #: How many jobs may be in flight now; a float since it grows by fractions.
    window_size: float = Field(sa_column=Column(Double, nullable=False))
    window_max: int
    shrunk_at: float | None = Field(default=None, sa_column=_time())
    cool_down_until: float | None = Field(default=None, sa_column=_time())
    #: When that was written: a clock that was put back since then shows by it.
    cooled_at: float | None = Field(default=None, sa_column=_time())
    #: Up to when the allowed calls a second are given away.
    paced_until: float | None = Field(default=None, sa_column=_time())
    #: Why no call at all may go out, until a user's command; `None` while all is well.
    blocked: str | None = None
    blocked_detail: str | None = None


class Batch(SQLModel, table=True):
    """One manifest, submitted."""

    id: str = Field(primary_key=True, max_length=32)
    name: str = Field(unique=True)
    #: SHA-256 over the manifest's bytes and all options that shape its jobs.
    fingerprint: str = Field(index=True, max_length=64)
    credential_id: int = Field(foreign_key="credential.id", index=True)
    state: str
    pause_reason: str | None = None
    pause_detail: str | None = None
    #: How many jobs in a row ended with the same failure, and which one.
    alike: int = Field(default=0, sa_column_kwargs={"server_default": "0"})
    alike_as: str | None = None
    simulated: bool = False
    manifest: str
    #: The manifest's columns in order, a JSON array; empty for JSONL.
    columns: str = Field(sa_column=Column(Text, nullable=False))
    asset_store: str
    output_dir: str
    #: How media are named below it; `None` for the usual way.
    name_template: str | None = None
    #: How long after its acceptance the Router is asked to cancel a request, in seconds; `None` for never.
    cancel_after: float | None = Field(default=None, sa_column=_time())
    #: What the quotes of all its sends may add up to, in US dollars; `None` for any sum.
    max_cost: float | None = Field(default=None, sa_column=_time())
    #: What they add up to, where that is limited.
    quoted: float = Field(default=0.0, sa_column=Column(Double, nullable=False, server_default="0"))
    #: The largest of them, in US dollars; 0 while sends were answered without any, `None` while none was answered.
    dearest: float | None = Field(default=None, sa_column=_time())
    #: Rows of the manifest; `None` while they are still being written, and nothing is sent before.
    total: int | None = None
    created_at: float = Field(sa_column=_time(nullable=False))
    started_at: float | None = Field(default=None, sa_column=_time())
    finished_at: float | None = Field(default=None, sa_column=_time())


class JobRow(SQLModel, table=True):
    """One row of a manifest: one paid generation."""

    __tablename__ = "job"
    __table_args__ = (
        UniqueConstraint("batch_id", "row", name="uq_job_batch_row"),
        Index("ix_job_batch_state", "batch_id", "state", "row"),
        # Everything that is counted and summed up of a batch.
        Index("ix_job_numbers", "batch_id", "state", "charge", "credits_used", "quote_low", "quote_high"),
        Index(
            "ix_job_in_flight",
            "credential_id",
            sqlite_where=text(IN_FLIGHT_SQL),
            postgresql_where=text(IN_FLIGHT_SQL),
        ),
        Index(
            "ix_job_downloading",
            "credential_id",
            sqlite_where=text(_DOWNLOADING),
            postgresql_where=text(_DOWNLOADING),
        ),
        Index(
            "ix_job_wake",
            "credential_id",
            "wake_at",
            sqlite_where=text("wake_at IS NOT NULL"),
            postgresql_where=text("wake_at IS NOT NULL"),
        ),
        Index(
            "ix_job_claim_owner",
            "claim_owner",
            sqlite_where=text("claim_owner IS NOT NULL"),
            postgresql_where=text("claim_owner IS NOT NULL"),
        ),
        Index(
            "ix_job_released",
            "credential_id",
            "decided_at",
            sqlite_where=text(_RELEASED),
            postgresql_where=text(_RELEASED),
        ),
        Index("ix_job_custom_id", "custom_id"),
    )

    id: int | None = Field(default=None, primary_key=True)
    batch_id: str = Field(foreign_key="batch.id", max_length=32)
    credential_id: int = Field(foreign_key="credential.id")
    #: From 1, in the manifest's order.
    row: int
    custom_id: str
    model: str
    state: str
    step: str | None = None
    charge: str
    #: Counts the keys that a user's commands gave the job, from 1.
    run: int = 1
    idempotency_key: str = Field(unique=True, max_length=255)
    attempts: int = 0
    last: str | None = None
    recollects: int = 0
    reason: str | None = None
    error_type: str | None = None
    error_detail: str | None = Field(default=None, sa_column=Column(Text))
    #: When the next step may be taken.
    due_at: float = Field(sa_column=_time(nullable=False))
    #: When that was written; `None` until the job is first let in.
    decided_at: float | None = Field(default=None, sa_column=_time())
    #: When what is to be collected or downloaded is gone, as far as it is known.
    deadline: float | None = Field(default=None, sa_column=_time())
    #: The place that the next call has among the allowed calls a second.
    paced_at: float | None = Field(default=None, sa_column=_time())
    #: When the sweeper looks whether a message was lost; `None` while nothing is owed.
    wake_at: float | None = Field(default=None, sa_column=_time())
    claim_token: str | None = None
    claim_owner: str | None = None
    claim_until: float | None = Field(default=None, sa_column=_time())
    request_id: str | None = Field(default=None, index=True)
    status_url: str | None = None
    response_url: str | None = None
    cancel_url: str | None = None
    #: When the Router was asked to cancel the request, or said that it had ended.
    cancel_asked_at: float | None = Field(default=None, sa_column=_time())
    queue_position: int | None = None
    estimate: str | None = Field(default=None, sa_column=Column(Text))
    #: Its bounds, in US dollars; `None` where there are none.
    quote_low: float | None = Field(default=None, sa_column=_time())
    quote_high: float | None = Field(default=None, sa_column=_time())
    #: What the run was charged, in Comfy credits, where the Router said so.
    credits_used: float | None = Field(default=None, sa_column=_time())
    submit_call_id: str | None = None
    read_call_id: str | None = None
    first_sent_at: float | None = Field(default=None, sa_column=_time())
    submitted_at: float | None = Field(default=None, sa_column=_time())
    finished_at: float | None = Field(default=None, sa_column=_time())


class Payload(SQLModel, table=True):
    """What a job sends and where it came from; apart from the job, whose row is rewritten at every step."""

    job_id: int = Field(primary_key=True, foreign_key="job.id")
    #: The exact bytes of the request body.
    body: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    #: The query parameters beside it, as they are sent.
    query: str = Field(default="", sa_column=Column(Text, nullable=False, server_default=""))
    #: The manifest row's own columns, one JSON object.
    columns: str = Field(sa_column=Column(Text, nullable=False))


class Result(SQLModel, table=True):
    """A model's native output: the exact bytes received."""

    job_id: int = Field(primary_key=True, foreign_key="job.id")
    request_id: str | None = None
    content_type: str
    body: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    size: int = Field(sa_column=Column(BigInteger, nullable=False))
    sha256: str = Field(max_length=64)
    #: Where a result without media stands as a file; `None` otherwise.
    path: str | None = None
    #: Why there is no media, in the output's own words.
    remark: str | None = None
    #: Headers about cost and provider, one JSON object.
    notes: str = Field(sa_column=Column(Text, nullable=False))
    received_at: float = Field(sa_column=_time(nullable=False))


class Asset(SQLModel, table=True):
    """One media file in a result."""

    __table_args__ = (
        UniqueConstraint("job_id", "number", name="uq_asset_job_number"),
        Index("ix_asset_numbers", "batch_id", "state"),
    )

    id: int | None = Field(default=None, primary_key=True)
    job_id: int = Field(foreign_key="job.id")
    #: That of the job, so that a batch's files are counted without looking at its jobs.
    batch_id: str = Field(default="", sa_column=Column(String(32), nullable=False, server_default=""))
    #: From 1, in the output's order.
    number: int
    #: JSON Pointer into the output; empty when the whole body is the file.
    pointer: str
    #: Signed link; `None` when the bytes stand in the output itself.
    url: str | None = Field(default=None, sa_column=Column(Text))
    secondary: bool = False
    declared_type: str | None = None
    state: str
    attempts: int = 0
    path: str | None = None
    media_type: str | None = None
    size: int | None = Field(default=None, sa_column=Column(BigInteger))
    sha256: str | None = Field(default=None, max_length=64)
    #: The bytes were of another type than was said.
    mismatch: bool = False
    error: str | None = None
    saved_at: float | None = Field(default=None, sa_column=_time())


class AssetContent(SQLModel, table=True):
    """The bytes of media kept in the database."""

    __tablename__ = "asset_content"

    asset_id: int = Field(primary_key=True, foreign_key="asset.id")
    body: bytes = Field(sa_column=Column(LargeBinary, nullable=False))


class Event(SQLModel, table=True):
    """The story of a job: one line for every transition."""

    id: int | None = Field(default=None, primary_key=True)
    job_id: int = Field(foreign_key="job.id", index=True)
    at: float = Field(sa_column=_time(nullable=False))
    run: int
    kind: str
    state: str
    http_status: int | None = None
    call_id: str | None = None
    #: One JSON object: delays, error, request, notes.
    data: str | None = Field(default=None, sa_column=Column(Text))


class Model(SQLModel, table=True):
    """What the catalog says of a model."""

    id: str = Field(primary_key=True, max_length=193)
    charges_on_policy_rejection: str
    etag: str | None = None
    #: The model's own OpenAPI document; `None` where it has none.
    document: str | None = Field(default=None, sa_column=Column(Text))
    fetched_at: float = Field(sa_column=_time(nullable=False))


class Worker(SQLModel, table=True):
    """A process that claims jobs; one that is not seen any more loses its claims."""

    id: str = Field(primary_key=True)
    credential_id: int = Field(foreign_key="credential.id")
    host: str
    pid: int
    concurrency: int
    started_at: float = Field(sa_column=_time(nullable=False))
    seen_at: float = Field(sa_column=_time(nullable=False))


class Lease(SQLModel, table=True):
    """Work that one process does at a time."""

    name: str = Field(primary_key=True)
    holder: str
    until: float = Field(sa_column=_time(nullable=False))
