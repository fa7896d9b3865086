"""Engines: the same worker inside the command's own process, or in the foreground of a process of its own."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
import warnings
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from celery import Celery, signals
from celery.app.trace import setup_worker_optimizations
from celery.exceptions import SecurityWarning
from celery.utils import timer2
from celery.worker import WorkController
from celery.worker import state as worker_state

from config.settings import Settings
from runner.core.errors import BatchError, StoreError
from runner.core.types import Policy, Step
from runner.router.client import RouterClient
from runner.router.media import MediaClient
from runner.store.engine import Database
from runner.store.jobs import JobStore
from runner.store.records import Wake
from runner.store.upkeep import UpkeepStore, WorkerInfo
from tasks.app import build_app
from tasks.clock import SteadyClock
from tasks.cores import keep_to_one_core
from tasks.pacing import FirstRead
from tasks.processes import is_running, leave, leave_behind
from tasks.steps import Runtime
from tasks.upkeep import Sweeper, join
from tasks.watchers import Watchers, watch_with

#: How long a worker may take to start, in seconds.
PATIENCE = 10.0
#: How long calls under way are waited for when a worker stops, in seconds: whoever stops it, such as a container's
#: engine, waits for ten.
LAST_CALLS = 6.0


@dataclass(frozen=True)
class Parts:
    """Everything that a worker's process owns, to be closed together."""

    app: Celery
    runtime: Runtime
    sweeper: Sweeper
    router: RouterClient
    media: MediaClient

    def close(self) -> None:
        """Give connections back."""
        self.router.close()
        self.media.close()


def assemble(
    settings: Settings, database: Database, credential_id: int, concurrency: int, only_batch: str | None = None
) -> Parts:
    """Put a worker together from its parts. With `only_batch` it sends no other batch's jobs."""
    host = socket.gethostname()
    worker = WorkerInfo(f"{host}-{os.getpid()}-{secrets.token_hex(3)}", credential_id, host, os.getpid(), concurrency)
    jobs = JobStore(
        database, longest_countdown=settings.longest_countdown, breaker=settings.breaker, only_batch=only_batch
    )
    key = settings.api_key.get_secret_value() if settings.api_key else ""
    router = RouterClient(settings.router_base_url, key, timeout=settings.request_timeout)
    media = MediaClient(timeout=settings.download_timeout, allowed=settings.may_fetch_from)
    clock = SteadyClock()
    runtime = Runtime(
        jobs=jobs,
        router=router,
        media=media,
        owner=worker.id,
        clock=clock,
        sleep=time.sleep,
        policy=Policy(),
        claim_seconds=settings.claim_seconds,
        download_claim_seconds=settings.download_claim_seconds,
        max_asset_bytes=settings.max_asset_bytes,
        first_read=FirstRead(),
        schemas={},
        sinks={},
        calls_per_second=settings.requests_per_second,
    )
    app = build_app(settings, lambda: runtime)
    app.watchers = Watchers(always=settings.task_events)
    upkeep = UpkeepStore(database, jobs)
    bury_the_dead(upkeep, host, clock())
    upkeep.set_clock_right(credential_id, clock())
    upkeep.look_now(credential_id, clock())
    if settings.one_core:
        keep_to_one_core([worker.pid for worker in upkeep.workers() if worker.host == host])
    sweeper = Sweeper(upkeep, worker, app.publisher, clock, only_batch, runtime.acting, _stop_worker)
    return Parts(app, runtime, sweeper, router, media)


def _stop_worker() -> None:
    """Let the worker of this process stop by itself, after the calls under way."""
    worker_state.should_stop = StoreError.exit_code


def bury_the_dead(upkeep: UpkeepStore, host: str, now: float) -> None:
    """Workers of this machine whose process is gone need not be waited for."""
    for worker in upkeep.workers():
        if worker.host == host and not is_running(worker.pid):
            upkeep.gone(worker.id, now)


