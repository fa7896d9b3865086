"""The Celery application: a task for each step, each the wrapping of one step."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from celery import Celery
from celery.utils import uuid
from kombu.exceptions import KombuError

from config.celery import COLLECT_QUEUE, SUBMIT_QUEUE, celery_config, keep_logging_as_it_is
from config.settings import Settings
from runner.core.boundaries import reach
from runner.core.errors import BatchError, StoreError
from runner.core.types import Step
from runner.store.records import Wake
from tasks.steps import STEPS, Runtime

_log = logging.getLogger("comfy_batch.tasks")


class BrokerUnusable(BatchError):
    """The broker cannot be reached; what is owed stands in the database."""

    exit_code = 3


TASK_NAMES: Mapping[Step, str] = {
    Step.SUBMIT: "comfy.submit",
    Step.COLLECT: "comfy.collect",
    Step.STATUS: "comfy.status",
    Step.CANCEL: "comfy.cancel",
    Step.FETCH: "comfy.fetch",
}

#: What Flower shows of a task that waits for its time.
_WAITING: Mapping[Step, str] = {
    Step.SUBMIT: "task-submitting",
    Step.COLLECT: "task-polling",
    Step.STATUS: "task-polling",
    Step.CANCEL: "task-polling",
    Step.FETCH: "task-downloading",
}


class Publisher:
    """Sends wake-ups. A broker that refuses is no harm: the database knows what is due, and the sweeper asks again."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        #: The worker's own dispatcher of events, once there is a worker.
        self.events: Any = None

    def publish(self, wakes: Iterable[Wake]) -> int:
        """Send a message for each of `wakes`; returns how many the broker took."""
        sent = 0
        pending = list(wakes)
        if not pending:
            return sent
        try:
            with self._app.producer_pool.acquire(block=True) as producer:
                for wake in pending:
                    self._send(wake, producer)
                    sent += 1
        except (KombuError, OSError) as error:
            _log.warning("the broker took %d of %d messages (%s)", sent, len(pending), type(error).__name__)
        except Exception as error:  # noqa: BLE001  # each transport raises errors of its own library
            _log.warning("the broker took %d of %d messages (%s)", sent, len(pending), type(error).__name__)
        return sent

    def _send(self, wake: Wake, producer: Any) -> None:
        # Ids, and what people need to find a row in Flower: no key, no prompt, no link.
        arguments: dict[str, object] = {"batch": wake.batch, "row": wake.row, "job": wake.job_id}
        if wake.queue_position is not None:
            arguments["queue_position"] = wake.queue_position
        task_id = uuid()
        reach("before publish", wake.step)
        self._app.send_task(
            TASK_NAMES[wake.step],
            task_id=task_id,
            kwargs=arguments,
            countdown=wake.delay or None,
            queue=SUBMIT_QUEUE if wake.step is Step.SUBMIT else COLLECT_QUEUE,
            producer=producer,
        )
        reach("after publish", wake.step)
        self._tell_flower(wake, task_id)

    def _tell_flower(self, wake: Wake, task_id: str) -> None:
        """Names what the new task waits for, where somebody watches."""
        # A dispatcher without groups tells everything; one that nobody listens to tells of workers only.
        if self.events is not None and self.events.enabled and ("task" in self.events.groups or not self.events.groups):
            self.events.send(_WAITING[wake.step], uuid=task_id, batch=wake.batch, row=wake.row)


def build_app(settings: Settings, runtime: Callable[[], Runtime]) -> Celery:
    """The application for these settings. `runtime` is asked for when a task runs, not before: a client that only
    publishes has none."""
    keep_logging_as_it_is()
    app = Celery("comfy-batch", set_as_current=False)
    app.conf.update(celery_config(settings))
    publisher = Publisher(app)
    for step in STEPS:
        _register(app, step, runtime, publisher)
    app.publisher = publisher
    app.finalize()
    return app


def _register(app: Celery, step: Step, runtime: Callable[[], Runtime], publisher: Publisher) -> None:
    run = STEPS[step]

    def task(job: int, batch: str, row: int, queue_position: int | None = None) -> None:
        mine = runtime()
        try:
            with mine.acting.on(job):
                wakes = run(mine, job)
        except StoreError as error:
            # Whatever was begun is owed by the database, and found when it works again.
            _log.warning("job %s: %s", job, error.message)
        else:
            publisher.publish(wakes)

    # Celery otherwise gives the task to every application of the process, also to one that only publishes.
    app.task(task, name=TASK_NAMES[step], ignore_result=True, max_retries=0, shared=False)


def build_client(settings: Settings) -> Celery:
    """An application that only publishes."""
    return build_app(settings, _no_runtime)


def _no_runtime() -> Runtime:
    raise RuntimeError("a client runs no tasks")


def ping_workers(app: Celery, timeout: float, expected: int | None = None) -> int:
    """How many workers answer on the broker within `timeout` seconds; more than `expected` are not waited for.

    Raises `BrokerUnusable` when the broker cannot be reached.
    """
    try:
        with app.connection_for_write() as connection:
            connection.ensure_connection(max_retries=1, interval_start=0.2, timeout=5)
            return len(app.control.ping(timeout=timeout, connection=connection, limit=expected) or [])
    except Exception as error:  # each transport raises errors of its own library
        raise BrokerUnusable(
            f"the broker of COMFY_BATCH_BROKER_URL cannot be reached ({type(error).__name__})",
            advice="start it, or unset COMFY_BATCH_BROKER_URL to work without one",
        ) from error
