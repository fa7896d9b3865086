"""The steps of a job, without Celery: each claims, makes one exchange, decides, applies, and says who is due next."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from typing import Any, Protocol

from runner.assets import AssetCut, AssetRejected, AssetSink, AssetTooLarge, Saved, open_sink
from runner.core.boundaries import reach
from runner.core.errors import DiskError, StoreError
from runner.core.filenames import NameTemplate, asset_name
from runner.core.lifecycle import decide
from runner.core.media import decode_inline, find_media, read_pointer, why_empty
from runner.core.ranges import resuming_headers, size_if_continued, validator_to_resume_by
from runner.core.retryafter import parse_retry_after
from runner.core.rules.common import key_expired
from runner.core.types import AssetState, Document, JobState, MediaSource, Outcome, OutcomeKind, Policy, Step
from runner.core.wire import (
    HttpRequest,
    Reply,
    cancel_request,
    collect_request,
    outcome_of_cancel,
    outcome_of_collect,
    outcome_of_status,
    outcome_of_submit,
    status_request,
    submit_request,
)
from runner.router.media import MediaInterrupted, MediaReply
from runner.router.network import PrivateAddress
from runner.store.jobs import JobStore
from runner.store.records import AssetRecord, Claim, NewResult, SavedAsset, Wake
from tasks.acting import Acting
from tasks.pacing import FirstRead

_log = logging.getLogger("comfy_batch.steps")

#: Answers to a question for the rest of a file that are neither the rest nor the whole.
_NO_REST = frozenset({206, 416})
_ANEW = "the media host does not go on where the file broke off, so that it is fetched anew"
#: Waits between tries to write what is known already, in seconds; the last is repeated for as long as the claim lasts.
_PERSISTENCE = (0.1, 0.5, 1.0, 2.0)


class Router(Protocol):
    """One exchange with the Router under the process's credential."""

    base_url: str

    def exchange(self, request: HttpRequest) -> Reply:
        """Send `request` once."""
        ...


class MediaHost(Protocol):
    """One download, without a credential."""

    def download(self, url: str, headers: Mapping[str, str] = ...) -> AbstractContextManager[MediaReply]:
        """The answer to a GET of `url` with these headers."""
        ...


@dataclass(frozen=True)
class Runtime:
    """What the steps of one process work with."""

    jobs: JobStore
    router: Router
    media: MediaHost
    owner: str
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    policy: Policy
    #: How long a claim lasts, in seconds, by what is done under it.
    claim_seconds: float
    download_claim_seconds: float
    max_asset_bytes: int
    first_read: FirstRead
    #: Output schemas by model, as they are first needed.
    schemas: dict[str, Mapping[str, Any] | None]
    #: Sinks by batch, as they are first needed.
    sinks: dict[str, AssetSink]
    #: Calls to the Router that all workers of the credential together may make in a second; `None` for any number.
    calls_per_second: float | None = None
    acting: Acting = field(default_factory=Acting)

    def sink(self, claim: Claim) -> AssetSink:
        """Where the media of the claim's batch go."""
        if claim.batch_id not in self.sinks:
            place = self.jobs.place(claim.batch_id)
            self.sinks[claim.batch_id] = open_sink(place.store, place.directory)
        return self.sinks[claim.batch_id]

    def schema(self, model: str) -> Mapping[str, Any] | None:
        """The model's own OpenAPI document; `None` where there is none."""
        if model not in self.schemas:
            document = self.jobs.output_schema_document(model)
            self.schemas[model] = json.loads(document) if document else None
        return self.schemas[model]


def submit(runtime: Runtime, job_id: int) -> list[Wake]:
    """Send the job's request under its key."""
    claim = _claim(runtime, job_id, Step.SUBMIT)
    if not isinstance(claim, Claim):
        return _early(claim)
    if key_expired(claim.job, runtime.clock(), runtime.policy):
        return _apply(runtime, claim, Outcome(OutcomeKind.KEY_EXPIRED))
    request = submit_request(runtime.router.base_url, claim.model, claim.idempotency_key, claim.body, query=claim.query)
    outcome = outcome_of_submit(_exchange(runtime, claim, request), runtime.clock())
    if outcome.kind is OutcomeKind.ACCEPTED:
        # The answer names no time to ask again, so that is ours to choose.
        outcome = replace(outcome, retry_after=runtime.first_read.delay(claim.model))
    return _apply(runtime, claim, outcome)


