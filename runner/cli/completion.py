"""What a shell offers for a word that is being typed. It never fails, says nothing and makes nothing."""

from __future__ import annotations

import contextlib
from contextlib import closing


def batch_names(incomplete: str) -> list[str]:
    """Names of batches that begin so, the newest first, and `last`."""
    from config.settings import load_settings
    from runner.core.errors import BatchError
    from runner.store.batches import BatchStore
    from runner.store.engine import Database

    names = ["last"]
    with contextlib.suppress(BatchError):
        settings = load_settings()
        # Asking SQLite would make the file.
        if settings.database_url is not None or (settings.home / "comfy-batch.db").exists():
            with closing(Database(settings.effective_database_url)) as database:
                names += [batch.name for batch in BatchStore(database).all()]
    return [name for name in names if name.startswith(incomplete)]


def states(incomplete: str) -> list[str]:
    """States that `retry` takes."""
    return [state for state in ("failed", "cancelled", "expired", "held") if state.startswith(incomplete)]


def formats(incomplete: str) -> list[str]:
    """Formats that `export` writes."""
    return [name for name in ("csv", "jsonl", "parquet") if name.startswith(incomplete)]
