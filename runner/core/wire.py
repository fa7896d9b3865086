"""The contract's HTTP, as values: a job becomes a request, a response becomes an Outcome.

Only an answer that is recognisably the Router's own ends or pauses a job. A page of a proxy, cut JSON, or nothing at
all says nothing about the job, so it becomes `UNKNOWN`, or `UNREACHABLE` where no byte of the request left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit

from runner.core.documents import detail_of, integer_of, is_json, json_object, text_of
from runner.core.refusals import read_refusal, submit_refusal
from runner.core.retryafter import parse_retry_after
from runner.core.types import Document, Handle, Outcome, OutcomeKind

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

#: Fields of an error's body that say the same (contract: `RouterErrorResponse`).
_MIRRORED = {"x-comfy-upstream-detail": "upstream_detail", "x-comfy-refusal-subject": "refusal_subject"}


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
            detail=None if self.response.status < 300 else detail_of(self.document),
            retry_after=parse_retry_after(headers.get("retry-after"), self.now),
            notes=self._notes(),
            **more,  # type: ignore[arg-type]  # fields of Outcome, checked by its constructor
        )

    def _notes(self) -> dict[str, str]:
        headers = self.response.headers
        found = {name: headers[name] for name in _NOTES if name in headers}
        if self.response.status >= 300:
            # An error's body mirrors these, should a proxy have taken the headers away.
            mirrored = {name: text_of(self.document, field) for name, field in _MIRRORED.items()}
            found = {name: value for name, value in mirrored.items() if value} | found
        return found


def outcome_of_submit(reply: Reply, now: float) -> Outcome:
    """What an answer to a submit means (contract: `submitRouterModelRequest`)."""
    if isinstance(reply, NoResponse):
        return _no_answer(reply)
    answer = _read(reply, now)
    if reply.status < 300:
        handle = _handle(answer)
        kind = OutcomeKind.ACCEPTED if handle else OutcomeKind.UNKNOWN
        position = integer_of(answer.document, "queue_position")
        return answer.outcome(kind, handle=handle, queue_position=position)
    return answer.outcome(submit_refusal(reply.status, answer.bucket, answer.document) or OutcomeKind.UNKNOWN)


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
    status = text_of(answer.document, "status")
    if reply.status == 202:
        return answer.outcome(OutcomeKind.CANCEL_ASKED, status=status)
    if reply.status in (400, 409) and status == "ALREADY_COMPLETED":
        return answer.outcome(OutcomeKind.CANCEL_TOO_LATE, status=status)
    return answer.outcome(_read_refusal(answer) or OutcomeKind.UNKNOWN)


def _read_refusal(answer: _Answer) -> OutcomeKind | None:
    if answer.response.status == 410 and (answer.bucket or "x-comfy-request-id" in answer.response.headers):
        return OutcomeKind.GONE
    return read_refusal(answer.response.status, answer.bucket)


def _no_answer(reply: NoResponse) -> Outcome:
    return Outcome(OutcomeKind.UNKNOWN if reply.sent else OutcomeKind.UNREACHABLE, detail=reply.cause)


def _read(response: HttpResponse, now: float) -> _Answer:
    document = None
    # A 200 of the result read is parsed where it is judged: it can be a large document of another's making.
    if response.status != 200 or len(response.body) < 65536:
        document = json_object(response.body)
    bucket = None
    if response.status >= 300:
        named = response.headers.get("x-comfy-error-type") or text_of(document, "error_type")
        bucket = named.strip() if named else None
    return _Answer(response, now, document, bucket)


def _handle(answer: _Answer) -> Handle | None:
    fields = [text_of(answer.document, name) for name in ("request_id", "status_url", "response_url", "cancel_url")]
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


def _is_status_document(document: Mapping[str, object] | None) -> bool:
    """Whether a result read's body is the queue's own status and not a model's output."""
    return document is not None and {"request_id", "status", "status_url", "response_url"} <= document.keys()


def _status(answer: _Answer) -> Outcome:
    status = text_of(answer.document, "status")
    if status is None:
        return answer.outcome(OutcomeKind.UNKNOWN)
    if status != "COMPLETED":
        position = integer_of(answer.document, "queue_position")
        return answer.outcome(OutcomeKind.NOT_READY, status=status, queue_position=position)
    failure = (text_of(answer.document, "error_type") or "").strip()
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
        if not is_json(response.body):
            return answer.outcome(OutcomeKind.UNKNOWN)
    elif "x-comfy-request-id" not in response.headers:
        # Bytes of some other type are a result only where the Router's own header stands beside them.
        return answer.outcome(OutcomeKind.UNKNOWN)
    return answer.outcome(OutcomeKind.RESULT, document=Document(response.body, content_type))
