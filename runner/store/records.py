"""What the store hands out and takes in: frozen values, no sessions."""

from __future__ import annotations

from dataclasses import dataclass

from runner.core.types import AssetState, Document, Job, MediaSource, Step


@dataclass(frozen=True, slots=True)
class Wake:
    """A message to send: who is due, what for, and in how many seconds."""

    job_id: int
    step: Step
    #: For people who watch: the batch's name, the manifest's row and the place in the Router's queue.
    batch: str
    row: int
    delay: float = 0.0
    queue_position: int | None = None


@dataclass(frozen=True, slots=True)
class AssetRecord:
    """One media file, as it stands."""

    id: int
    number: int
    source: MediaSource
    state: AssetState
    attempts: int


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to act on one job until `until`, and all that acting needs."""

    token: str
    until: float
    step: Step
    job: Job
    credential_id: int
    batch_id: str
    batch: str
    row: int
    custom_id: str
    model: str
    idempotency_key: str
    request_id: str | None
    status_url: str | None
    response_url: str | None
    cancel_url: str | None
    queue_position: int | None
    #: When the step could be taken at the earliest.
    due_at: float = 0.0
    #: How long after its acceptance the Router is asked to cancel the request, in seconds.
    cancel_after: float | None = None
    #: To submit: the exact bytes of the request body.
    body: bytes = b""
    #: To submit: the query parameters, as they are sent.
    query: str = ""
    #: To fetch: media files that are not settled, the least tried first.
    assets: tuple[AssetRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a batch's media go."""

    store: str
    directory: str
    #: How the files are named there; `None` for the usual way.
    name_template: str | None = None


@dataclass(frozen=True, slots=True)
class NewResult:
    """A result to keep, with the media found in it."""

    document: Document
    media: tuple[MediaSource, ...]
    #: Where the document was written as a file, when it was.
    path: str | None = None
    remark: str | None = None


@dataclass(frozen=True, slots=True)
class SavedAsset:
    """What became of one media file."""

    asset_id: int
    path: str | None = None
    media_type: str | None = None
    size: int | None = None
    sha256: str | None = None
    mismatch: bool = False
    #: The bytes, where the database keeps them.
    content: bytes | None = None
    error: str | None = None
