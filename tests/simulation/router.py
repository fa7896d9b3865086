"""The Router as a model: keys, runs, refusals, lost and spoilt answers, and an eye on what it is asked."""

from __future__ import annotations

import json
from collections.abc import Callable

from runner.core.retryafter import parse_retry_after
from runner.core.wire import HttpRequest, HttpResponse, NoResponse, Reply, origin_of
from tests.simulation.media import MediaModel
from tests.simulation.runs import BASE_URL, DAY, Ledger, Run, new_run
from tests.simulation.world import Task, Violation, World

#: How much too early a read may come: the workers' clocks differ by that much.
_SLACK = 0.7
#: A connection that breaks, or one that is waited for in vain.
_LOST_AFTER = (0.0, 0.5, 3.0, 60.0)
#: Waits as they should not be written.
_ODD_WAITS = ("0", "-3", "nan", "1.5", "soon", "5, 5", "", "Wed, 21 Oct 2015 07:28:00 GMT", "99999999999", "90000")


def _answer(status: int, document: object, **headers: str) -> HttpResponse:
    told = {"content-type": "application/json", "x-comfy-request-id": "call"}
    told |= {name.replace("_", "-"): value for name, value in headers.items()}
    return HttpResponse(status, told, json.dumps(document).encode())


class RouterModel:
    """Implements the port of the steps; every worker's calls come here."""

    base_url = BASE_URL

    def __init__(self, world: World, media: MediaModel, in_window: Callable[[set[str]], int]) -> None:
        self._world = world
        self._media = media
        self._scenario = world.scenario
        #: How many of these keys are of jobs that hold a place in the window.
        self._in_window = in_window
        self.ledger = Ledger()
        self._by_id: dict[str, Run] = {}
        self._sending: list[str] = []
        #: Before then a key may not be sent again.
        self._not_before: dict[str, float] = {}
        #: The credential's cool-down: from when it is known, and until when it lasts.
        self._cooling = (0.0, 0.0)
        #: Owners whose requests are refused for good, and for what.
        self.refused: dict[str, tuple[int, str]] = {}

    # ---- one exchange ----

    def exchange(self, request: HttpRequest) -> Reply:
        """See `Router.exchange`."""
        world, task = self._world, self._world.current
        assert task is not None
        if origin_of(request.url) != origin_of(BASE_URL):
            raise Violation(f"the credential went to another origin: {request.url}")
        if self._cooling[0] < task.claimed_at < self._cooling[1] - _SLACK and world.binds(task):
            raise Violation("a call of a credential that cools down")
        if world.strikes("unreachable"):
            return NoResponse("no route", sent=False)
        key = request.headers.get("Idempotency-Key")
        if key is None:
            return self._travel(request, lambda: self._read(request, task))
        self._sending.append(key)
        try:
            self._check_window()
            return self._travel(request, lambda: self._submit(request, key, task))
        finally:
            self._sending.remove(key)

    def _travel(self, request: HttpRequest, serve: Callable[[], tuple[HttpResponse, Run | None]]) -> Reply:
        world, task = self._world, self._world.current
        assert task is not None
        world.sleep(world.rng.uniform(0.01, 0.3))
        if world.strikes("request lost"):
            world.sleep(world.rng.choice(_LOST_AFTER))
            return NoResponse("timed out", sent=True)
        reply, run = serve()
        world.tell(
            "router", f"{request.method} {request.url.rpartition('/')[2]} -> {reply.status} {reply.body[:160]!r}"
        )
        if world.strikes("answer lost"):
            world.sleep(world.rng.choice(_LOST_AFTER))
            return NoResponse("timed out", sent=True)
        if world.strikes("answer spoilt"):
            reply = self._spoilt(reply)
        world.sleep(world.rng.uniform(0.0, 0.3))
        self._handed_over(task, request, reply, run)
        return reply

    def _spoilt(self, reply: HttpResponse) -> HttpResponse:
        how = self._world.rng.randrange(4)
        if how == 0:
            return HttpResponse(502, {"content-type": "text/html"}, b"<html>bad gateway</html>")
        if how == 1:
            return HttpResponse(reply.status, reply.headers, reply.body[: len(reply.body) // 2])
        if how == 2:
            return HttpResponse(200, {"content-type": "text/html"}, b"<html>sign in</html>")
        return HttpResponse(500, {"retry-after": "7"}, b"")

    def _handed_over(self, task: Task, request: HttpRequest, reply: HttpResponse, run: Run | None) -> None:
        """The answer is in the caller's hands; what it asks for binds once it has been written down."""
        key = request.headers.get("Idempotency-Key")
        if key is not None and reply.status in {401, 402, 403, 404, 422, 429, 503} and key not in self.ledger.runs:
            self.ledger.exposed.pop(key, None)
        wait = parse_retry_after(reply.headers.get("retry-after"), self._world.now + self._world.offset)
        if wait is None:
            return
        until = self._world.now + wait
        task.on_applied.append(lambda: self._promise(key, run, until, limited=_is_rate_limit(reply)))

    def _promise(self, key: str | None, run: Run | None, until: float, *, limited: bool) -> None:
        if key is not None:
            self._not_before[key] = until
        elif run is not None:
            run.not_before = until
        if limited:
            self._cooling = (self._world.now, max(until, self._cooling[1]))

    def forget_promises(self) -> None:
        """The clock was set, or the user has asked: waits do not count any more."""
        self._not_before.clear()
        self._cooling = (0.0, 0.0)
        for run in self._by_id.values():
            run.not_before = 0.0

    # ---- submits ----

    def _check_window(self) -> None:
        keys = self.ledger.unfinished(self._world.now) | set(self._sending)
        if len(keys) > self._scenario.window and self._in_window(keys) > self._scenario.window:
            raise Violation(f"{len(keys)} in flight where {self._scenario.window} may be")

    def _submit(self, request: HttpRequest, key: str, task: Task) -> tuple[HttpResponse, Run | None]:
        world, ledger, now = self._world, self.ledger, self._world.now
        body = request.content or b""
        wrong = ledger.note(key, body)
        if wrong:
            raise Violation(wrong)
        if now + _SLACK < self._not_before.get(key, 0.0) and world.binds(task):
            raise Violation(f"{key} was sent again before the time that was asked for")
        if now - ledger.exposed.setdefault(key, now) >= DAY:
            raise Violation(f"{key} was sent again after its lifetime")
        owner = str(json.loads(body)["prompt"])
        refusal = self._refusal_of_caller(on_submit=True)
        if refusal is not None:
            return refusal, None
        runs = ledger.runs.get(key)
        if runs:
            return self._repeated(runs[-1]), runs[-1]
        refusal = self._refusal_of_request(owner)
        if refusal is not None:
            return refusal, None
        run = new_run(world.rng, self._scenario, len(self._by_id) + 1, key, owner, now, calm=world.calm)
        run.foreign, run.replayable = world.strikes("foreign links"), not world.strikes("key unreplayable")
        ledger.runs.setdefault(key, []).append(run)
        self._by_id[run.id] = run
        return _answer(201, run.handle(now)), run

    def _repeated(self, run: Run) -> HttpResponse:
        if self._world.now < run.admitted_at:
            return self._error(409, "concurrency_limit_exceeded", retry_after="1")
        if not run.replayable:
            return self._error(409, "invalid_input")
        return _answer(201, run.handle(self._world.now), idempotent_replayed="true")

    def _refusal_of_caller(self, *, on_submit: bool) -> HttpResponse | None:
        world = self._world
        if world.strikes("unauthorized"):
            return self._error(*world.rng.choice(((401, "unauthorized"), (403, "forbidden"))))
        if world.strikes("rate limited"):
            return self._error(429, "rate_limited", retry_after=self._wait(1, 20))
        if world.strikes("unavailable"):
            wait = self._wait(1, 20) if world.rng.random() < 0.6 else ""
            return self._error(503, "service_unavailable", retry_after=wait)
        if on_submit and world.strikes("out of credits"):
            return self._error(402, "insufficient_credits")
        return None

    def _refusal_of_request(self, owner: str) -> HttpResponse | None:
        world = self._world
        if owner in self.refused:
            return self._error(*self.refused[owner])
        if world.strikes("not enabled"):
            return self._error(403, "not_enabled", detail="the workspace is not enabled")
        if len(self.ledger.unfinished(world.now)) >= self._scenario.capacity:
            return self._error(429, "queue_backlog_full", retry_after=self._wait(1, 5))
        if world.strikes("refused for now"):
            bucket = world.rng.choice(("queue_backlog_full", "concurrency_limit_exceeded"))
            return self._error(429, bucket, retry_after=self._wait(1, 30))
        return None

    # ---- reads ----

    def _read(self, request: HttpRequest, task: Task) -> tuple[HttpResponse, Run | None]:
        world = self._world
        asks_status = request.url.endswith("/status")
        run_id = request.url.removesuffix("/status").rpartition("/")[2]
        refusal = self._refusal_of_caller(on_submit=False)
        run = self._by_id.get(run_id)
        if run is None:
            raise Violation(f"a request was read that does not exist: {run_id}")
        if world.now + _SLACK < run.not_before and world.binds(task):
            raise Violation(f"{run_id} was read before the time that was asked for")
        if refusal is not None:
            return refusal, run
        if world.strikes("not found"):
            return self._error(404, "request_not_found"), run
        if world.now >= run.ends_at + DAY:
            return self._error(410, "request_not_found"), run
        return (self._status(run) if asks_status else self._result(run)), run

    def _status(self, run: Run) -> HttpResponse:
        now = self._world.now
        if now < run.ends_at:
            return _answer(200, run.handle(now), retry_after=self._wait_for(run))
        return _answer(200, run.handle(now, run.failure))

    def _result(self, run: Run) -> HttpResponse:
        now = self._world.now
        if now < run.ends_at:
            return _answer(202, run.handle(now), retry_after=self._wait_for(run))
        if run.failure is not None:
            return self._error(422 if run.failure == "content_policy_violation" else 500, run.failure)
        if self._world.strikes("read fails"):
            return self._error(500, "internal_error", retry_after=self._world.rng.choice(("", "3")))
        return HttpResponse(
            200,
            {"content-type": "application/json", "x-comfy-request-id": "call"},
            run.output(self._scenario, self._media),
        )

    # ---- words ----

    def _wait_for(self, run: Run) -> str:
        return self._wait(1, max(1, min(5, int(run.ends_at - self._world.now) + 1)))

    def _wait(self, least: int, most: int) -> str:
        if self._world.strikes("odd wait"):
            return self._world.rng.choice(_ODD_WAITS)
        return str(self._world.rng.randint(least, most))

    def _error(self, status: int, bucket: str, detail: str = "no", retry_after: str = "") -> HttpResponse:
        more = {"retry_after": retry_after} if retry_after else {}
        return _answer(status, {"error_type": bucket, "detail": detail}, x_comfy_error_type=bucket, **more)


def _is_rate_limit(reply: HttpResponse) -> bool:
    return reply.status == 429 and reply.headers.get("x-comfy-error-type") == "rate_limited"
