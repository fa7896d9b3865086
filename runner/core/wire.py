"""The contract's HTTP, as values: a job becomes a request, a response becomes an Outcome.

Only an answer that is recognisably the Router's own ends or pauses a job. A page of a proxy, cut JSON, or nothing at
all says nothing about the job, so it becomes `UNKNOWN`, or `UNREACHABLE` where no byte of the request left.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit

from runner.core.retryafter import parse_retry_after
from runner.core.types import Document, Handle, Outcome, OutcomeKind, RouterError

#: Longest detail that is kept, in characters: enough to understand a refusal, too little to hold a prompt.
DETAIL_LIMIT = 2000

#: Headers that say something about cost or about what ran, kept with the job's story.
_NOTES = (
    "idempotent-replayed",
    "x-comfy-credits-used",
    "x-comfy-upstream-status",
    "x-comfy-upstream-detail",
    "x-comfy-refusal-subject",
    "x-comfy-router-dropped-params",
    "x-comfy-router-fallback-provider",
    "x-committed-spend-limit",
    "x-committed-spend-current",
    "x-committed-spend-remaining",
)

#: A `not_enabled` whose detail speaks of one of these refuses the model; any other refuses the account, and so does
#: one that names the credential whatever else it says.
_MODEL_REFUSAL = re.compile(r"synchronous|queued|bytes|/v2/models/", re.IGNORECASE)
_ACCOUNT_REFUSAL = re.compile(r"credential|workspace|account", re.IGNORECASE)
#: What no database takes as text: NUL, and halves of surrogate pairs, which JSON can spell.
_UNWRITABLE = re.compile("[\x00\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One exchange to make. The credential is not part of it: the client adds it for its own origin."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """One answer: header names in lower case, the body whole and decoded from any transfer coding."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class NoResponse:
    """An exchange without an answer that can be read."""

    #: In words that name no address and no secret.
    cause: str
    #: False only where it is certain that the server never saw the request.
    sent: bool


Reply = HttpResponse | NoResponse


