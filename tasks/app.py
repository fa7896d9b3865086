"""The Celery application: four tasks, each the wrapping of one step."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from celery import Celery, Task
from kombu.exceptions import KombuError

from config.celery import COLLECT_QUEUE, SUBMIT_QUEUE, celery_config, keep_logging_as_it_is
from config.settings import Settings
from runner.core.types import Step
from runner.store.records import Wake
from tasks.steps import STEPS, Runtime

_log = logging.getLogger("comfy_batch.tasks")

TASK_NAMES: Mapping[Step, str] = {
    Step.SUBMIT: "comfy.submit",
    Step.COLLECT: "comfy.collect",
    Step.STATUS: "comfy.status",
    Step.FETCH: "comfy.fetch",
}

#: What Flower shows of a job between two tasks of it.
_STATE_EVENTS: Mapping[Step, str] = {
    Step.COLLECT: "task-polling",
    Step.STATUS: "task-polling",
    Step.FETCH: "task-downloading",
}


class Publisher:
    """Sends wake-ups. A broker that refuses is no harm: the database knows what is due, and the sweeper asks again."""

    def __init__(self, app: Celery) -> None:
        self._app = app

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
        self._app.send_task(
            TASK_NAMES[wake.step],
            kwargs=arguments,
            countdown=wake.delay or None,
            queue=SUBMIT_QUEUE if wake.step is Step.SUBMIT else COLLECT_QUEUE,
            producer=producer,
        )


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

    def task(self: Task, job: int, batch: str, row: int, queue_position: int | None = None) -> None:
        wakes = run(runtime(), job)
        if app.conf.worker_send_task_events or _is_watched(self):
            _tell_flower(self, wakes, job)
        publisher.publish(wakes)

    app.task(task, bind=True, name=TASK_NAMES[step], ignore_result=True, max_retries=0)


def _is_watched(task: Task) -> bool:
    dispatcher = task.app.events.default_dispatcher
    return bool(dispatcher and getattr(dispatcher, "enabled", False))


def _tell_flower(task: Task, wakes: Iterable[Wake], job: int) -> None:
    """Names the state in which this task leaves its job, so that a watcher sees more than "succeeded"."""
    for wake in wakes:
        if wake.job_id == job and wake.step in _STATE_EVENTS:
            task.send_event(
                _STATE_EVENTS[wake.step], queue_position=wake.queue_position, batch=wake.batch, row=wake.row
            )
