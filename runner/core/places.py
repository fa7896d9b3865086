"""Where media can be kept, by the word of the setting."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

#: How the addresses of object stores begin.
OBJECT_STORES: Final = frozenset({"s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl"})


def is_object_store(asset_store: str) -> bool:
    """Whether a setting names an object store."""
    return urlsplit(asset_store).scheme in OBJECT_STORES
