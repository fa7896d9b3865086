"""Where media bytes go: files in a folder, the database, or an object store."""

from __future__ import annotations

from pathlib import Path

from runner.assets.base import AssetCut, AssetFault, AssetRejected, AssetSink, AssetTooLarge, Saved
from runner.assets.database import DatabaseSink
from runner.assets.files import FileSink
from runner.core.errors import SettingsError
from runner.core.places import is_object_store

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


def open_sink(kind: str, directory: str) -> AssetSink:
    """The keeper that a setting names: `files` (into the folder `directory`), `database`, or an object store's address
    (below the address `directory`).

    Raises SettingsError for anything else.
    """
    if kind == "files":
        return FileSink(Path(directory))
    if is_object_store(kind):
        # Imported where it is used: few have one, and everybody starts this.
        from runner.assets.objects import ObjectSink

        return ObjectSink(directory)
    if kind == "database":
        return DatabaseSink()
    raise SettingsError(
        f"there is no asset store `{kind}`", advice="use `files`, `database` or the address of an object store"
    )
