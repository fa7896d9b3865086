"""How far the reading of a manifest is, on a terminal; elsewhere nothing."""

from __future__ import annotations

import os
from types import TracebackType
from typing import BinaryIO, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn


class ReadingBar:
    """A bar by bytes, since nobody knows how many rows there are. Gone when the block is left, or with `stop`."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("Reading the manifest …", total=None)

    def over(self, file: BinaryIO) -> BinaryIO:
        """The same file; what is read of it moves the bar, from its beginning again after `seek(0)`."""
        if self._progress.disable:
            return file
        return self._progress.wrap_file(file, total=os.fstat(file.fileno()).st_size, task_id=self._task)

    def tell(self, rows: int) -> None:
        """So many rows are there by now."""
        self._progress.update(self._task, description=f"Reading the manifest … {rows:,} rows")

    def stop(self) -> None:
        """Make room for a question."""
        self._progress.stop()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
