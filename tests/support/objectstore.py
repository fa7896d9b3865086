"""A real S3 server on this machine, and an environment that leads to it."""

from __future__ import annotations

import logging
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

BUCKET = "pictures"


@dataclass(frozen=True)
class ObjectStore:
    """A bucket, and what stands in it."""

    endpoint: str
    address: str = f"s3://{BUCKET}"

    def _store(self) -> Any:
        from obstore.store import from_url

        return from_url(self.address)

    def get(self, url: str) -> bytes:
        """The bytes of an object by its whole address."""
        import obstore

        assert url.startswith(f"{self.address}/")
        return bytes(obstore.get(self._store(), url.removeprefix(f"{self.address}/")).bytes())

    def put(self, name: str, content: bytes) -> None:
        """Write an object as somebody else would."""
        import obstore

        obstore.put(self._store(), name, content)

    def names(self) -> list[str]:
        """Every object's name."""
        import obstore

        return sorted(found["path"] for page in obstore.list(self._store()) for found in page)

    def content_type(self, name: str) -> str:
        """What an object says that it is."""
        import obstore

        return str(obstore.get(self._store(), name, options={"head": True}).attributes.get("Content-Type"))


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The address of the server."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def object_store(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """An empty bucket, which the variables of this process lead to."""
    lead_to(monkeypatch, s3_server)
    _call(s3_server, "POST", "/moto-api/reset")
    _call(s3_server, "PUT", f"/{BUCKET}")
    return ObjectStore(s3_server)


def lead_to(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    """Let S3 be there, as a user would."""
    variables = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret-of-the-store",
        "AWS_REGION": "us-east-1",
        # A proxy of the machine is no way to the machine itself.
        "NO_PROXY": "127.0.0.1,localhost",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def _call(endpoint: str, method: str, path: str) -> None:
    request = urllib.request.Request(f"{endpoint}{path}", method=method)
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as answer:
        assert answer.status == 200
