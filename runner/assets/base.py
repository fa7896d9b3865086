"""What keeps media bytes, and the checks that every keeper makes while they pass."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from runner.core.filetypes import HEAD_BYTES, FileType, choose_type, looks_like_error_page
from runner.core.ranges import Begun


class AssetFault(Exception):
    """Bytes that came are not the media file. `reason` is a sentence without the link."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class AssetRejected(AssetFault):
    """Something else came where media was expected: the link is dead and must be read again."""


class AssetTooLarge(AssetRejected):
    """More bytes than the limit allows: no fresh link will help."""


class AssetCut(AssetFault):
    """The bytes ended early, or none came: the same link is worth another try."""


@dataclass(frozen=True, slots=True)
class Saved:
    """One file that is kept."""

    #: Absolute; `None` when the bytes are kept in the database.
    path: str | None
    #: Bytes.
    size: int
    #: Hexadecimal, of the bytes as kept.
    sha256: str
    media_type: str
    #: Without the dot.
    extension: str
    #: The bytes are something else than was declared.
    mismatch: bool = False
    #: The bytes themselves where there is no path.
    content: bytes | None = None


class AssetSink(Protocol):
    """A place that keeps media files."""

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
        """Keep a stream of bytes as one file, whole or not at all.

        `stem` is the file's name without an extension, which comes from the bytes, perhaps below folders (`a/b`);
        `declared_type` and `url` are used where they say nothing. `expected_size` is how many bytes must come, `limit`
        how many may. Raises AssetRejected, AssetTooLarge or AssetCut, and DiskError when the place is at fault; what
        `chunks` raises passes through. After any of them nothing is left behind, but for the beginning of a file that
        came under a `validator` and broke off: that one `begun` gives, and the rest of it can be saved with it.
        """
        ...

    def begun(self, stem: str) -> Begun | None:
        """What is there of a file that broke off."""
        ...

    def discard(self, stem: str) -> None:
        """Let go of what is there of a file that broke off."""
        ...

    def save_document(self, stem: str, body: bytes, content_type: str) -> Saved:
        """Keep a result that holds no media, whatever it is. Raises DiskError when the place is at fault."""
        ...


def check_stem(stem: str) -> str:
    """The stem itself. Raises `ValueError` for one that is no plain name, or plain names parted by `/`."""
    if "\0" in stem or "\\" in stem or any(part in {"", ".", ".."} for part in stem.split("/")):
        raise ValueError("a stem is a plain file name, perhaps below plain folders")
    return stem


class KeepsNoParts:
    """A place where a file that broke off leaves nothing to go on with."""

    def begun(self, stem: str) -> Begun | None:
        """See `AssetSink.begun`."""
        return None

    def discard(self, stem: str) -> None:
        """See `AssetSink.discard`."""


class Inspection:
    """Passes chunks on while it measures, hashes and checks them.

    Iterate to the end, then ask `kept` what it was. Raises while iterating: AssetTooLarge as soon as more came than
    may, AssetRejected as soon as the beginning shows an error page, AssetCut at the end.
    """

    def __init__(
        self,
        chunks: Iterable[bytes],
        *,
        declared_type: str | None,
        url: str | None,
        expected_size: int | None,
        limit: int | None,
    ) -> None:
        self._chunks = chunks
        self._declared = declared_type
        self._url = url
        self._expected = expected_size
        self._limit = limit
        self._hash = hashlib.sha256()
        self._head = b""
        self._size = 0

    def __iter__(self) -> Iterator[bytes]:
        """The chunks, unchanged."""
        looked = False
        for chunk in self._chunks:
            if not chunk:
                continue
            self._size += len(chunk)
            if self._limit is not None and self._size > self._limit:
                raise AssetTooLarge(f"more than the {self._limit:,} bytes allowed for one media file")
            self._hash.update(chunk)
            self._head += chunk[: HEAD_BYTES - len(self._head)]
            if not looked and len(self._head) == HEAD_BYTES:
                looked = True
                self._look()
            yield chunk
        self._finish(looked)

    def _finish(self, looked: bool) -> None:
        # Length first: half an answer says nothing about what the whole would have been.
        if self._expected is not None and self._size != self._expected:
            raise AssetCut(f"{self._size:,} bytes came where {self._expected:,} were announced")
        if not self._size:
            raise AssetCut("an answer without a single byte")
        if not looked:
            self._look()

    def _look(self) -> None:
        if looks_like_error_page(self._head, self._declared):
            found = choose_type(self._head, self._declared)
            raise AssetRejected(f"not media but a document of type {found.media_type}")

    def file_type(self) -> FileType:
        """What the bytes are, as far as they were seen."""
        return choose_type(self._head, self._declared, self._url)

    def kept(self, kind: FileType, *, path: str | None = None, content: bytes | None = None) -> Saved:
        """The record of the whole file."""
        return Saved(
            path=path,
            size=self._size,
            sha256=self._hash.hexdigest(),
            media_type=kind.media_type,
            extension=kind.extension,
            mismatch=kind.mismatch,
            content=content,
        )


def document_type(body: bytes, content_type: str) -> FileType:
    """What to call a result that holds no media: as it was declared, `json` where it was not."""
    found = choose_type(b"", content_type)
    if found.extension != "bin":
        return found
    if "json" in content_type or (not content_type and body[:64].lstrip()[:1] in (b"{", b"[")):
        return FileType("application/json", "json")
    return FileType("text/plain", "txt") if content_type.startswith("text/") else choose_type(body, content_type)
