"""An append-only file of JSON lines from which a simulator rebuilds its requests, keys and charges."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

Entry = dict[str, object]


class Journal:
    """Appends entries, each handed to the system before the call returns.

    That is enough to survive the end of the process, `kill -9` included. It is no protection from a power cut, which
    a simulator need not outlive.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: BinaryIO = path.open("a+b")

    def entries(self) -> Iterator[Entry]:
        """Every whole entry, oldest first. A last line that was cut off is removed from the file."""
        self._file.seek(0)
        whole = 0
        for line in self._file:
            if not line.endswith(b"\n"):
                break
            whole += len(line)
            entry = json.loads(line)
            if not isinstance(entry, dict):
                raise ValueError(f"{self._path}: byte {whole - len(line)}: not an entry of a simulator's journal")
            yield entry
        self._file.truncate(whole)

    def write(self, entry: Entry) -> None:
        """Append one entry."""
        self._file.write(json.dumps(entry, separators=(",", ":")).encode() + b"\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file; no entry can follow."""
        self._file.close()
