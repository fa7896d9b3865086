"""What a refusal means, by its status and its bucket (contract: `RouterErrorType`)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from runner.core.buckets import RouterError
from runner.core.documents import detail_of
from runner.core.types import OutcomeKind

#: A `not_enabled` whose detail speaks of one of these refuses the model; any other refuses the account, and so does
#: one that names the credential whatever else it says.
_MODEL_REFUSAL = re.compile(r"synchronous|queued|bytes|/v2/models/", re.IGNORECASE)
_ACCOUNT_REFUSAL = re.compile(r"credential|workspace|account", re.IGNORECASE)

#: By status and bucket: what a submit's refusal means. A bucket of `None` stands for a page without one.
_SUBMIT_REFUSALS: Mapping[tuple[int, str | None], OutcomeKind] = {
    (401, None): OutcomeKind.UNAUTHORIZED,
    (401, RouterError.UNAUTHORIZED): OutcomeKind.UNAUTHORIZED,
    (402, RouterError.INSUFFICIENT_CREDITS): OutcomeKind.INSUFFICIENT_CREDITS,
    (403, RouterError.FORBIDDEN): OutcomeKind.FORBIDDEN,
    (404, RouterError.MODEL_NOT_FOUND): OutcomeKind.MODEL_NOT_FOUND,
    (409, RouterError.CONCURRENCY_LIMIT_EXCEEDED): OutcomeKind.KEY_BUSY,
    (409, RouterError.INVALID_INPUT): OutcomeKind.KEY_CONFLICT,
    (400, RouterError.INVALID_INPUT): OutcomeKind.REJECTED,
    (413, RouterError.INVALID_INPUT): OutcomeKind.REJECTED,
    (422, RouterError.INVALID_INPUT): OutcomeKind.REJECTED,
    (400, RouterError.CONTENT_POLICY_VIOLATION): OutcomeKind.REJECTED,
    (422, RouterError.CONTENT_POLICY_VIOLATION): OutcomeKind.REJECTED,
    (429, RouterError.QUEUE_BACKLOG_FULL): OutcomeKind.BACKLOG_FULL,
    (429, RouterError.CONCURRENCY_LIMIT_EXCEEDED): OutcomeKind.CONCURRENCY_LIMIT,
    (429, RouterError.RATE_LIMITED): OutcomeKind.RATE_LIMITED,
    (429, None): OutcomeKind.RATE_LIMITED,
    (503, RouterError.SERVICE_UNAVAILABLE): OutcomeKind.UNAVAILABLE,
}

#: The same for the two reads.
_READ_REFUSALS: Mapping[tuple[int, str | None], OutcomeKind] = {
    (401, None): OutcomeKind.UNAUTHORIZED,
    (401, RouterError.UNAUTHORIZED): OutcomeKind.UNAUTHORIZED,
    (403, RouterError.FORBIDDEN): OutcomeKind.FORBIDDEN,
    (403, RouterError.NOT_ENABLED): OutcomeKind.ACCOUNT_NOT_ENABLED,
    (404, RouterError.REQUEST_NOT_FOUND): OutcomeKind.REQUEST_NOT_FOUND,
    (404, RouterError.MODEL_NOT_FOUND): OutcomeKind.REQUEST_NOT_FOUND,
    (429, RouterError.RATE_LIMITED): OutcomeKind.RATE_LIMITED,
    (429, None): OutcomeKind.RATE_LIMITED,
    (429, RouterError.CONCURRENCY_LIMIT_EXCEEDED): OutcomeKind.UNAVAILABLE,
    (503, RouterError.SERVICE_UNAVAILABLE): OutcomeKind.UNAVAILABLE,
    (503, None): OutcomeKind.UNAVAILABLE,
}


def submit_refusal(status: int, bucket: str | None, document: Mapping[str, object] | None) -> OutcomeKind | None:
    """What a refused submit means; `None` where nothing is known of the job by it."""
    if status == 403 and bucket == RouterError.NOT_ENABLED:
        detail = detail_of(document) or ""
        of_model = _MODEL_REFUSAL.search(detail) and not _ACCOUNT_REFUSAL.search(detail)
        return OutcomeKind.MODEL_NOT_QUEUEABLE if of_model else OutcomeKind.ACCOUNT_NOT_ENABLED
    return _SUBMIT_REFUSALS.get((status, bucket))


def read_refusal(status: int, bucket: str | None) -> OutcomeKind | None:
    """The same of the two reads and the cancel."""
    return _READ_REFUSALS.get((status, bucket))
