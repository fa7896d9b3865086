"""Where media bytes go: files in a folder, or the database."""

from __future__ import annotations

from pathlib import Path

from runner.assets.base import AssetCut, AssetFault, AssetRejected, AssetSink, AssetTooLarge, Saved
from runner.assets.database import DatabaseSink
from runner.assets.files import FileSink
from runner.core.errors import SettingsError

__all__ = [
    "AssetCut",
    "AssetFault",
    "AssetRejected",
    "AssetSink",
    "AssetTooLarge",
    "DatabaseSink",
    "FileSink",
    "Saved",
    "open_sink",
]


def open_sink(kind: str, directory: Path) -> AssetSink:
    """The keeper that a setting names: `files` (into `directory`) or `database`.

    Raises SettingsError for any other word.
    """
    if kind == "files":
        return FileSink(directory)
    if kind == "database":
        return DatabaseSink()
    raise SettingsError(f"there is no asset store `{kind}`", advice="use `files` or `database`")
