"""Media hosts that keep what runs made for a while, and a sink that keeps files in memory."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from runner.assets.base import Inspection, KeepsNoParts, Saved, document_type
from runner.core.errors import DiskError
from runner.core.ranges import Begun
from runner.router.media import MediaInterrupted, MediaReply
from tests.simulation.world import Violation, World

_NOTHING: Mapping[str, str] = {}

_SIGNATURE = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"


def picture(owner: str, number: int) -> bytes:
    """The bytes of one media file, which nobody else's are."""
    return _SIGNATURE + f"{owner} {number} ".encode() * 8


@dataclass(frozen=True, slots=True)
class _Link:
    content: bytes
    dies_at: float


class MediaModel:
    """Every media host."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._links: dict[str, _Link] = {}

    def publish(self, content: bytes, name: str, life: float) -> str:
        """A link to a file, which lives for a while."""
        url = f"https://media.invalid/{name}.png?until={self._world.now + life:.3f}"
        self._links.setdefault(url, _Link(content, self._world.now + life))
        return url

    @contextmanager
    def download(self, url: str, headers: Mapping[str, str] = _NOTHING) -> Iterator[MediaReply]:
        """See `MediaHost.download`."""
        world = self._world
        if url not in self._links:
            raise Violation(f"a link was followed that no result holds: {url}")
        link = self._links[url]
        world.sleep(world.rng.uniform(0.01, 0.5))
        yield self._reply(link)

    def _reply(self, link: _Link) -> MediaReply:
        world = self._world
        if world.now >= link.dies_at or world.strikes("link dead"):
            return MediaReply(403, {}, iter([b"expired"]))
        if world.strikes("media host fails"):
            status = world.rng.choice((429, 500, 503, 200))
            headers = {"content-type": "text/html", "retry-after": str(world.rng.randint(1, 9))}
            return MediaReply(status, headers, iter([b"<!doctype html><html><body>busy</body></html>"]))
        headers = {"content-type": "image/png", "content-length": str(len(link.content))}
        return MediaReply(200, headers, self._chunks(link.content, breaks=world.strikes("download breaks")))

    def _chunks(self, content: bytes, *, breaks: bool) -> Iterator[bytes]:
        half = len(content) // 2
        yield content[:half]
        self._world.sleep(0.05)
        if breaks:
            if self._world.rng.random() < 0.5:
                raise MediaInterrupted("the download failed (ReadError)")
            return
        yield content[half:]


class MemorySink(KeepsNoParts):
    """Keeps each file whole under its name, or not at all."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.files: dict[str, bytes] = {}

    def save(
        self,
        stem: str,
        chunks: Iterable[bytes],
        *,
        declared_type: str | None = None,
        url: str | None = None,
        expected_size: int | None = None,
        limit: int | None = None,
        validator: str | None = None,
        begun: Begun | None = None,
    ) -> Saved:
        """See `AssetSink.save`."""
        inspection = Inspection(chunks, declared_type=declared_type, url=url, expected_size=expected_size, limit=limit)
        content = b"".join(inspection)
        kind = inspection.file_type()
        return inspection.kept(kind, path=self._put(f"{stem}.{kind.extension}", content))

    def save_document(self, stem: str, body: bytes, content_type: str) -> Saved:
        """See `AssetSink.save_document`."""
        kind = document_type(body, content_type)
        path = self._put(f"{stem}.{kind.extension}", body)
        return Saved(path, len(body), hashlib.sha256(body).hexdigest(), kind.media_type, kind.extension)

    def _put(self, name: str, content: bytes) -> str:
        if self._world.strikes("disk full"):
            raise DiskError(f"cannot write {name}: {errno.errorcode[errno.ENOSPC]}", advice="free some space")
        self._world.boundary("before rename")
        self.files[name] = content
        self._world.boundary("after rename")
        return name
