"""Run by Alembic: the revisions go through the connection that `runner.store.migrate` hands over."""

from __future__ import annotations

from alembic import context

from runner.store import tables

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=tables.Batch.metadata,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
