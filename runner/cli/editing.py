"""An edited manifest meets the batch of its name: what changed, what that pays for, and what becomes of the rest."""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable

from rich.markup import escape

from runner.cli.context import Context
from runner.cli.output import err
from runner.core.errors import UsageError
from runner.core.quotes import Shapes
from runner.core.types import BatchState, JobState
from runner.store.batches import BatchRecord, NewBatch
from runner.store.editing import Changes
from tasks.processes import is_running


def adopt(
    context: Context,
    before: BatchRecord,
    edited: NewBatch,
    columns: str,
    approve: Callable[[Shapes], None] | None,
) -> Changes:
    """Say how the edited manifest differs, and make `before` the batch of it.

    `approve` is shown what is to be paid for, and raises to refuse it. Raises `UsageError` when the two have no row in
    common: it is another manifest then, of the same name.
    """
    changes = context.edits.compare(before.id, edited.id)
    if not changes.unchanged and not changes.changed:
        raise UsageError(
            f"there is a batch `{before.name}` already, of {before.manifest}, and no row of it is in this manifest; "
            f"a batch of this one would pay for each of its {changes.total:,} rows",
            advice="if that is what you want: the same command with --new, or with --name NAME",
        )
    err.print(f"The manifest of [bold]{escape(before.name)}[/] has changed: {change_words(changes)}.")
    if approve is not None and changes.added:
        shapes = Shapes()
        for model, query, body in context.edits.to_price(changes):
            shapes.add(model, query, body)
        approve(shapes)
    archive = uuid.uuid4().hex, _archive_name(context, before.name)
    context.edits.adopt(before, edited, columns, changes, archive, time.time())
    if changes.left:
        _set_aside(context, *archive)
    return changes


def _set_aside(context: Context, batch_id: str, name: str) -> None:
    """Nobody wants the rows that left any more: those that wait end unsent, those under way are asked to stop."""
    counts = context.batches.cancel(batch_id, name, time.time())
    going = counts.get(JobState.QUEUED, 0) + counts.get(JobState.RUNNING, 0)
    err.print(f"What became of the rows that left it stays on record as [bold]{escape(name)}[/].")
    if going:
        requests = "1 request" if going == 1 else f"{going:,} requests"
        err.print(f"{requests} of them at the Router are asked to stop; each may still be billed.")


def finish_edits(context: Context, batch: BatchRecord) -> None:
    """Make good what a process left that died as it edited the batch: rows read for nothing, and some not given up."""
    for name in context.batches.names_like(f"{batch.name}~"):
        read = context.batches.by_name(name)
        if read is not None and read.total is None and not is_being_read(context, read):
            context.batches.discard(read.id)
    for name in context.batches.names_like(f"{batch.name}@"):
        left = context.batches.by_name(name)
        if left is not None and left.state is BatchState.CANCELLING:
            context.batches.cancel(left.id, name, time.time())


def is_being_read(context: Context, unread: BatchRecord) -> bool:
    """Whether a process that may be alive reads the manifest of a batch."""
    reader = context.upkeep.lease_holder(f"load:{unread.fingerprint}")
    return reader is not None and not is_dead(reader)


def is_dead(reader: str) -> bool:
    """Whether the process that read a manifest runs no more, as far as this machine can tell."""
    host, pid, *_ = reader.split(":")
    return host == socket.gethostname() and pid.isdigit() and not is_running(int(pid))


def change_words(changes: Changes) -> str:
    """`2 new, 1 changed, 3 removed, 94 unchanged rows: 3 paid runs`."""
    counts = ", ".join(f"{getattr(changes, name):,} {name}" for name in ("new", "changed", "removed", "unchanged"))
    paid = len(changes.added)
    runs = "nothing to pay for" if not paid else "1 paid run" if paid == 1 else f"{paid:,} paid runs"
    return f"{counts} rows: {runs}"


def _archive_name(context: Context, name: str) -> str:
    names = context.batches.names_like(f"{name}@")
    return next(f"{name}@{n}" for n in range(1, len(names) + 2) if f"{name}@{n}" not in names)
