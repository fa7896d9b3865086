"""The simulated Router as an ASGI application: reads a call, asks the queue, words the answer."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from runner.simulator import delivery
from runner.simulator.answers import (
    DroppedConnection,
    Headers,
    InvalidBody,
    Refusal,
    answer,
    bare_answer,
    cut_answer,
    error_answer,
    html_answer,
    invalid_answer,
    json_answer,
    xml_refusal,
)
from runner.simulator.catalog import CATALOG, Model
from runner.simulator.config import SimulatorConfig
from runner.simulator.faults import Injector, plan_as_json, read_markers, with_faults
from runner.simulator.queue import SimulatedQueue
from runner.simulator.reading import (
    checked_body,
    cursor_place,
    cursor_to,
    dropped_fields,
    idempotency_key,
    model_id_of,
    model_of,
    page_size,
    read_body,
)
from runner.simulator.runs import Run, Submission, Terms, Verdict, fingerprint_of, scope_of
from runner.simulator.wording import REFUSALS, backlog_full, failure_answer, key_conflict, refusal, urls_of

_SPEND = (
    ("X-Committed-Spend-Limit", "10000"),
    ("X-Committed-Spend-Current", "9600"),
    ("X-Committed-Spend-Remaining", "400"),
)

Handler = Callable[[Request], Awaitable[Response]]


class Simulator:
    """Holds the queue and the faults, and answers the calls."""

    def __init__(self, config: SimulatorConfig, clock: Callable[[], float]) -> None:
        self.config = config
        self.clock = clock
        self.queue = SimulatedQueue(config)
        self.injector = Injector(config.faults)

    def close(self) -> None:
        """Let go of the journal."""
        self.queue.close()

    # What every call of the contract's routes goes through

    def route(self, path: str, handler: Handler, method: str, counted_as: str) -> Route:
        """A route whose answers all have the contract's form."""

        async def endpoint(request: Request) -> Response:
            self.queue.ledger.calls[counted_as] += 1
            if self.injector.plan.slow:
                await asyncio.sleep(self.injector.plan.slow)
            try:
                # Read before anything is refused: an unread body would spoil the connection for the next call.
                request.state.body = await read_body(request) if method == "POST" else b""
                request.state.scope = self._authenticate(request)
                return self._call_fault() or await handler(request)
            except InvalidBody as invalid:
                return invalid_answer(invalid.problems)
            except Refusal as refusal:
                return error_answer(refusal.status, refusal.error_type, refusal.detail, refusal.headers)

        return Route(path, endpoint, methods=[method])

    def _authenticate(self, request: Request) -> str:
        """The scope of the caller's key; `X-API-Key` wins over a bearer (contract: security schemes)."""
        key = request.headers.get("x-api-key", "").strip()
        if not key:
            scheme, _, token = request.headers.get("authorization", "").partition(" ")
            key = token.strip() if scheme.lower() == "bearer" else ""
        accepted = self.config.api_keys
        if not key or (accepted is not None and key not in accepted):
            raise Refusal(401, "unauthorized", "The request carries no usable credential.")
        return scope_of(key)

    def _call_fault(self) -> Response | None:
        fault = self.injector.call()
        if fault is None:
            return None
        if fault == "unauthorized":
            raise Refusal(401, "unauthorized", "The credential is not valid.")
        if fault == "forbidden":
            raise Refusal(403, "forbidden", "The credential is not entitled to this operation.")
        if fault == "rate_limited":
            raise Refusal(429, "rate_limited", "The allowance of this minute is spent.", self._retry_after(2))
        headers = self._retry_after(2) if fault == "unavailable" else ()
        raise Refusal(503, "service_unavailable", "A dependency is unavailable.", headers)

    def _retry_after(self, seconds: int) -> Headers:
        """The header, or the text that the plan puts in its place; `|` in it separates several headers."""
        text = self.injector.plan.retry_after
        values = [str(seconds)] if text is None else text.split("|")
        return [("Retry-After", value) for value in values]

    # Submit

    async def submit(self, request: Request) -> Response:
        """`POST .../requests`."""
        key = idempotency_key(request)
        model_id = model_id_of(request)
        self.queue.count_send(key, model_id)
        fault = self.injector.submit(key or "")
        broken = self._refused_submit(fault, model_id)
        if broken is not None:
            return broken
        response = self._accept(request, key, model_of(model_id))
        return self._lost_answer(fault, response)

    def _refused_submit(self, fault: str | None, model_id: str) -> Response | None:
        """Faults that come before anything is recorded."""
        if fault == "drop_before_accept":
            return DroppedConnection()
        if fault in ("submit_500", "submit_502", "submit_504"):
            return bare_answer(int(fault.removeprefix("submit_")))
        if fault == "submit_html":
            return html_answer()
        if fault == "concurrency_limit":
            detail = "The committed spend of the calls in flight is at its limit."
            raise Refusal(429, "concurrency_limit_exceeded", detail, _SPEND)
        if fault == "backlog_full":
            raise backlog_full()
        if fault in REFUSALS:
            raise refusal(fault, model_id)
        if fault == "key_busy":
            detail = "Another call for this Idempotency-Key is in flight."
            raise Refusal(409, "concurrency_limit_exceeded", detail, self._retry_after(2))
        if fault == "key_conflict":
            raise key_conflict()
        return None

    def _lost_answer(self, fault: str | None, response: Response) -> Response:
        """Faults that lose the answer of a submit that was recorded."""
        if response.status_code != 201:
            return response
        if fault == "drop_after_accept":
            return DroppedConnection()
        if fault == "deadline_exceeded":
            detail = "Comfy stopped holding the connection."
            raise Refusal(504, "deadline_exceeded", detail, self._retry_after(3))
        return cut_answer(response) if fault == "submit_cut_json" else response

    def _accept(self, request: Request, key: str | None, model: Model) -> Response:
        now = self.clock()
        body: bytes = request.state.body
        fingerprint = fingerprint_of("POST", request.url.path, request.url.query, body)
        if key is not None:
            # A held key decides before the body is looked at: only a free one can be refused for its contents.
            known = self.queue.known(request.state.scope, key, fingerprint, now)
            if known is not None:
                return self._submit_answer(*known, model)
        if not model.queueable:
            raise refusal("not_queueable", model.id)
        document = checked_body(request, model)
        given = model.read_input(document)
        markers = read_markers(given.prompt)
        origin = f"{request.url.scheme}://{request.headers.get('host', request.url.netloc)}"
        dropped = dropped_fields(request, document)
        submission = Submission(request.state.scope, key, fingerprint, model, given, origin, markers, dropped)
        plan = self.injector.plan
        terms = Terms(plan.credits, self.injector.run(), plan.fail_type)
        return self._submit_answer(*self.queue.submit(submission, now, terms), model)

    def _submit_answer(self, verdict: Verdict, run: Run | None, model: Model) -> Response:
        if verdict is Verdict.CONFLICT:
            raise key_conflict()
        if verdict is Verdict.NO_CREDITS:
            raise Refusal(402, "insufficient_credits", "The workspace has not enough credits to run the model.")
        if run is None:
            raise backlog_full()
        handle = urls_of(run) | {
            "request_id": run.id,
            "status": "IN_QUEUE",
            "queue_position": run.first_position,
        }
        if verdict is Verdict.REPLAYED:
            return json_answer(201, handle, [("Idempotent-Replayed", "true")])
        if not self.injector.plan.estimate_disabled:
            handle["estimate"] = model.quote(run.given, _rfc3339(self.clock()))
        return json_answer(201, handle)

    # Reads

    def _find(self, request: Request) -> Run:
        model = model_of(model_id_of(request))
        request_id = request.path_params["request_id"]
        run = self.queue.find(request_id, model.id, request.state.scope, self.clock())
        if run is None:
            raise Refusal(404, "request_not_found", "No request of yours has this id under this model.")
        return run

    def _readable(self, request: Request) -> Run:
        run = self._find(request)
        if self.queue.is_gone(run):
            raise Refusal(410, "invalid_input", "The request has aged out of its retention window.")
        self.queue.count_read(run)
        return run

    def _read_fault(self, request: Request) -> tuple[str | None, Response | None]:
        fault = self.injector.read(request.path_params["request_id"])
        if fault == "read_drop":
            return fault, DroppedConnection()
        if fault in ("read_500", "read_502", "read_504"):
            return fault, bare_answer(int(fault.removeprefix("read_")))
        if fault == "read_html":
            return fault, html_answer()
        if fault == "request_not_found":
            raise Refusal(404, "request_not_found", "No request of yours has this id under this model.")
        return fault, None

    def _state(self, run: Run, status: int) -> Response:
        """Contract: `RouterQueueStatusResponse`, with the wait until the next read."""
        document: dict[str, object] = urls_of(run) | {"request_id": run.id, "status": run.status.value}
        if run.status.value == "IN_QUEUE":
            document["queue_position"] = self.queue.position(run)
        if run.error_type is not None:
            document["error_type"] = run.error_type
        wait = self.queue.poll_after(run)
        headers = [] if wait is None else self._retry_after(wait)
        self.queue.promise_wait(run, _whole_seconds(headers))
        return json_answer(status, document, headers)

    async def status(self, request: Request) -> Response:
        """`GET .../requests/{id}/status`."""
        fault, broken = self._read_fault(request)
        if broken is not None:
            return broken
        response = self._state(self._readable(request), 200)
        return cut_answer(response) if fault == "read_cut_json" else response

    async def result(self, request: Request) -> Response:
        """`GET .../requests/{id}`: the output, the run's failure, or `202`."""
        fault, broken = self._read_fault(request)
        if broken is not None:
            return broken
        run = self._readable(request)
        if not run.completed:
            response = self._state(run, 202)
        elif run.error_type is not None:
            response = failure_answer(run, run.error_type)
        else:
            response = self._output(run)
        return cut_answer(response) if fault == "read_cut_json" else response

    def _output(self, run: Run) -> Response:
        model = CATALOG[run.model]
        document = model.output(self.queue.finished(run, self._links_from(run)))
        run.collected += 1
        headers = [("X-Content-Type-Options", "nosniff")]
        if run.dropped:
            headers.append(("X-Comfy-Router-Dropped-Params", json.dumps(list(run.dropped))))
        used = model.credits_used(run.given)
        if used is not None:
            headers.append(("X-Comfy-Credits-Used", used))
        return json_answer(200, document, headers)

    def _links_from(self, run: Run) -> float | None:
        """When the links' lifetime begins; `None` is the run's end."""
        plan = self.injector.plan
        if plan.relink and run.collected:
            return self.clock()
        # Signed so long ago that they are dead on arrival.
        return run.finish - self.config.link_lifetime - 1 if plan.dead_first_links else None

    async def cancel(self, request: Request) -> Response:
        """`PUT .../requests/{id}/cancel`."""
        run = self._find(request)
        if self.queue.cancel(run, self.clock()):
            return json_answer(202, {"request_id": run.id, "status": "CANCELLATION_REQUESTED"})
        status = 400 if self.injector.plan.legacy_cancel else 409
        return json_answer(status, {"request_id": run.id, "status": "ALREADY_COMPLETED"})

    # Catalog

    async def models(self, request: Request) -> Response:
        """`GET /v2/models`."""
        start = cursor_place(request.query_params.get("cursor"))
        limit = page_size(request.query_params.get("limit"))
        page = list(CATALOG.values())[start : start + limit]
        after = start + limit
        document: dict[str, object] = {
            "data": [model.entry() for model in page],
            "has_more": after < len(CATALOG),
            "limit": limit,
        }
        if after < len(CATALOG):
            document["next_cursor"] = cursor_to(after)
        return json_answer(200, document)

    async def model(self, request: Request) -> Response:
        """`GET /v2/models/{id}`."""
        return json_answer(200, model_of(model_id_of(request)).entry())

    async def schema(self, request: Request) -> Response:
        """`GET /v2/models/{id}/openapi.json`."""
        model = model_of(model_id_of(request))
        headers = [("ETag", model.schema_tag), ("Cache-Control", "private, max-age=300, must-revalidate")]
        held = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
        if model.schema_tag in held or "*" in held:
            response = answer(304, b"", "application/json", headers)
            # RFC 9110, 15.4.5: no body, so nothing that describes one.
            del response.headers["content-type"]
            return response
        return answer(200, model.schema_document, "application/json", headers)

    async def estimate(self, request: Request) -> Response:
        """`POST /v2/models/{id}/estimate`."""
        if self.injector.plan.estimate_disabled:
            raise Refusal(403, "not_enabled", "Estimates are not enabled for this account yet.")
        model = model_of(model_id_of(request))
        given = model.read_input(checked_body(request, model))
        return json_answer(200, model.quote(given, _rfc3339(self.clock())))

    # The media host and the simulator's own routes, which are none of the contract's

    async def media(self, request: Request) -> Response:
        """A file that a result points at."""
        ledger = self.queue.ledger
        ledger.calls["media"] += 1
        if "x-api-key" in request.headers or "authorization" in request.headers:
            ledger.credentials_leaked += 1
        wait = self.injector.plan.slow_media
        if wait:
            await asyncio.sleep(wait)
        fault = self.injector.media(request.url.path)
        response = delivery.broken(request, fault)
        if response is not None:
            return response
        now = self.clock()
        run = self.queue.by_id(request.path_params["request_id"], now)
        if run is None or not run.completed:
            return xml_refusal(404, "NoSuchKey", "The specified key does not exist.")
        finished = self.queue.finished(run)
        query = request.query_params
        path = f"/media/{run.id}/{request.path_params['name']}"
        until = delivery.signed_until(finished.secret, path, query.get("sig", ""), query.get("exp", ""))
        if until is None or now >= until:
            return delivery.dead_link()
        return delivery.deliver(request, finished, request.path_params["name"], fault)

    async def show_ledger(self, request: Request) -> Response:
        """`GET /_simulator/ledger`."""
        summary = request.query_params.get("summary") == "1"
        return json_answer(200, self.queue.ledger_as_json(self.clock(), summary=summary))

    async def show_faults(self, request: Request) -> Response:
        """`GET /_simulator/faults`."""
        return json_answer(200, plan_as_json(self.injector.plan))

    async def set_faults(self, request: Request) -> Response:
        """`POST /_simulator/faults`: sets the named faults, leaves the others, counts anew."""
        try:
            changes = json.loads(await request.body())
            if not isinstance(changes, dict):
                raise ValueError("a JSON object of fault names and values is needed")
            self.injector.set_plan(with_faults(self.injector.plan, changes))
        except ValueError as error:
            return error_answer(400, "invalid_input", str(error))
        return await self.show_faults(request)

    def routes(self) -> list[Route]:
        """Every route, the busiest first."""
        model = "/v2/models/{provider}/{model}"
        one = model + "/requests/{request_id}"
        return [
            self.route(one, self.result, "GET", "result"),
            self.route(one + "/status", self.status, "GET", "status"),
            self.route(model + "/requests", self.submit, "POST", "submit"),
            Route("/media/{request_id}/{name}", self.media, methods=["GET"]),
            self.route(one + "/cancel", self.cancel, "PUT", "cancel"),
            self.route(model + "/openapi.json", self.schema, "GET", "catalog"),
            self.route(model + "/estimate", self.estimate, "POST", "catalog"),
            self.route("/v2/models", self.models, "GET", "catalog"),
            self.route(model, self.model, "GET", "catalog"),
            Route("/_simulator/ledger", self.show_ledger, methods=["GET"]),
            Route("/_simulator/faults", self.show_faults, methods=["GET"]),
            Route("/_simulator/faults", self.set_faults, methods=["POST"]),
        ]


def _whole_seconds(headers: Headers) -> int | None:
    """The wait that an answer names, where it names one that a caller can keep to."""
    if len(headers) != 1:
        return None
    text = headers[0][1]
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _rfc3339(seconds: float) -> str:
    whole = datetime.fromtimestamp(math.floor(seconds), UTC)
    return whole.isoformat().replace("+00:00", "Z")


async def _no_route(request: Request, error: Exception) -> Response:
    """Answers for paths and methods that are not simulated, the synchronous run among them."""
    assert isinstance(error, HTTPException)  # noqa: S101  # the only class this is registered for
    detail = "The simulator has no such route." if error.status_code == 404 else error.detail
    if error.status_code == 405:
        detail = "The simulator serves the queued form only; submit to .../requests."
    return error_answer(error.status_code, "invalid_input", detail, list((error.headers or {}).items()))


def create_app(config: SimulatorConfig, clock: Callable[[], float] = time.time) -> Starlette:
    """Build the application; `app.state.simulator` holds its queue, and its `close()` lets go of the journal."""
    simulator = Simulator(config, clock)
    app = Starlette(routes=simulator.routes(), exception_handlers={HTTPException: _no_route})
    app.state.simulator = simulator
    return app
