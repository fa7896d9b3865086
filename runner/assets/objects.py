"""Media kept in an object store: S3 and what speaks like it, Google Cloud Storage, Azure."""

from __future__ import annotations

import hashlib
import io
import tempfile
from collections.abc import Iterable, Iterator
from itertools import count
from secrets import token_hex
from typing import IO, Any

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    GenericError,
    NotFoundError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from obstore.store import from_url

from runner.assets.base import Inspection, KeepsNoParts, Saved, check_stem, document_type
from runner.core.errors import DiskError, SettingsError
from runner.core.filetypes import FileType
from runner.core.ranges import Begun

#: A file is collected before it is sent: its hash goes with it. Up to so many bytes in memory, then on disk.
IN_MEMORY = 16 * 1024 * 1024
#: A larger one goes in parts, for which no store promises that it writes over nothing.
LARGEST_WHOLE = 64 * 1024 * 1024
#: Where machines of a cloud get their keys.
_KEY_OF_THE_MACHINE = "169.254.169.254"
#: Where the hash of an object stands.
_HASH = "sha256"


class ObjectSink(KeepsNoParts):
    """Writes objects below an address such as `s3://bucket/prefix`.

    An object appears whole or not at all. One of the same name that holds something else is not written over. The key
    comes from the environment, by the names that the store's own tools use.
    """

    def __init__(self, address: str) -> None:
        """Raises `SettingsError` for an address that is no store's."""
        self.address = address.rstrip("/")
        try:
            # The library's own patience; the database has the rest.
            self._store: Any = from_url(self.address, retry_config={"max_retries": 3})
        except (BaseError, ValueError) as error:
            raise SettingsError(
                f"{self.address} is no object store that can be used: {_first_line(error)}",
                advice="see docs/media.md for the addresses and for the variables that hold its key",
            ) from None

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
        with tempfile.SpooledTemporaryFile(IN_MEMORY) as file:
            for chunk in inspection:
                _collect(file, chunk)
            kind = inspection.file_type()
            kept = inspection.kept(kind)
            path = self._put(stem, kind, file, kept.size, kept.sha256)
        return inspection.kept(kind, path=path)

    def save_document(self, stem: str, body: bytes, content_type: str) -> Saved:
        """See `AssetSink.save_document`."""
        kind = document_type(body, content_type)
        digest = hashlib.sha256(body).hexdigest()
        path = self._put(stem, kind, io.BytesIO(body), len(body), digest)
        return Saved(path, len(body), digest, kind.media_type, kind.extension)

    def check(self) -> None:
        """Find out whether it can be written, before anything is paid for. Raises `DiskError`."""
        name = f".comfy-batch-{token_hex(8)}"
        try:
            obstore.put(self._store, name, b"")
            obstore.delete(self._store, name)
        except (BaseError, OSError) as error:
            raise self._fault(error) from error

    def _put(self, stem: str, kind: FileType, file: IO[bytes], size: int, digest: str) -> str:
        check_stem(stem)
        attributes = {"Content-Type": kind.media_type, _HASH: digest}
        try:
            for name in _names(stem, kind.extension):
                file.seek(0)
                if self._put_new(name, file, size, attributes) or self._holds(name, size, digest):
                    return f"{self.address}/{name}"
        except (BaseError, OSError) as error:
            raise self._fault(error) from error
        raise AssertionError("there are names without end")

    def _put_new(self, name: str, file: IO[bytes], size: int, attributes: dict[str, str]) -> bool:
        """Whether the object was written; not where one of the name is there."""
        if size > LARGEST_WHOLE:
            try:
                obstore.head(self._store, name)
            except (NotFoundError, FileNotFoundError):
                obstore.put(self._store, name, file, attributes=attributes)
                return True
            return False
        try:
            obstore.put(self._store, name, file, attributes=attributes, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        return True

    def _holds(self, name: str, size: int, digest: str) -> bool:
        """Whether the object is what a try of the same file wrote that was not marked."""
        found = obstore.get(self._store, name, options={"head": True})
        return found.meta["size"] == size and found.attributes.get(_HASH) == digest

    def _fault(self, error: Exception) -> DiskError:
        advice, passing = "check the variables that hold the store's key (docs/media.md), then resume the batch", False
        if isinstance(error, PermissionDeniedError | UnauthenticatedError):
            why = "its key is refused"
        elif _KEY_OF_THE_MACHINE in str(error):
            # Without a key of its own the library asks the machine for one.
            why = "no key for it was found"
        elif isinstance(error, NotFoundError | FileNotFoundError):
            why, advice = "it does not exist", "make the bucket, then resume the batch"
        else:
            why, advice = _first_line(error), "check the store and the way to it, then resume the batch"
            passing = isinstance(error, GenericError)
        return DiskError(f"cannot write to {self.address}: {why}", advice=advice, passing=passing)


def _collect(file: IO[bytes], chunk: bytes) -> None:
    try:
        file.write(chunk)
    except OSError as error:
        folder = tempfile.gettempdir()
        raise DiskError(
            f"cannot write {folder}: {error.strerror or type(error).__name__}",
            advice=f"free some space at {folder}, or name another folder in TMPDIR, then resume the batch",
        ) from error


def _names(stem: str, extension: str) -> Iterator[str]:
    yield f"{stem}.{extension}"
    yield from (f"{stem}~{number}.{extension}" for number in count(2))


def _first_line(error: Exception) -> str:
    """What the library says, without what it adds for developers, and without a query that could hold a signature."""
    line = str(error).partition("\n")[0].partition("?")[0]
    return line[:200] if isinstance(error, GenericError | BaseError) else type(error).__name__
