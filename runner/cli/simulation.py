"""The bundled simulator beside a run: its memory is kept in the home folder, so that a crash does not empty it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from config.settings import is_loopback
from runner.cli.context import SIMULATED
from runner.cli.output import err
from runner.core.errors import UsageError
from runner.core.wire import HttpRequest, HttpResponse
from runner.router.client import RouterClient


@contextmanager
def simulated_router(home: Path) -> Iterator[str]:
    """The base URL of a simulator: one that runs already for this home, or one started for the block."""
    folder = home / "simulator"
    folder.mkdir(parents=True, exist_ok=True)
    remembered = folder / "address"
    address = remembered.read_text().strip() if remembered.exists() else ""
    if address and _answers(address):
        yield address
        return
    with _started(folder, _port_of(address)) as base_url:
        remembered.write_text(base_url)
        yield base_url


@contextmanager
def _started(folder: Path, port: int) -> Iterator[str]:
    from runner.simulator.config import SimulatorConfig
    from runner.simulator.server import SimulatorServer

    # The same port again, so that the links of an earlier run still lead somewhere; any other if that is taken.
    if port and not _is_free(port):
        port = 0
    with SimulatorServer(SimulatorConfig(port=port, journal=folder / "journal.jsonl")) as server:
        yield server.base_url


def _answers(address: str) -> bool:
    with contextlib.closing(RouterClient(address, SIMULATED, timeout=2.0)) as client:
        reply = client.exchange(HttpRequest("GET", f"{address}/_simulator/ledger?summary=1"))
        return isinstance(reply, HttpResponse) and reply.status == 200


def _port_of(address: str) -> int:
    return urlsplit(address).port or 0 if address else 0


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def serve_in_foreground(
    *,
    host: str,
    port: int,
    duration: float | None,
    concurrency: int,
    backlog: int,
    retention: float,
    link_lifetime: float,
    journal: Path | None,
    faults: Sequence[str],
) -> None:
    """Run the simulator until Ctrl-C. Raises `UsageError` for an unknown fault, or an address that is not loopback."""
    from runner.simulator.config import SimulatorConfig
    from runner.simulator.faults import parse_faults
    from runner.simulator.server import serve

    if not is_loopback(host):
        raise UsageError(f"the simulator listens on this machine only, not on {host}", advice="--host 127.0.0.1")
    try:
        plan = parse_faults(list(faults))
    except ValueError as error:
        raise UsageError(str(error), advice="see docs/simulator.md") from None
    config = SimulatorConfig(
        host=host,
        port=port,
        duration=duration,
        concurrency=concurrency,
        backlog=backlog,
        retention=retention,
        link_lifetime=link_lifetime,
        journal=journal,
        faults=plan,
    )
    try:
        serve(config, lambda base_url: err.print(f"Simulator at {base_url}; ledger at {base_url}/_simulator/ledger"))
    except OSError as error:
        raise UsageError(
            f"port {port} cannot be used: {error.strerror or error}", advice="--port 0 takes a free one"
        ) from error
