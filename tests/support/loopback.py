"""A host on this machine that answers with whatever bytes a test wants, or breaks off where it wants."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

Answer = Callable[[socket.socket], None]


def sends(*pieces: bytes) -> Answer:
    """Answers with these bytes and closes the connection."""

    def answer(connection: socket.socket) -> None:
        for piece in pieces:
            connection.sendall(piece)

    return answer


def response(body: bytes = b"", *, status: str = "200 OK", length: int | None = None, headers: str = "") -> bytes:
    """The bytes of an HTTP/1.1 answer; `length` is what it claims, by default the truth."""
    claimed = len(body) if length is None else length
    return f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {claimed}\r\n{headers}\r\n".encode() + body


@dataclass
class Host:
    """Answers each connection's one request with the next of `answers`, or with the last again."""

    answers: list[Answer] = field(default_factory=list)
    #: Requests as they came, head and body.
    requests: list[bytes] = field(default_factory=list)
    port: int = 0
    #: Set once a request has come.
    asked: threading.Event = field(default_factory=threading.Event)
    #: Set to let go a connection that an answer holds open.
    released: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    def stalls_after(self, start: bytes) -> Answer:
        """Sends `start`, then nothing while the test lasts."""

        def answer(connection: socket.socket) -> None:
            connection.sendall(start)
            self.released.wait(20)

        return answer

    def serve(self, connection: socket.socket) -> None:
        """Read one request, keep it, and answer."""
        with connection:
            connection.settimeout(20)
            request = _read_request(connection)
            if request:
                self.requests.append(request)
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                self.asked.set()
                answer(connection)


def _read_request(connection: socket.socket) -> bytes:
    received = b""
    while b"\r\n\r\n" not in received:
        piece = connection.recv(65536)
        if not piece:
            return b""
        received += piece
    head, _, body = received.partition(b"\r\n\r\n")
    lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    while len(body) < (int(lengths[0]) if lengths else 0):
        piece = connection.recv(65536)
        if not piece:
            break
        body += piece
    return head + b"\r\n\r\n" + body


@pytest.fixture
def loopback_host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """A host of the test's own."""
    yield from _run_host(monkeypatch)


@pytest.fixture
def other_host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """A second host, at another origin than the first."""
    yield from _run_host(monkeypatch)


def _run_host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    # A proxy of the machine is no way to the machine itself.
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    host = Host()
    threads: list[threading.Thread] = []

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=host.serve, args=(connection,), daemon=True)
            threads.append(thread)
            thread.start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        host.port = listener.getsockname()[1]
        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        yield host
        host.released.set()
        # Closing alone does not wake a thread that waits in accept().
        listener.shutdown(socket.SHUT_RDWR)
    accepting.join(10)
    for thread in threads:
        thread.join(10)