def collect(runtime: Runtime, job_id: int) -> list[Wake]:
    """Read the result: one call tells whether it is there and what it is."""
    claim = _claim(runtime, job_id, Step.COLLECT)
    if not isinstance(claim, Claim):
        return _early(claim)
    request = collect_request(runtime.router.base_url, claim.model, claim.request_id or "", claim.response_url)
    outcome = outcome_of_collect(_exchange(runtime, claim, request), runtime.clock())
    if outcome.document is None:
        return _apply(runtime, claim, outcome)
    # Only an undisturbed wait tells how long the model takes.
    if claim.job.submitted_at is not None and claim.job.last in (OutcomeKind.ACCEPTED, OutcomeKind.NOT_READY):
        at_first = claim.job.last is OutcomeKind.ACCEPTED
        runtime.first_read.learn(claim.model, claim.due_at - claim.job.submitted_at, at_first=at_first)
    document = outcome.document
    media = find_media(
        document,
        output_schema=runtime.schema(claim.model),
        model=claim.model,
        inputs=runtime.jobs.body(job_id),
    )
    outcome = replace(outcome, assets=len(media))
    try:
        result = _result(runtime, claim, document, media)
    except DiskError as error:
        return _apply(runtime, claim, _unwritten(error))
    return _apply(runtime, claim, outcome, result=result)


def status(runtime: Runtime, job_id: int) -> list[Wake]:
    """Read the status: it alone tells a failed run from a failed read."""
    claim = _claim(runtime, job_id, Step.STATUS)
    if not isinstance(claim, Claim):
        return _early(claim)
    request = status_request(runtime.router.base_url, claim.model, claim.request_id or "", claim.status_url)
    return _apply(runtime, claim, outcome_of_status(_exchange(runtime, claim, request), runtime.clock()))


def cancel(runtime: Runtime, job_id: int) -> list[Wake]:
    """Ask the Router to cancel the request; whether it did shows when it is read."""
    claim = _claim(runtime, job_id, Step.CANCEL)
    if not isinstance(claim, Claim):
        return _early(claim)
    request = cancel_request(runtime.router.base_url, claim.model, claim.request_id or "", claim.cancel_url)
    return _apply(runtime, claim, outcome_of_cancel(_exchange(runtime, claim, request), runtime.clock()))


def fetch(runtime: Runtime, job_id: int) -> list[Wake]:
    """Download or decode one media file of the result."""
    claim = _claim(runtime, job_id, Step.FETCH)
    if not isinstance(claim, Claim):
        return _early(claim)
    if not claim.assets:
        return _apply(runtime, claim, Outcome(OutcomeKind.ASSET_SAVED))
    asset, left = claim.assets[0], len(claim.assets) - 1
    claim = replace(claim, job=replace(claim.job, asset_attempts=asset.attempts))
    outcome, saved = _fetch(runtime, claim, asset)
    return _apply(
        runtime, claim, replace(outcome, assets_left=left), asset=saved, stem=_stem(runtime, claim, asset.number)
    )


STEPS: Mapping[Step, Callable[[Runtime, int], list[Wake]]] = {
    Step.SUBMIT: submit,
    Step.COLLECT: collect,
    Step.STATUS: status,
    Step.CANCEL: cancel,
    Step.FETCH: fetch,
}


def _claim(runtime: Runtime, job_id: int, step: Step) -> Claim | Wake | None:
    lease = runtime.download_claim_seconds if step is Step.FETCH else runtime.claim_seconds
    return runtime.jobs.claim(
        job_id, step, owner=runtime.owner, now=runtime.clock(), lease=lease, per_second=runtime.calls_per_second
    )


def _exchange(runtime: Runtime, claim: Claim, request: HttpRequest) -> Reply:
    reach("before call", claim.step)
    reply = runtime.router.exchange(request)
    reach("after call", claim.step)
    return reply


def _early(claim: Wake | None) -> list[Wake]:
    return [] if claim is None else [claim]


def _apply(
    runtime: Runtime,
    claim: Claim,
    outcome: Outcome,
    *,
    result: NewResult | None = None,
    asset: SavedAsset | None = None,
    stem: str | None = None,
) -> list[Wake]:
    now = runtime.clock()
    if outcome.kind is OutcomeKind.RUN_FAILED:
        flag = runtime.jobs.charges_on_policy_rejection(claim.model)
        claim = replace(claim, job=replace(claim.job, charges_on_policy_rejection=flag))
    transition = decide(claim.job, outcome, now, replace(runtime.policy, cancel_after=claim.cancel_after))
    if stem is not None and transition.asset is AssetState.FAILED:
        # Given up: nobody goes on with what is there of it.
        runtime.sink(claim).discard(stem)
    pauses = chain(_PERSISTENCE, repeat(_PERSISTENCE[-1]))
    while True:
        try:
            return runtime.jobs.apply(claim, outcome, transition, now, result=result, asset=asset) or []
        except StoreError as error:
            # An answer in hand is written before this thread does anything else. Losing it in the end costs another
            # call: the same key and the same request are there to be asked again.
            pause = next(pauses)
            if error.lasting or runtime.clock() + pause >= claim.until:
                raise
            _log.warning("job %s: what it came to is not written yet: %s", claim.job.id, error.message)
            runtime.sleep(pause)


