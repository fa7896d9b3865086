"""A RabbitMQ server: one that is given, one that answers where they usually listen, or one of the session's own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from kombu import Connection

from config.celery import COLLECT_QUEUE, SUBMIT_QUEUE
from tests.support.programs import end, not_tested
from tests.support.redis import free_port

#: Names the server to use. Tests empty this program's queues there.
VARIABLE = "COMFY_BATCH_TEST_RABBITMQ_URL"
_USUAL = "amqp://guest:guest@127.0.0.1:5672//"
#: How long a server of one's own may take to start, in seconds.
PATIENCE = 60.0


@pytest.fixture
def rabbitmq_url() -> Iterator[str]:
    """The address of a RabbitMQ server with nothing in this program's queues, or no test."""
    given = os.environ.get(VARIABLE) or (_USUAL if _answers(_USUAL) else None)
    if given is not None:
        _empty(given)
        yield given
        _empty(given)
        return
    program = _program()
    if program is None:
        not_tested("RabbitMQ", f"{VARIABLE} is not set, none answers on port 5672, and no rabbitmq-server was found")
    yield from _own(program)


def _program() -> str | None:
    # The command of some packages lets only the user of the system's own server run it, and hides what it says.
    return shutil.which("rabbitmq-server", path="/usr/lib/rabbitmq/bin") or shutil.which("rabbitmq-server")


def _own(program: str) -> Iterator[str]:
    port = free_port()
    url = f"amqp://guest:guest@127.0.0.1:{port}//"
    with tempfile.TemporaryDirectory(prefix="cb-rabbitmq-") as folder:
        settings = Path(folder) / "rabbitmq.conf"
        settings.write_text(f"listeners.tcp.default = 127.0.0.1:{port}\n", encoding="utf-8")
        environment = os.environ | {
            "HOME": folder,
            # The system's own server may have settings for all, among them its port and its name.
            "RABBITMQ_CONFIG_FILE": str(settings),
            "RABBITMQ_CONF_ENV_FILE": str(Path(folder) / "none"),
            "RABBITMQ_NODENAME": f"cb{port}@localhost",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(Path(folder) / "data"),
            "RABBITMQ_LOG_BASE": str(Path(folder) / "log"),
            "RABBITMQ_PID_FILE": str(Path(folder) / "pid"),
        }
        process = subprocess.Popen(
            [program],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            deadline = time.monotonic() + PATIENCE
            while not _answers(url):
                if process.poll() is not None or time.monotonic() > deadline:
                    not_tested("RabbitMQ", "a private server does not start")
            yield url
        finally:
            end(process)
            # What was started is a script; the server that it started may outlive it.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _answers(url: str) -> bool:
    try:
        with Connection(url, connect_timeout=1) as connection:
            connection.ensure_connection(max_retries=1, interval_start=0.1, timeout=2)
            return True
    except Exception:  # noqa: BLE001  # whatever it raises, there is none
        return False


def _empty(url: str) -> None:
    with Connection(url) as connection, connection.channel() as channel:
        for name in (SUBMIT_QUEUE, COLLECT_QUEUE):
            channel.queue_delete(name)
