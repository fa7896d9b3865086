"""Runs the simulator on a loopback port: in a thread for tests and `--simulate`, or in the foreground."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from runner.simulator.answers import CLOSE_EXTENSION
from runner.simulator.app import create_app
from runner.simulator.config import SimulatorConfig

_STOP_SECONDS = 10.0


class _ClosableProtocol(H11Protocol):
    """Lets the application close its own connection, which ASGI has no word for."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.app = self._with_close(self.app)

    def _with_close(self, app: Any) -> Any:
        async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
            scope["extensions"] = scope.get("extensions", {}) | {CLOSE_EXTENSION: self._close}
            await app(scope, receive, send)

        return wrapped

    def _close(self, flush: bool) -> None:
        if flush:
            self.transport.close()
        else:
            self.transport.abort()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_started()


def _listen(config: SimulatorConfig) -> socket.socket:
    """A listening socket, so that a call can be made from the moment the address is known."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    # asyncio turns Nagle's delay off only for sockets that name their protocol.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((config.host, config.port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        where = f"{config.host}:{config.port}"
        raise OSError(error.errno, f"the simulator cannot listen on {where}: {error.strerror}") from error
    return listener


def _base_url(config: SimulatorConfig, listener: socket.socket) -> str:
    host = f"[{config.host}]" if ":" in config.host else config.host
    return f"http://{host}:{listener.getsockname()[1]}"


def _uvicorn_config(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="asyncio",
        http=_ClosableProtocol,
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,
        # A connection that ends while a client is about to use it is a fault to ask for, not to meet by chance.
        timeout_keep_alive=75,
    )


class SimulatorServer:
    """A simulator in a thread of this process. Use it as a context manager."""

    def __init__(self, config: SimulatorConfig, clock: Callable[[], float] = time.time) -> None:
        self._config = config
        self._clock = clock
        self._listener: socket.socket | None = None
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None
        self._base_url = ""

    @property
    def base_url(self) -> str:
        """Where it answers, such as `http://127.0.0.1:8123`; empty before it was started."""
        return self._base_url

    def start(self) -> Self:
        """Begin to answer; raises `OSError` where the port is taken."""
        if self._thread is not None:
            raise RuntimeError("this simulator is running already")
        self._listener = _listen(self._config)
        try:
            app = create_app(self._config, self._clock)
        except BaseException:
            self._listener.close()
            raise
        self._base_url = _base_url(self._config, self._listener)
        started = threading.Event()
        self._server = _Server(_uvicorn_config(app), started.set)
        self._thread = threading.Thread(
            target=self._run, args=(self._server, self._listener, app), name="simulator", daemon=True
        )
        self._thread.start()
        if not started.wait(_STOP_SECONDS):
            raise RuntimeError("the simulator did not start")
        return self

    @staticmethod
    def _run(server: _Server, listener: socket.socket, app: Any) -> None:
        try:
            server.run(sockets=[listener])
        finally:
            listener.close()
            app.state.simulator.close()

    def stop(self) -> None:
        """Stop answering; what a journal holds stays."""
        if self._server is None or self._thread is None:
            return
        self._server.should_exit = True
        self._thread.join(_STOP_SECONDS)
        self._server = self._thread = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def serve(config: SimulatorConfig, on_ready: Callable[[str], None]) -> None:
    """Answer in the foreground until interrupted; says where through `on_ready` and prints nothing."""
    listener = _listen(config)
    try:
        app = create_app(config)
        base_url = _base_url(config, listener)
        server = _Server(_uvicorn_config(app), lambda: on_ready(base_url))
        try:
            # Ctrl-C is how this ends.
            with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
                server.run(sockets=[listener])
        finally:
            app.state.simulator.close()
    finally:
        listener.close()
