"""The ports of the steps, played by objects that a test can script and read; and short ways to a job in a state."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import text

from runner.core.lifecycle import decide
from runner.core.types import Document, Handle, JobState, MediaSource, Outcome, OutcomeKind, Policy, Step
from runner.core.wire import HttpRequest, HttpResponse, Reply
from runner.router.media import MediaInterrupted, MediaReply
from runner.store.batches import BatchStore, NewBatch, NewJob
from runner.store.engine import Database
from runner.store.jobs import JobStore
from runner.store.records import Claim, NewResult, SavedAsset, Wake
from runner.store.upkeep import UpkeepStore

#: When the tests' clocks begin.
START = 1_800_000_000.0
POLICY = Policy()


class Clock:
    """A clock that moves when it is told to."""

    def __init__(self, now: float = START) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds

    #: A pause that takes no time of the test's.
    sleep = advance


# ---- the Router ----

Script = Callable[[HttpRequest], Reply]


class FakeRouter:
    """Plays the Router: gives `replies` in order, each a reply or a function of the request, and keeps the requests.

    A single function answers every call. A call beyond the script fails the test.
    """

    def __init__(self, *replies: Reply | Script, base_url: str = "https://router.invalid") -> None:
        self.base_url = base_url
        self.requests: list[HttpRequest] = []
        self._for_ever = replies[0] if len(replies) == 1 and callable(replies[0]) else None
        self._replies = list(replies)

    def then(self, *replies: Reply | Script) -> None:
        """Add to the script."""
        self._replies.extend(replies)

    @property
    def unused(self) -> int:
        """How much of the script was not played yet."""
        return 0 if self._for_ever else len(self._replies)

    def exchange(self, request: HttpRequest) -> Reply:
        """The next reply."""
        self.requests.append(request)
        if self._for_ever is not None:
            return self._for_ever(request)
        assert self._replies, f"one call more than expected: {request.method} {request.url}"
        reply = self._replies.pop(0)
        return reply(request) if callable(reply) else reply


def answer(status: int, document: object = None, **headers: str) -> HttpResponse:
    """An answer of the Router; header names with underscores."""
    body = b"" if document is None else document if isinstance(document, bytes) else json.dumps(document).encode()
    told = {"content-type": "application/json", "x-comfy-request-id": "call-1"}
    return HttpResponse(status, told | {name.replace("_", "-"): value for name, value in headers.items()}, body)


def refusal(status: int, error_type: str, detail: str = "no", **headers: str) -> HttpResponse:
    """An error as the contract writes it."""
    return answer(status, {"error_type": error_type, "detail": detail}, **{"x_comfy_error_type": error_type, **headers})


def handle_document(request_id: str = "req-1", base_url: str = "https://router.invalid") -> dict[str, Any]:
    """The body of a `201`."""
    request = f"{base_url}/v2/models/acme/paint/requests/{request_id}"
    return {
        "request_id": request_id,
        "status": "IN_QUEUE",
        "queue_position": 3,
        "status_url": f"{request}/status",
        "response_url": request,
        "cancel_url": f"{request}/cancel",
    }


def status_document(status: str, **more: object) -> dict[str, Any]:
    """The body of a status read, or of a result read's `202`."""
    return {**handle_document(), "status": status, **more}


# ---- media hosts ----

_NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True)
class Media:
    """What a media host does at one download."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    #: The connection breaks after the body.
    breaks: bool = False


class FakeMediaHost:
    """Plays every media host: for each link the downloads in order, the last of them again and again."""

    def __init__(self, links: Mapping[str, Media | Sequence[Media]] | None = None) -> None:
        self._links = {url: [m] if isinstance(m, Media) else list(m) for url, m in (links or {}).items()}
        #: Links as they were asked for.
        self.requests: list[str] = []
        #: What was sent with each.
        self.headers: list[Mapping[str, str]] = []

    @contextmanager
    def download(self, url: str, headers: Mapping[str, str] = _NOTHING) -> Iterator[MediaReply]:
        """The next thing that this link does."""
        self.requests.append(url)
        self.headers.append(headers)
        script = self._links[url]
        media = script.pop(0) if len(script) > 1 else script[0]
        yield MediaReply(media.status, media.headers, self._chunks(media))

    def _chunks(self, media: Media) -> Iterator[bytes]:
        yield media.body
        if media.breaks:
            raise MediaInterrupted("the download failed (ReadError)")


# ---- stores with something in them ----


@dataclass(frozen=True)
class Stores:
    """The three stores over one database."""

    database: Database
    jobs: JobStore
    batches: BatchStore
    upkeep: UpkeepStore


def open_stores(database: Database, *, breaker: int = 0) -> Stores:
    """Stores as a process has them, but for the breaker, which is off where a test does not name its limit."""
    jobs = JobStore(database, breaker=breaker)
    return Stores(database, jobs, BatchStore(database), UpkeepStore(database, jobs))


@dataclass(frozen=True)
class Seeded:
    """A batch and its jobs, in the manifest's order."""

    batch: NewBatch
    credential: int
    jobs: tuple[int, ...]


