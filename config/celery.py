"""What Celery is told. The reasons stand beside each setting; the database owns every retry, so Celery owns none."""

from __future__ import annotations

from typing import Any

from celery import signals
from kombu import Queue

from config.settings import REDIS, Settings

#: Links die, so what is collected and downloaded goes before what is submitted.
COLLECT_QUEUE = "comfy-collect"
SUBMIT_QUEUE = "comfy-submit"

#: Message transport within one process.
EMBEDDED_BROKER = "memory://localhost/"


def celery_config(settings: Settings) -> dict[str, Any]:
    """Celery's configuration for the engine that the settings choose."""
    broker = settings.broker_url or EMBEDDED_BROKER
    return {
        "broker_url": broker,
        "broker_transport_options": _transport_options(broker, settings.visibility_timeout),
        "broker_connection_retry_on_startup": True,
        # A broker may be away for as long as it likes; the database keeps what is owed.
        "broker_connection_max_retries": None,
        # Left unanswered, a publish would wait for ever; the sweeper publishes again in any case.
        "task_publish_retry_policy": {"max_retries": 1, "interval_start": 0.2, "interval_step": 0, "interval_max": 0.2},
        "task_ignore_result": True,
        "task_acks_late": True,
        "task_reject_on_worker_lost": True,
        "worker_prefetch_multiplier": 1,
        # While Celery's timer sleeps until one poll is due it does not see a sooner one that came meanwhile, so it
        # shall not sleep for long.
        "worker_timer_precision": 0.05,
        "worker_send_task_events": settings.task_events,
        "task_send_sent_event": False,
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
        "worker_enable_remote_control": settings.broker_url is not None,
        "task_queues": [Queue(COLLECT_QUEUE), Queue(SUBMIT_QUEUE)],
        "task_default_queue": COLLECT_QUEUE,
        "task_create_missing_queues": False,
        "accept_content": ["json"],
        "task_serializer": "json",
        "result_serializer": "json",
        "event_serializer": "json",
        "enable_utc": True,
    }


def _transport_options(broker: str, visibility_timeout: float | None) -> dict[str, Any]:
    if broker.startswith("memory:"):
        # The default is a second of silence between looks.
        return {"polling_interval": 0.005}
    if broker.startswith(REDIS):
        # A message that a dead worker held is owed by the database anyway; without acknowledgements Redis does not
        # hand one out twice, and does 2.7 times the work.
        acks: dict[str, Any] = {"ack_emulation": False}
        if visibility_timeout is not None:
            acks = {"ack_emulation": True, "visibility_timeout": visibility_timeout}
        return {
            **acks,
            "queue_order_strategy": "priority",
            "socket_timeout": 10,
            "socket_connect_timeout": 5,
            "socket_keepalive": True,
            "health_check_interval": 10,
        }
    return {}


def keep_logging_as_it_is() -> None:
    """Celery shall not set up logging of its own: the commands do."""
    signals.setup_logging.connect(_leave_logging, weak=False)


def _leave_logging(**_: Any) -> None:
    return None
