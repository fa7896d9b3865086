"""Bringing a database up to this version's tables, with Alembic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import Connection, inspect, text

from runner.core.errors import StoreError
from runner.store.engine import Database

#: The newest revision. Stated here so that a start on an up-to-date database costs one query and no import of Alembic.
HEAD = "0006"

# Any number that nobody else locks on: one process migrates, the others wait for it.
_POSTGRES_LOCK = 0x636F6D6679


def migrate(database: Database) -> None:
    """Create the tables, or change those of an earlier version to this version's.

    Raises `StoreError` when the database was made by a later version.
    """
    with database.read() as connection:
        if _revision(connection) == HEAD:
            return
    if database.is_sqlite:
        with database.write("create tables", durable=True) as connection:
            _upgrade(connection)
        return
    with database.write("create tables") as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(:id)"), {"id": _POSTGRES_LOCK})
        _upgrade(connection)


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.util.exc import CommandError

    if _revision(connection) == HEAD:
        return
    config = alembic_config()
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise StoreError(
            "the database was made by a later version of comfy-batch", advice="install that version, or a newer one"
        ) from error


def alembic_config() -> Any:
    """The configuration that Alembic's commands take; the caller adds the connection."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    return config


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
