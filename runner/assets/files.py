"""Media kept as files: each appears under its name whole and synced, or not at all."""

from __future__ import annotations

import contextlib
import errno
import filecmp
import hashlib
import os
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from runner.assets.base import AssetCut, AssetRejected, Inspection, Saved, document_type
from runner.core.boundaries import reach
from runner.core.errors import DiskError
from runner.core.filetypes import FileType
from runner.core.ranges import Begun

_ADVICE = {
    errno.ENOSPC: "free some space on that disk, then resume the batch",
    errno.EDQUOT: "free some of the quota on that disk, then resume the batch",
    errno.EACCES: "make the folder writable for this user, then resume the batch",
    errno.EPERM: "make the folder writable for this user, then resume the batch",
    errno.EROFS: "choose a folder on a disk that can be written, then resume the batch",
    errno.ENOTDIR: "a file stands where a folder is needed: move it away, then resume the batch",
    errno.EEXIST: "a file stands where a folder is needed: move it away, then resume the batch",
    errno.EISDIR: "a folder stands where the file must go: move it away, then resume the batch",
    errno.ENAMETOOLONG: "choose a folder with a shorter path, then resume the batch",
}


#: Bytes read at a time of a part that is there.
CHUNK = 1 << 20
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@cache
def _this_boot() -> str:
    """What tells this start of the machine from others; empty where the system does not say."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""


class FileSink:
    """Writes into one folder, which is made when the first file comes.

    A file is written as `.STEM.part` beside its place, synced, renamed to its name, and the folder synced. A part that
    broke off, or that a killed process left, is written over by the next try of the same file; where it came under an
    entity tag, which `.STEM.tag` holds until then, the next try can go on with it.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()

    def save(
        self,
        stem: str,
        chunks: Iterable[bytes],
        *,
        declared_type: str | None = None,
        url: str | None = None,
        expected_size: int | None = None,
        limit: int | None = None,
        tag: str | None = None,
        begun: Begun | None = None,
    ) -> Saved:
        """See `AssetSink.save`."""
        there = begun.size if begun is not None else 0
        whole = chain(self._read_part(stem, there), chunks) if there else chunks
        inspection = Inspection(whole, declared_type=declared_type, url=url, expected_size=expected_size, limit=limit)
        with self._part(stem, tag, expected_size, goes_on=begun is not None) as (part, file):
            passed = 0
            for chunk in inspection:
                passed += len(chunk)
                if passed <= there:
                    continue
                with _blaming_the_disk(part):
                    file.write(chunk)
                reach("chunk written")
            kind = inspection.file_type()
            path = self._put(file, part, stem, kind)
        return inspection.kept(kind, path=str(path))

    def begun(self, stem: str) -> Begun | None:
        """See `AssetSink.begun`."""
        try:
            mark, _, tag = self._tag(stem).read_text(encoding="ascii").partition("\n")
            size = self._part_of(stem).stat().st_size
        except (OSError, ValueError):
            return None
        # After a power cut a file can be as long as it was and hold something else.
        return Begun(size, tag) if size and tag and mark and mark == _this_boot() else None

    def discard(self, stem: str) -> None:
        """See `AssetSink.discard`."""
        for path in (self._part_of(stem), self._tag(stem)):
            with contextlib.suppress(OSError):
                path.unlink()

    def _part_of(self, stem: str) -> Path:
        if not stem or stem != os.path.basename(stem) or "\0" in stem:
            raise ValueError("a stem is one plain file name")
        return self.directory / f".{stem}.part"

    def _tag(self, stem: str) -> Path:
        return self._part_of(stem).with_suffix(".tag")

    def _read_part(self, stem: str, size: int) -> Iterator[bytes]:
        part = self._part_of(stem)
        with _blaming_the_disk(part), part.open("rb") as file:
            while size and (piece := file.read(min(size, CHUNK))):
                size -= len(piece)
                yield piece
        if size:
            raise AssetCut("the part that was there is gone")

    def save_document(self, stem: str, body: bytes, content_type: str) -> Saved:
        """See `AssetSink.save_document`."""
        kind = document_type(body, content_type)
        with self._part(stem) as (part, file):
            with _blaming_the_disk(part):
                file.write(body)
            path = self._put(file, part, stem, kind)
        return Saved(str(path), len(body), hashlib.sha256(body).hexdigest(), kind.media_type, kind.extension)

    @contextlib.contextmanager
    def _part(
        self, stem: str, tag: str | None = None, expected_size: int | None = None, *, goes_on: bool = False
    ) -> Iterator[tuple[Path, BinaryIO]]:
        """A temporary file beside the target; gone afterwards, but for one under a `tag` that broke off."""
        part = self._part_of(stem)
        keeps = False
        with _blaming_the_disk(part):
            self.directory.mkdir(parents=True, exist_ok=True)
            if tag is not None and not goes_on:
                self._tag(stem).write_text(f"{_this_boot()}\n{tag}", encoding="ascii")
            # A link planted under the name must not be followed.
            way = os.O_APPEND if goes_on else os.O_CREAT | os.O_TRUNC
            flags = os.O_WRONLY | way | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
            file = open(os.open(part, flags, 0o666), "ab" if goes_on else "wb")  # noqa: SIM115 - closed below and in `_put`
        try:
            reach("file opened")
            yield part, file
        except (AssetRejected, DiskError):
            raise
        except Exception:
            # A part that is longer than the whole is none.
            keeps = tag is not None and file.tell() < (expected_size or 0)
            raise
        finally:
            # Closing writes out what is buffered, and a full disk says so once more.
            with contextlib.suppress(OSError):
                file.close()
            if not keeps:
                self.discard(stem)

    def _put(self, file: BinaryIO, part: Path, stem: str, kind: FileType) -> Path:
        target = self.directory / f"{stem}.{kind.extension}"
        with _blaming_the_disk(target):
            file.flush()
            os.fsync(file.fileno())
            file.close()
            target = _free(target, part)
            reach("before rename")
            os.replace(part, target)
            reach("after rename")
            _sync_directory(self.directory)
        return target


def _free(target: Path, part: Path) -> Path:
    """The target, or a name beside it where something else stands: what a try of the same file that was not marked
    left is written over, anybody else's is not."""
    free, number = target, 1
    while free.exists() and not free.is_dir() and not filecmp.cmp(free, part, shallow=False):
        number += 1
        free = target.with_stem(f"{target.stem}~{number}")
    return free


@contextlib.contextmanager
def _blaming_the_disk(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = error.strerror or type(error).__name__
        advice = _ADVICE.get(error.errno or 0, "check that disk, then resume the batch")
        raise DiskError(f"cannot write {path}: {why}", advice=advice) from error


def _sync_directory(directory: Path) -> None:
    """Make the rename itself durable. Windows cannot open folders, and needs no such thing."""
    if os.name == "nt":
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some network file systems cannot sync a folder; the file itself is synced.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)
