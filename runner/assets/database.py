"""Media kept in the database: collected here with the same checks, written by the store."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from runner.assets.base import Inspection, KeepsNoParts, Saved, document_type
from runner.core.ranges import Begun


class DatabaseSink(KeepsNoParts):
    """Collects each file in memory; `Saved.content` holds it and `Saved.path` is `None`."""

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
        """See `AssetSink.save`. The whole file stands in memory once, so `limit` should be set."""
        inspection = Inspection(chunks, declared_type=declared_type, url=url, expected_size=expected_size, limit=limit)
        content = b"".join(inspection)
        return inspection.kept(inspection.file_type(), content=content)

    def save_document(self, stem: str, body: bytes, content_type: str) -> Saved:
        """See `AssetSink.save_document`."""
        kind = document_type(body, content_type)
        digest = hashlib.sha256(body).hexdigest()
        return Saved(None, len(body), digest, kind.media_type, kind.extension, content=body)