def origin_of(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port: what two URLs must share for a credential to go to both (RFC 6454).

    Raises `ValueError` for a URL without a readable host or port.
    """
    parts = urlsplit(url)
    default = {"https": 443, "http": 80}.get(parts.scheme)
    return parts.scheme, (parts.hostname or "").lower(), parts.port or default


def submit_request(base_url: str, model: str, key: str, body: bytes, query: str = "") -> HttpRequest:
    """`POST /v2/models/{provider}/{model}/requests`: the very bytes of `body`, and the very `query`, under the key."""
    headers = {"Idempotency-Key": key, "Content-Type": "application/json", "Accept": "application/json"}
    url = f"{base_url}/v2/models/{quote(model)}/requests"
    return HttpRequest("POST", f"{url}?{query}" if query else url, headers, body)


def collect_request(base_url: str, model: str, request_id: str, response_url: str | None) -> HttpRequest:
    """The result read: the URL as given where it stands on the Router's own origin, else built from the ids."""
    return HttpRequest("GET", _own_url(base_url, model, request_id, response_url, ""))


def status_request(base_url: str, model: str, request_id: str, status_url: str | None) -> HttpRequest:
    """The status read, addressed like the result read."""
    return HttpRequest("GET", _own_url(base_url, model, request_id, status_url, "/status"))


def cancel_request(base_url: str, model: str, request_id: str, cancel_url: str | None) -> HttpRequest:
    """The ask to cancel, addressed like the result read."""
    return HttpRequest("PUT", _own_url(base_url, model, request_id, cancel_url, "/cancel"))


def _own_url(base_url: str, model: str, request_id: str, given: str | None, suffix: str) -> str:
    if given and _is_on(base_url, given):
        return given
    return f"{base_url}/v2/models/{quote(model)}/requests/{quote(request_id, safe='')}{suffix}"


def _is_on(base_url: str, given: str) -> bool:
    try:
        return origin_of(given) == origin_of(base_url)
    except ValueError:
        return False


# ---- responses ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Answer:
    """A response with what every reading of it needs."""

    response: HttpResponse
    now: float
    #: The body as a JSON object; `None` where it is anything else.
    document: Mapping[str, object] | None
    #: The Router's bucket; `None` where nothing says that the Router wrote this error.
    bucket: str | None

    def outcome(self, kind: OutcomeKind, **more: object) -> Outcome:
        headers = self.response.headers
        return Outcome(
            kind,
            http_status=self.response.status,
            call_id=headers.get("x-comfy-request-id"),
            error_type=self.bucket,
            detail=None if self.response.status < 300 else _detail(self.document),
            retry_after=parse_retry_after(headers.get("retry-after"), self.now),
            notes={name: headers[name] for name in _NOTES if name in headers},
            **more,  # type: ignore[arg-type]  # fields of Outcome, checked by its constructor
        )


def outcome_of_submit(reply: Reply, now: float) -> Outcome:
    """What an answer to a submit means (contract: `submitRouterModelRequest`)."""
    if isinstance(reply, NoResponse):
        return _no_answer(reply)
    answer = _read(reply, now)
    if reply.status < 300:
        handle = _handle(answer)
        kind = OutcomeKind.ACCEPTED if handle else OutcomeKind.UNKNOWN
        position = _integer(answer.document, "queue_position")
        return answer.outcome(kind, handle=handle, queue_position=position)
    return answer.outcome(_submit_refusal(answer) or OutcomeKind.UNKNOWN)


def outcome_of_collect(reply: Reply, now: float) -> Outcome:
    """What an answer to the result read means (contract: `getRouterModelRequestResult`)."""
    if isinstance(reply, NoResponse):
        return _no_answer(reply)
    answer = _read(reply, now)
    if reply.status == 202 or _is_status_document(answer.document):
        return _status(answer)
    if reply.status == 200:
        return _result(answer)
    kind = _read_refusal(answer)
    if kind is None:
        # The Router speaks, but of the run or of this read?
        kind = OutcomeKind.READ_FAILED if answer.bucket else OutcomeKind.UNKNOWN
    return answer.outcome(kind)


def outcome_of_status(reply: Reply, now: float) -> Outcome:
    """What an answer to the status read means (contract: `getRouterModelRequestStatus`)."""
    if isinstance(reply, NoResponse):
        return _no_answer(reply)
    answer = _read(reply, now)
    if reply.status == 200:
        return _status(answer)
    return answer.outcome(_read_refusal(answer) or OutcomeKind.UNKNOWN)


def outcome_of_cancel(reply: Reply, now: float) -> Outcome:
    """What an answer to a cancel means (contract: `cancelRouterModelRequest`)."""
    if isinstance(reply, NoResponse):
        return _no_answer(reply)
    answer = _read(reply, now)
    status = _text(answer.document, "status")
    if reply.status == 202:
        return answer.outcome(OutcomeKind.CANCEL_ASKED, status=status)
    if reply.status in (400, 409) and status == "ALREADY_COMPLETED":
        return answer.outcome(OutcomeKind.CANCEL_TOO_LATE, status=status)
    return answer.outcome(_read_refusal(answer) or OutcomeKind.UNKNOWN)


def _no_answer(reply: NoResponse) -> Outcome:
    return Outcome(OutcomeKind.UNKNOWN if reply.sent else OutcomeKind.UNREACHABLE, detail=reply.cause)


def _read(response: HttpResponse, now: float) -> _Answer:
    document = None
    # A 200 of the result read is parsed where it is judged: it can be a large document of another's making.
    if response.status != 200 or len(response.body) < 65536:
        document = _json_object(response.body)
    bucket = None
    if response.status >= 300:
        named = response.headers.get("x-comfy-error-type") or _text(document, "error_type")
        bucket = named.strip() if named else None
    return _Answer(response, now, document, bucket)


def _handle(answer: _Answer) -> Handle | None:
    fields = [_text(answer.document, name) for name in ("request_id", "status_url", "response_url", "cancel_url")]
    request_id, status_url, response_url, cancel_url = fields
    if not (request_id and status_url and response_url and cancel_url):
        return None
    estimate = answer.document.get("estimate") if answer.document else None
    return Handle(
        request_id=request_id,
        status_url=status_url,
        response_url=response_url,
        cancel_url=cancel_url,
        estimate=estimate if isinstance(estimate, dict) else None,
        replayed=answer.response.headers.get("idempotent-replayed", "").lower() == "true",
    )


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


def _submit_refusal(answer: _Answer) -> OutcomeKind | None:
    if answer.response.status == 403 and answer.bucket == RouterError.NOT_ENABLED:
        detail = _detail(answer.document) or ""
        of_model = _MODEL_REFUSAL.search(detail) and not _ACCOUNT_REFUSAL.search(detail)
        return OutcomeKind.MODEL_NOT_QUEUEABLE if of_model else OutcomeKind.ACCOUNT_NOT_ENABLED
    return _SUBMIT_REFUSALS.get((answer.response.status, answer.bucket))


def _read_refusal(answer: _Answer) -> OutcomeKind | None:
    if answer.response.status == 410 and (answer.bucket or "x-comfy-request-id" in answer.response.headers):
        return OutcomeKind.GONE
    return _READ_REFUSALS.get((answer.response.status, answer.bucket))


def _is_status_document(document: Mapping[str, object] | None) -> bool:
    """Whether a result read's body is the queue's own status and not a model's output."""
    return document is not None and {"request_id", "status", "status_url", "response_url"} <= document.keys()


def _status(answer: _Answer) -> Outcome:
    status = _text(answer.document, "status")
    if status is None:
        return answer.outcome(OutcomeKind.UNKNOWN)
    if status != "COMPLETED":
        position = _integer(answer.document, "queue_position")
        return answer.outcome(OutcomeKind.NOT_READY, status=status, queue_position=position)
    failure = (_text(answer.document, "error_type") or "").strip()
    if not failure:
        return answer.outcome(OutcomeKind.RUN_SUCCEEDED, status=status)
    described = _Answer(answer.response, answer.now, answer.document, failure)
    return described.outcome(OutcomeKind.RUN_FAILED, status=status)


def _result(answer: _Answer) -> Outcome:
    response = answer.response
    content_type = response.headers.get("content-type", "")
    media_type = content_type.split(";")[0].strip().lower()
    if not response.body or media_type in {"text/html", "application/xhtml+xml"}:
        return answer.outcome(OutcomeKind.UNKNOWN)
    if not media_type or media_type == "application/json" or media_type.endswith("+json"):
        if not _is_json(response.body):
            return answer.outcome(OutcomeKind.UNKNOWN)
    elif "x-comfy-request-id" not in response.headers:
        # Bytes of some other type are a result only where the Router's own header stands beside them.
        return answer.outcome(OutcomeKind.UNKNOWN)
    return answer.outcome(OutcomeKind.RESULT, document=Document(response.body, content_type))


def _is_json(body: bytes) -> bool:
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return True


def _json_object(body: bytes) -> Mapping[str, object] | None:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _text(document: Mapping[str, object] | None, name: str) -> str | None:
    value = document.get(name) if document else None
    return _writable(value) if isinstance(value, str) and value.strip() else None


def _writable(text: str) -> str:
    return _UNWRITABLE.sub("\ufffd", text)


def _integer(document: Mapping[str, object] | None, name: str) -> int | None:
    value = document.get(name) if document else None
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value < 2**31 else None


def _detail(document: Mapping[str, object] | None) -> str | None:
    """The error's own words: a sentence, or the entries of `detail[]` without the echo of the input."""
    detail = document.get("detail") if document else None
    if isinstance(detail, list):
        entries = [
            {name: entry[name] for name in ("loc", "msg", "type", "ctx") if name in entry}
            for entry in detail
            if isinstance(entry, dict)
        ]
        return _entries(entries) if entries else None
    return _writable(detail[:DETAIL_LIMIT]) if isinstance(detail, str) and detail else None


def _entries(entries: list[dict[str, object]]) -> str:
    """As many whole entries as there is room for, at least a part of the first."""
    told = [_writable(json.dumps(entry, ensure_ascii=False)) for entry in entries]
    while len(told) > 1 and sum(len(text) + 2 for text in told) > DETAIL_LIMIT:
        told.pop()
    if len(told[0]) > DETAIL_LIMIT:
        words = {"loc": [], "msg": str(entries[0].get("msg", ""))[: DETAIL_LIMIT // 2], "type": "too_long"}
        return json.dumps([words], ensure_ascii=True)
    return f"[{', '.join(told)}]"