def _result(runtime: Runtime, claim: Claim, document: Document, media: tuple[MediaSource, ...]) -> NewResult:
    if media or claim.job.state is JobState.DOWNLOADING:
        return NewResult(document, media)
    # Nothing to show: the document itself is what the user gets, and its reason, if it gives one.
    kept = runtime.sink(claim).save_document(_stem(runtime, claim, 0), document.body, document.content_type)
    return NewResult(document, media, kept.path, why_empty(document))


def _stem(runtime: Runtime, claim: Claim, number: int) -> str:
    template = runtime.jobs.place(claim.batch_id).name_template
    if template is None:
        return asset_name(claim.batch, claim.row, claim.custom_id, number, "")
    return NameTemplate(template).stem(claim.batch, claim.row, claim.custom_id, claim.model, number)


def _fetch(runtime: Runtime, claim: Claim, asset: AssetRecord) -> tuple[Outcome, SavedAsset]:
    try:
        if asset.source.url is None:
            saved: Saved | Outcome = _decode(runtime, claim, asset)
        else:
            saved = _download(runtime, claim, asset, asset.source.url)
    except MediaInterrupted as error:
        saved = Outcome(OutcomeKind.ASSET_INTERRUPTED, detail=str(error))
    except AssetCut as error:
        saved = Outcome(OutcomeKind.ASSET_INTERRUPTED, detail=error.reason)
    except AssetTooLarge as error:
        saved = Outcome(OutcomeKind.ASSET_REFUSED, detail=error.reason)
    except AssetRejected as error:
        saved = Outcome(OutcomeKind.ASSET_LINK_DEAD, detail=error.reason)
    except PrivateAddress as error:
        saved = Outcome(OutcomeKind.ASSET_LINK_DEAD, detail=str(error))
    except (ValueError, LookupError) as error:
        saved = Outcome(OutcomeKind.ASSET_REFUSED, detail=str(error))
    except DiskError as error:
        saved = _unwritten(error)
    if isinstance(saved, Outcome):
        return saved, SavedAsset(asset.id, error=saved.detail)
    return Outcome(OutcomeKind.ASSET_SAVED), SavedAsset(
        asset.id, saved.path, saved.media_type, saved.size, saved.sha256, saved.mismatch, saved.content
    )


def _unwritten(error: DiskError) -> Outcome:
    kind = OutcomeKind.STORAGE_AWAY if error.passing else OutcomeKind.STORAGE_FAILED
    return Outcome(kind, detail=error.message)


def _decode(runtime: Runtime, claim: Claim, asset: AssetRecord) -> Saved:
    document = runtime.jobs.result_document(claim.job.id)
    value = read_pointer(document, asset.source.pointer)
    if isinstance(value, bytes):
        content, declared = value, document.content_type
    else:
        content, named = decode_inline(value if isinstance(value, str) else "")
        declared = named or asset.source.declared_type or ""
    return runtime.sink(claim).save(
        _stem(runtime, claim, asset.number), [content], declared_type=declared or None, limit=runtime.max_asset_bytes
    )


def _download(runtime: Runtime, claim: Claim, asset: AssetRecord, url: str) -> Saved | Outcome:
    reach("before download")
    sink, stem = runtime.sink(claim), _stem(runtime, claim, asset.number)
    begun = sink.begun(stem)
    with runtime.media.download(url, resuming_headers(begun) if begun else {}) as reply:
        whole = size_if_continued(begun, reply.status, reply.headers) if begun else None
        if begun is not None and whole is None and reply.status in _NO_REST:
            sink.discard(stem)
            return Outcome(OutcomeKind.ASSET_INTERRUPTED, http_status=reply.status, detail=_ANEW)
        if whole is None and reply.status != 200:
            return _refusal(reply, runtime.clock())
        size = reply.expected_size if whole is None else whole
        return sink.save(
            stem,
            reply.chunks,
            declared_type=reply.headers.get("content-type") or asset.source.declared_type,
            url=url,
            expected_size=size,
            limit=runtime.max_asset_bytes,
            validator=begun.validator if begun and whole is not None else validator_to_resume_by(reply.headers, size),
            begun=begun if whole is not None else None,
        )


def _refusal(reply: MediaReply, now: float) -> Outcome:
    """Servers in trouble are asked again; any other refusal is of the link."""
    passing = reply.status in {408, 425, 429} or reply.status >= 500
    return Outcome(
        OutcomeKind.ASSET_INTERRUPTED if passing else OutcomeKind.ASSET_LINK_DEAD,
        http_status=reply.status,
        detail=f"the media host answers {reply.status}",
        retry_after=parse_retry_after(reply.headers.get("retry-after"), now),
    )
