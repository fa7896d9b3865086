"""The words of the runner as frozen values.

Times are Unix seconds (UTC) as floats, durations are seconds as floats, sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class JobState(StrEnum):
    """Where one paid generation stands."""

    PENDING = "pending"
    SUBMITTING = "submitting"
    QUEUED = "queued"
    RUNNING = "running"
    DOWNLOADING = "downloading"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    HELD = "held"


#: Occupy a place in the window: the Router holds, or may hold, a request for them.
IN_FLIGHT = frozenset({JobState.SUBMITTING, JobState.QUEUED, JobState.RUNNING})
#: Nothing moves them but a user's command.
TERMINAL = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED})


class BatchState(StrEnum):
    """Where a submitted manifest stands."""

    ACTIVE = "active"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    FINISHED = "finished"


class Charge(StrEnum):
    """Whether a job's run was paid for, as far as it can be known."""

    UNBILLED = "unbilled"
    POSSIBLE = "possible"
    BILLED = "billed"


class Reason(StrEnum):
    """Why a job stands still or ended without a result, in the runner's own words."""

    OUTCOME_UNKNOWN = "outcome_unknown"
    KEY_CONFLICT = "key_conflict"
    KEY_EXPIRED = "key_expired"
    REQUEST_LOST = "request_lost"
    UNREADABLE = "unreadable"
    RETENTION_OVER = "retention_over"
    REFUSED = "refused"
    RUN_FAILED = "run_failed"
    CANCELLED_BY_USER = "cancelled_by_user"


class Step(StrEnum):
    """The one exchange that a job's next task makes."""

    SUBMIT = "submit"
    COLLECT = "collect"
    STATUS = "status"
    CANCEL = "cancel"
    FETCH = "fetch"


class OutcomeKind(StrEnum):
    """What happened to a job: an answer of the Router, of a media host, or a user's command."""

    # The window let the job in.
    ADMITTED = "admitted"
    # Nobody sends it after all.
    WITHDRAWN = "withdrawn"
    # Answers to a submit.
    ACCEPTED = "accepted"
    KEY_BUSY = "key_busy"
    KEY_CONFLICT = "key_conflict"
    KEY_EXPIRED = "key_expired"
    INSUFFICIENT_CREDITS = "insufficient_credits"
    ACCOUNT_NOT_ENABLED = "account_not_enabled"
    MODEL_NOT_QUEUEABLE = "model_not_queueable"
    MODEL_NOT_FOUND = "model_not_found"
    REJECTED = "rejected"
    BACKLOG_FULL = "backlog_full"
    CONCURRENCY_LIMIT = "concurrency_limit"
    # Answers to any call.
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    RATE_LIMITED = "rate_limited"
    UNAVAILABLE = "unavailable"
    UNREACHABLE = "unreachable"
    UNKNOWN = "unknown"
    # Answers to a read of the request.
    RESULT = "result"
    NOT_READY = "not_ready"
    READ_FAILED = "read_failed"
    RUN_FAILED = "run_failed"
    RUN_SUCCEEDED = "run_succeeded"
    REQUEST_NOT_FOUND = "request_not_found"
    GONE = "gone"
    # Answers to a cancel.
    CANCEL_ASKED = "cancel_asked"
    CANCEL_TOO_LATE = "cancel_too_late"
    # What became of one media file.
    ASSET_SAVED = "asset_saved"
    ASSET_INTERRUPTED = "asset_interrupted"
    ASSET_LINK_DEAD = "asset_link_dead"
    ASSET_REFUSED = "asset_refused"
    # The disk, database or store that keeps the media refused it; the store did not answer.
    STORAGE_FAILED = "storage_failed"
    STORAGE_AWAY = "storage_away"
    # A user's commands.
    RESUME = "resume"
    RETRY = "retry"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class Handle:
    """What the Router gave for an accepted request (contract: `RouterQueueSubmitResponse`)."""

    request_id: str
    status_url: str
    response_url: str
    cancel_url: str
    #: The quote that came with the `201`, verbatim; `None` when none came.
    estimate: Mapping[str, object] | None = None
    #: The answer was the record of an earlier send of the same key.
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Document:
    """A model's native output: the exact bytes received and their `Content-Type`."""

    body: bytes
    content_type: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """One thing that happened to a job, with all that the answer said about it."""

    kind: OutcomeKind
    http_status: int | None = None
    #: `X-Comfy-Request-Id`: addresses this one call, for support.
    call_id: str | None = None
    #: The Router's bucket, verbatim, known to this version or not.
    error_type: str | None = None
    #: A sentence for people, or the entries of `detail[]` as one JSON array.
    detail: str | None = None
    #: Seconds to wait, already clamped; `None` when the answer named none that can be used.
    retry_after: float | None = None
    handle: Handle | None = None
    #: `IN_QUEUE`, `IN_PROGRESS`, or whatever word the status held.
    status: str | None = None
    queue_position: int | None = None
    document: Document | None = None
    #: Headers worth keeping (credits used, dropped parameters, committed spend, ...), lower-case names.
    notes: Mapping[str, str] = field(default_factory=dict)
    #: RESULT: how many media files the output holds.
    assets: int = 0
    #: ASSET_*: media files of the job that are not settled yet, beside the one spoken of.
    assets_left: int = 0


