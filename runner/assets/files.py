"""Media kept as files: each appears under its name whole and synced, or not at all."""

from __future__ import annotations

import contextlib
import errno
import filecmp
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import chain, count
from pathlib import Path
from typing import BinaryIO

from runner.assets.base import AssetCut, AssetRejected, Inspection, Saved, check_stem, document_type
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

#: What file systems say that know no links: FAT, some network shares.
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
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

    A file is written as `.STEM.part` beside its place, synced, given its name, and the folder synced. A part that
    broke off, or that a killed process left, gives way to the next try of the same file; where it came under a
    validator, which `.STEM.tag` holds until then, the next try can go on with it.
    """

    def __init__(self, directory: Path, link: Callable[[Path, Path], None] = os.link) -> None:
        """`link` gives a file a second name and never takes it from another file."""
        self.directory = directory.absolute()
        self._link = link

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
        there = begun.size if begun is not None else 0
        whole = chain(self._read_part(stem, there), chunks) if there else chunks
        inspection = Inspection(whole, declared_type=declared_type, url=url, expected_size=expected_size, limit=limit)
        with self._part(stem, validator, expected_size, goes_on=begun is not None) as (part, file):
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
            mark, _, validator = self._tag(stem).read_text(encoding="ascii").partition("\n")
            part = self._part_of(stem).lstat()
        except (OSError, ValueError):
            return None
        # With a second name it is whole already; after a power cut it can be as long as it was and hold something else.
        usable = part.st_size and part.st_nlink == 1 and validator and mark and mark == _this_boot()
        return Begun(part.st_size, validator) if usable else None

    def discard(self, stem: str) -> None:
        """See `AssetSink.discard`."""
        with contextlib.suppress(OSError):
            self._clear(stem)

    def _clear(self, stem: str) -> None:
        for path in (self._part_of(stem), self._tag(stem)):
            path.unlink(missing_ok=True)

    def _part_of(self, stem: str) -> Path:
        folder, _, name = check_stem(stem).rpartition("/")
        return self.directory / folder / f".{name}.part"

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
        self, stem: str, validator: str | None = None, expected_size: int | None = None, *, goes_on: bool = False
    ) -> Iterator[tuple[Path, BinaryIO]]:
        """A temporary file beside the target; gone afterwards, but for one under a validator that broke off."""
        part = self._part_of(stem)
        keeps = False
        flags = os.O_WRONLY | getattr(os, "O_BINARY", 0)
        with _blaming_the_disk(part):
            _make_folder(part.parent)
            if goes_on:
                # A link planted under the name must not be followed.
                flags |= os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
            else:
                # A part of another validator is not this one's, and one with a second name is a file that stands there.
                self._clear(stem)
                flags |= os.O_CREAT | os.O_EXCL
            file = open(os.open(part, flags, 0o666), "ab" if goes_on else "wb")  # noqa: SIM115 - closed below and in `_put`
            if validator is not None and not goes_on:
                self._tag(stem).write_text(f"{_this_boot()}\n{validator}", encoding="ascii")
        try:
            reach("file opened")
            yield part, file
        except (AssetRejected, DiskError):
            raise
        except Exception:
            # A part that is longer than the whole is none.
            keeps = validator is not None and file.tell() < (expected_size or 0)
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
            if not os.path.samestat(os.fstat(file.fileno()), part.lstat()):
                raise AssetCut("another process is at the same file")
            file.close()
            reach("before rename")
            named = next(name for name in _names(target) if self._gives(part, name))
            reach("after rename")
            _sync_directory(target.parent)
        return named

    def _gives(self, part: Path, name: Path) -> bool:
        """Whether the part now stands under the name, or did before: not where anything else does."""
        try:
            self._link(part, name)
        except FileExistsError:
            return _stands_there(part, name)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            return _moves(part, name)
        return True


def _make_folder(directory: Path) -> None:
    if directory.is_dir():
        return
    missing = [folder for folder in (directory, *directory.parents) if not folder.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        # Folders that may be written and not listed need not be this user's.
        with contextlib.suppress(PermissionError):
            _sync_directory(folder.parent)


def _names(target: Path) -> Iterator[Path]:
    yield target
    yield from (target.with_stem(f"{target.stem}~{number}") for number in count(2))


def _stands_there(part: Path, name: Path) -> bool:
    """Whether a try of the same file that was not marked left it. Raises `IsADirectoryError`."""
    if name.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    return name.is_file() and filecmp.cmp(name, part, shallow=False)


def _moves(part: Path, name: Path) -> bool:
    """The same where there are no links: the name is taken first. An empty file under it is what a process left that
    was killed then, or holds nothing that could be lost."""
    try:
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        if _stands_there(part, name):
            return True
        if not name.is_file() or name.is_symlink() or name.stat().st_size:
            return False
    os.replace(part, name)
    return True


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
