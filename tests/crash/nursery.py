"""Starts the command in processes that are forked from a warm one, since importing it takes longer than most cases do.

`python -m tests.crash.nursery SOCKET` is the warm process. Each connection to it starts one program and lasts as long
as the program does: a line of JSON says what to start, a line each comes back with its pid and its exit status, and
what is sent in between are numbers of signals for it. A connection that is closed early kills the program.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import sys
import threading
from typing import Any, NoReturn

from tests.crash.watchers import watching

#: Imported before the first fork; below these, every module. Beyond ours, what the programs load when they need it.
_PACKAGES = ("runner", "tasks", "config")
_MODULES = (
    "_strptime",
    "alembic.command",
    "alembic.config",
    "billiard.connection",
    "billiard.pool",
    "celery.app.amqp",
    "celery.app.control",
    "celery.app.events",
    "celery.app.log",
    "celery.app.routes",
    "celery.apps.worker",
    "celery.backends.base",
    "celery.concurrency.thread",
    "celery.events",
    "celery.fixups.django",
    "celery.worker.autoscale",
    "celery.worker.consumer",
    "celery.worker.consumer.delayed_delivery",
    "celery.worker.strategy",
    "certifi",
    "encodings.idna",
    "httpcore",
    "kombu.matcher",
    "kombu.mixins",
    "kombu.pidbox",
    "kombu.transport.memory",
    "kombu.transport.redis",
    "psycopg",
    "rich.live",
    "rich.status",
    "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.dialects.sqlite",
    "uvicorn",
)
#: Modules of ours that do something when they are imported.
_NOT_TO_IMPORT = ("runner.__main__", "runner.store.migrations")


def _warm() -> None:
    for name in _PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            if not module.name.startswith(_NOT_TO_IMPORT):
                importlib.import_module(module.name)
    for name in _MODULES:
        importlib.import_module(name)
    # A fork copies only the thread that asks for it; a lock that another held would stay held.
    assert threading.active_count() == 1
    # Nothing of it is garbage, and a collection in a child would copy every page it looks at.
    gc.collect()
    gc.freeze()


def _serve(path: str) -> None:
    """Fork an attendant for each connection until standard input ends. Returns in programs only, or at the end."""
    # Attendants are nobody's business once they have ended.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen(64)
        print("ready", flush=True)  # noqa: T201  # what the parent waits for
        while True:
            readable, _, _ = select.select([listener, sys.stdin], [], [])
            if sys.stdin in readable:
                return
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _attend(connection)
                return
            connection.close()


def _attend(connection: socket.socket) -> None:
    """Start the program that the connection asks for and see it to its end. Returns in the program only."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    order = json.loads(connection.makefile("rb").readline())
    # Its reading end is at the end of the file as soon as the program is dead.
    alive, held = os.pipe()
    pid = os.fork()
    if pid == 0:
        connection.close()
        os.close(alive)
        _become(order)
        return
    os.close(held)
    connection.sendall(f"{pid}\n".encode())
    _see_to_its_end(connection, pid, alive)


def _see_to_its_end(connection: socket.socket, pid: int, alive: int) -> NoReturn:
    watched: list[Any] = [connection, alive]
    while alive not in (readable := select.select(watched, [], [])[0]):
        assert connection in readable
        told = connection.recv(1)
        # Not waited for yet, so the pid is still this program's.
        os.kill(pid, told[0] if told else signal.SIGKILL)
        if not told:
            watched.remove(connection)
    _, status = os.waitpid(pid, 0)
    if connection in watched:
        connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _become(order: dict[str, Any]) -> None:
    """Let this process be the ordered program, as if it had just been started by a shell."""
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["folder"])
    streams = (
        (0, order.get("in", os.devnull), os.O_RDONLY),
        (1, order["out"], os.O_WRONLY),
        (2, order["err"], os.O_WRONLY),
    )
    for number, path, mode in streams:
        opened = os.open(path, mode | os.O_CREAT, 0o644)
        os.dup2(opened, number)
        os.close(opened)
    sys.argv[:] = ["comfy-batch", *order["arguments"]]
    _programs.append(order)


#: What this process was told to be, once it has been forked for that.
_programs: list[dict[str, Any]] = []


def main() -> None:
    """The warm process, and after a fork the program, which ends as it does anywhere else."""
    _warm()
    _serve(sys.argv[1])
    if _programs:
        from runner.cli.main import main as command

        with watching(_programs[0]):
            command()


if __name__ == "__main__":
    main()