@dataclass(frozen=True, slots=True)
class Job:
    """A job as a decision sees it."""

    id: int
    state: JobState
    step: Step | None = None
    charge: Charge = Charge.UNBILLED
    #: The same kind of failure in a row, ending with `last`.
    attempts: int = 0
    #: What the latest exchange came to; `None` before the first.
    last: OutcomeKind | None = None
    #: How often the result was read again for fresh media links.
    recollects: int = 0
    #: How often a user's command gave the job a new key.
    run: int = 1
    #: When the present key first went out; `None` while it never did.
    first_sent_at: float | None = None
    #: When the Router accepted the request; `None` before that.
    submitted_at: float | None = None
    #: Of the media file being fetched.
    asset_attempts: int = 0
    #: The Router was asked to cancel the request, or it was too late for that.
    cancel_asked: bool = False
    reason: Reason | None = None
    error_type: str | None = None
    error_detail: str | None = None
    #: The catalog's `charges_on_policy_rejection`: yes, no or unknown.
    charges_on_policy_rejection: str = "unknown"


class Window(StrEnum):
    """What an outcome says about how much the account may have in flight."""

    KEEP = "keep"
    SHRINK = "shrink"
    GROW = "grow"


class AssetState(StrEnum):
    """Where one media file of a result stands."""

    EXPECTED = "expected"
    SAVED = "saved"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Pause:
    """Work that must stop until a user mends something."""

    #: `insufficient_credits`, `unauthorized`, `forbidden`, `not_enabled`, `unreachable`, `storage`.
    reason: str
    #: True stops every call under the credential; False stops the submits of one batch.
    whole_credential: bool


@dataclass(frozen=True, slots=True)
class Transition:
    """What an outcome makes of a job: everything that is written in one transaction."""

    state: JobState
    step: Step | None
    charge: Charge
    #: Seconds until the next step may be taken; 0 is at once. Without meaning while `step` is None.
    delay: float = 0.0
    attempts: int = 0
    recollects: int = 0
    reason: Reason | None = None
    error_type: str | None = None
    error_detail: str | None = None
    window: Window = Window.KEEP
    #: Seconds that every call under the credential waits.
    cool_down: float | None = None
    pause: Pause | None = None
    #: What becomes of the media file spoken of.
    asset: AssetState | None = None
    #: The key is unused again: its lifetime starts with the next send.
    key_released: bool = False
    #: The Router needs to be asked no more.
    cancel_asked: bool = False
    #: A user's command asked for another paid run: a new key, and the old request forgotten.
    new_run: bool = False


@dataclass(frozen=True, slots=True)
class Policy:
    """Bounds and delays. The defaults are what the documentation describes."""

    #: Sends of one key without a usable answer before the job is held.
    submit_attempts: int = 6
    #: Calls in a row that reached nobody before the work of the credential, or of the batch at its store, is paused.
    unreachable_attempts: int = 8
    #: Reads in a row without a usable answer before the job is held.
    read_attempts: int = 12
    #: Reads in a row that name the request unknown before it counts as lost.
    not_found_attempts: int = 5
    #: Tries of one media link before fresh links are asked for.
    asset_attempts: int = 8
    #: Reads of a finished result for fresh media links.
    recollects: int = 1
    #: Exponential backoff: first delay and ceiling.
    backoff_first: float = 1.0
    backoff_ceiling: float = 60.0
    #: A key is safe to re-send for this long after its first use (contract: 24 h, less a margin).
    key_lifetime: float = 24 * 3600 - 300
    #: Pause between two reads when the Router names none.
    poll_interval: float = 2.0
    #: How long after its acceptance the Router is asked to cancel a request; `None` for never.
    cancel_after: float | None = None
    #: Failures of one kind in a row that pause a batch; 0 for never.
    breaker: int = 10


@dataclass(frozen=True, slots=True)
class MediaSource:
    """One media file that an output holds, and how to get at it."""

    #: JSON Pointer (RFC 6901) into the output; empty when the whole body is the file.
    pointer: str
    #: Where to download it; `None` when the bytes stand in the output itself.
    url: str | None
    #: A preview, sidecar or extra rendition, not the thing that was asked for.
    secondary: bool = False
    #: The media type that the output names beside it, if any.
    declared_type: str | None = None