def seed_batch(
    stores: Stores,
    count: int,
    *,
    name: str = "cats",
    window: int = 64,
    now: float = START,
    credential: str = "fingerprint",
    router: str = "https://router.invalid",
    asset_store: str = "files",
    output_dir: str = "out",
    body: bytes | None = None,
    model: str = "acme/paint",
    complete: bool = True,
) -> Seeded:
    """A batch of `count` pending jobs, as `run` writes it; without `complete`, as an interrupted one leaves it."""
    credential_id = stores.batches.credential(credential, router, window)
    batch = NewBatch(
        id=name.encode().hex().ljust(32, "0")[:32],
        name=name,
        fingerprint=f"manifest of {name}",
        credential_id=credential_id,
        simulated=False,
        manifest=f"{name}.csv",
        asset_store=asset_store,
        output_dir=output_dir,
    )
    stores.batches.create(batch, now)
    rows = (NewJob(row, f"row-{row}", model, body or b'{"prompt":"cat %d"}' % row, "{}") for row in range(1, count + 1))
    assert list(stores.batches.write_rows(batch, rows, now))[-1:] == ([count] if count else [])
    if complete:
        stores.batches.complete(batch.id, count, '["prompt"]', now)
    with stores.database.read() as connection:
        found = connection.execute(text("SELECT id FROM job WHERE batch_id = :id ORDER BY row"), {"id": batch.id})
        return Seeded(batch, credential_id, tuple(found.scalars()))


def admit(stores: Stores, seeded: Seeded, now: float = START) -> list[Wake]:
    """Let pending jobs into the window."""
    return stores.upkeep.sweep(seeded.credential, now)


def take(
    stores: Stores, job_id: int, step: Step, now: float = START, *, owner: str = "worker-1", lease: float = 60.0
) -> Claim:
    """Claim a job that can be claimed."""
    claim = stores.jobs.claim(job_id, step, owner=owner, now=now, lease=lease)
    assert isinstance(claim, Claim), claim
    return claim


def settle(
    stores: Stores,
    claim: Claim,
    outcome: Outcome,
    now: float = START,
    *,
    result: NewResult | None = None,
    asset: SavedAsset | None = None,
) -> list[Wake] | None:
    """Decide on what a claim came to, and write it."""
    transition = decide(claim.job, outcome, now, POLICY)
    return stores.jobs.apply(claim, outcome, transition, now, result=result, asset=asset)


def do(stores: Stores, job_id: int, step: Step, outcome: Outcome, now: float = START, **more: Any) -> list[Wake]:
    """Claim and settle."""
    wakes = settle(stores, take(stores, job_id, step, now), outcome, now, **more)
    assert wakes is not None
    return wakes


def accepted(request_id: str = "req-1") -> Outcome:
    """The Router took the request."""
    document = handle_document(request_id)
    handle = Handle(request_id, document["status_url"], document["response_url"], document["cancel_url"])
    return Outcome(OutcomeKind.ACCEPTED, http_status=201, call_id="call-1", handle=handle)


def plain_result(media: Sequence[MediaSource] = (), body: bytes = b"{}") -> tuple[Outcome, NewResult]:
    """A result that arrived, and what to keep of it."""
    document = Document(body, "application/json")
    outcome = Outcome(OutcomeKind.RESULT, http_status=200, document=document, assets=len(media))
    return outcome, NewResult(document, tuple(media))


def submit_and_accept(stores: Stores, job_id: int, now: float = START) -> None:
    """From the window to the Router's acceptance."""
    do(stores, job_id, Step.SUBMIT, accepted(f"req-{job_id}"), now)


def succeed(stores: Stores, job_id: int, now: float = START) -> list[Wake]:
    """From the window to a result without media; returns the last messages."""
    submit_and_accept(stores, job_id, now)
    outcome, result = plain_result()
    return do(stores, job_id, Step.COLLECT, outcome, now, result=result)


def fail(stores: Stores, job_id: int, now: float = START, error_type: str = "invalid_input") -> list[Wake]:
    """The submit is refused for good."""
    outcome = Outcome(OutcomeKind.REJECTED, http_status=422, error_type=error_type, detail="no such size")
    return do(stores, job_id, Step.SUBMIT, outcome, now)


# ---- looking at what stands in the database ----


def row_of(database: Database, table: str, **where: object) -> dict[str, Any]:
    """The one row of a table with these values."""
    found = rows_of(database, table, **where)
    assert len(found) == 1, f"{len(found)} rows of {table} where {where}"
    return found[0]


def rows_of(database: Database, table: str, **where: object) -> list[dict[str, Any]]:
    """The rows of a table with these values, in order of their first column."""
    conditions = " AND ".join(f"{name} = :{name}" for name in where) or "1 = 1"
    with database.read() as connection:
        rows = connection.execute(text(f"SELECT * FROM {table} WHERE {conditions} ORDER BY 1"), where).mappings()
        return [dict(row) for row in rows]


def job(stores: Stores, job_id: int) -> dict[str, Any]:
    """A job as it stands."""
    return row_of(stores.database, "job", id=job_id)


def states(stores: Stores, seeded: Seeded) -> dict[JobState, int]:
    """How many jobs of a batch stand in each state."""
    counts: dict[JobState, int] = {}
    for row in rows_of(stores.database, "job", batch_id=seeded.batch.id):
        state = JobState(row["state"])
        counts[state] = counts.get(state, 0) + 1
    return counts


def story(stores: Stores, job_id: int) -> list[tuple[str, str]]:
    """What happened to a job, and the state that it led to, in order."""
    return [(row["kind"], row["state"]) for row in rows_of(stores.database, "event", job_id=job_id)]
