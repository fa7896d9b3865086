"""`pause` and `cancel`: what stops, what goes on, and what it may still cost."""

from __future__ import annotations

import time

from rich.markup import escape

from runner.cli.asking import agree
from runner.cli.context import Context
from runner.cli.output import err, out, print_json, summary_document
from runner.core.types import BatchState, JobState
from runner.store.batches import BatchRecord
from runner.store.queries import Counts


def pause_batch(context: Context, batch: BatchRecord, *, as_json: bool) -> int:
    """Stop sending; returns the exit status."""
    paused = context.batches.pause(batch.id)
    found = context.batches.find(batch.id)
    counts = context.queries.counts(batch.id)
    if as_json:
        print_json(summary_document(context.queries.summary(found)))
    elif not paused and found.state is BatchState.FINISHED:
        out.print(f"{escape(batch.name)} has ended; there is nothing to pause.")
    else:
        out.print(f"{escape(batch.name)} is paused: {counts[JobState.PENDING]:,} rows wait.")
    going = counts[JobState.QUEUED] + counts[JobState.RUNNING]
    if going:
        err.print(f"{_requests(going)} at the Router go on and are paid for.")
    if found.state is not BatchState.FINISHED:
        err.print(f"Next: comfy-batch resume {escape(batch.name)} collects them and sends the rest")
    return 0


def cancel_batch(context: Context, batch: BatchRecord, *, yes: bool) -> bool:
    """Begin to cancel, if the user agrees; whether there was anything to cancel."""
    if batch.state is BatchState.FINISHED:
        err.print(f"{escape(batch.name)} has ended; there is nothing to cancel.")
        return False
    if not yes:
        agree(f"{_what(context.queries.counts(batch.id))} Cancel {batch.name}?")
    counts = context.batches.cancel(batch.id, batch.name, time.time())
    going = counts.get(JobState.QUEUED, 0) + counts.get(JobState.RUNNING, 0)
    if going:
        err.print(f"{_requests(going)} at the Router are asked to stop; each may still be billed.")
    return True


def _what(counts: Counts) -> str:
    waiting = counts[JobState.PENDING] + counts[JobState.SUBMITTING]
    going = counts[JobState.QUEUED] + counts[JobState.RUNNING]
    words = [f"{waiting:,} waiting {'row ends' if waiting == 1 else 'rows end'} unsent."]
    if going:
        words.append(f"{_requests(going)} at the Router may still be billed.")
    if counts[JobState.HELD]:
        words.append(f"{counts[JobState.HELD]:,} held given up, which may have been paid for.")
    return " ".join(words)


def _requests(count: int) -> str:
    return "1 request" if count == 1 else f"{count:,} requests"
