"""Files that a manifest names, read for embedding: those below its own folder, and below one that a user allows."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from runner.core.cells import CellFault
from runner.core.embedding import check_size, embed
from runner.core.jsontext import clip

#: Texts of files kept, since rows next to each other often name the same file; each has up to 10 MiB.
KEPT = 4


class LocalFiles:
    """Gives the text that stands for a file; names count from `folder`, the manifest's.

    Links are followed before it is looked where a file lies, so that none leads out.
    """

    def __init__(self, folder: Path, also: Path | None = None) -> None:
        self._folder = folder.absolute()
        self._below = [place.resolve() for place in (folder, also) if place is not None]
        self._text = lru_cache(maxsize=KEPT)(self._read)

    def __call__(self, name: str, form: str) -> str:
        """See `EmbedFile`."""
        return self._text(name, form)

    def _read(self, name: str, form: str) -> str:
        if name.startswith(("https:", "http:", "data:")):
            raise CellFault(f"{clip(name)!r} is an address and no file", f"without `:{form}` it is sent as it stands")
        try:
            path = (self._folder / name).resolve()
            if not any(path.is_relative_to(folder) for folder in self._below):
                raise CellFault(
                    f"{clip(name)!r} is not below {self._below[0]}, the manifest's folder",
                    "--files-below DIR allows files of another folder",
                )
            if not path.is_file():
                raise CellFault(f"there is no file {clip(name)!r} in {self._folder}")
            check_size(path.stat().st_size, name)
            content = path.read_bytes()
        except (OSError, ValueError) as error:
            if isinstance(error, CellFault):
                raise
            why = error.strerror if isinstance(error, OSError) else "no such name can be"
            raise CellFault(f"{clip(name)!r} cannot be read: {why}") from None
        return embed(content, name, form)