class EmbeddedEngine:
    """A worker in threads of this process, on whatever broker the settings name.

    Use as a context manager: work goes on inside the block. Leaving it waits for the calls under way, as long as
    `LAST_CALLS`; what they had not finished is owed by the database. With `only_batch` it sends no other batch's jobs.
    """

    def __init__(
        self, settings: Settings, database: Database, credential_id: int, only_batch: str | None = None
    ) -> None:
        self.parts = assemble(settings, database, credential_id, settings.concurrency, only_batch)
        name = f"embedded@{socket.gethostname()}-{os.getpid()}"
        # As Celery's own worker command does: without it tasks are looked up in whatever application came first.
        setup_worker_optimizations(self.parts.app, name)
        self._ready = threading.Event()
        self._controller = WorkController(
            app=self.parts.app,
            hostname=name,
            concurrency=settings.concurrency,
            pool_cls="threads",
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=settings.broker_url is None,
            ready_callback=self._on_ready,
        )
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="worker", daemon=True)

    def _on_ready(self, consumer: Any) -> None:
        watch_with(self.parts.app, consumer)
        self._ready.set()

    def _work(self) -> None:
        try:
            self._controller.start()
        except BaseException as error:  # noqa: BLE001  # told to the thread that waits for the start
            self._failure = error
        finally:
            self._ready.set()

    def __enter__(self) -> Self:
        # Celery keeps these in the module, so that a second engine in one process would begin as stopped.
        worker_state.should_stop = None
        worker_state.should_terminate = None
        self._thread.start()
        if not self._ready.wait(PATIENCE) or self._failure is not None:
            raise BatchError(
                f"the worker does not start ({type(self._failure).__name__})", advice="comfy-batch doctor"
            ) from self._failure
        self.parts.sweeper.start()
        return self

    @property
    def alive(self) -> bool:
        """Whether the worker still works."""
        return self._thread.is_alive() and self.parts.sweeper.failure is None

    @property
    def failure(self) -> BatchError | None:
        """Why it does not work any more, where the user must mend something."""
        return self.parts.sweeper.failure

    def _wake_timer(self) -> None:
        # Celery's timer, where it waits for nothing, sees only once a second that it shall stop.
        timer = self._controller.timer
        if isinstance(timer, timer2.Timer):
            with timer.mutex:
                timer.not_empty.notify()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        worker_state.should_stop = 0
        # The worker looks up when a message comes, else every two seconds, and once more before it stops: two messages,
        # for a job that does not exist.
        self.parts.app.publisher.publish([Wake(0, Step.STATUS, "", 0)] * 2)
        join(self._thread, LAST_CALLS, meanwhile=self._wake_timer)
        if self._thread.is_alive():
            leave_behind()
        self.parts.sweeper.stop()
        self.parts.close()


def run_worker(settings: Settings, database: Database, credential_id: int, concurrency: int, name: str) -> int:
    """A worker in the foreground until SIGTERM or Ctrl-C; returns the exit status."""
    parts = assemble(settings, database, credential_id, concurrency)
    # It names a flag of Celery's own command, which is not the one that was typed.
    warnings.filterwarnings("ignore", message="You're running the worker with superuser", category=SecurityWarning)
    worker = parts.app.Worker(
        hostname=name,
        concurrency=concurrency,
        pool_cls="threads",
        without_gossip=True,
        without_mingle=True,
        loglevel=settings.log_level.upper(),
        quiet=True,
        ready_callback=lambda consumer: watch_with(parts.app, consumer),
    )
    last_calls = _LastCalls(parts)
    signals.worker_shutting_down.connect(last_calls.begin, weak=False)
    parts.sweeper.start()
    try:
        worker.start()
    finally:
        last_calls.ended()
        parts.sweeper.stop()
        parts.close()
    if parts.sweeper.failure is not None:
        raise parts.sweeper.failure
    return int(worker.exitcode or 0)


class _LastCalls:
    """Ends the process when the calls under way take longer than whoever stops it will wait: Celery waits for ever.

    What they had not finished is owed by the database, and freed at once.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._over = threading.Event()

    def begin(self, **_: object) -> None:
        """The worker was told to stop."""
        threading.Thread(target=self._wait, name="last-calls", daemon=True).start()

    def ended(self) -> None:
        """All calls have come to their end."""
        self._over.set()

    def _wait(self) -> None:
        if not self._over.wait(LAST_CALLS):
            self._parts.sweeper.stop()
            leave(0)
