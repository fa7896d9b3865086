"""Doing a batch's work: with workers that run elsewhere, or with one in this process."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from rich.markup import escape

from config.settings import Settings
from runner.cli.context import Context
from runner.cli.editing import finish_edits
from runner.cli.intake import check_place
from runner.cli.output import (
    err,
    exit_status,
    out,
    print_json,
    print_next,
    print_summary,
    summary_document,
)
from runner.cli.watching import Ended, watch
from runner.core.errors import UsageError
from runner.core.types import IN_FLIGHT, BatchState, JobState, Policy
from runner.store.batches import BatchRecord

INTERRUPTED = 130
#: How long workers elsewhere have to answer, in seconds.
PING = 1.0


class Interrupts:
    """Whether the user wants to stop. Free of locks: a signal can come while the main thread holds any of them."""

    def __init__(self) -> None:
        self._noted = False

    def note(self) -> None:
        """The user wants to stop."""
        self._noted = True

    def is_set(self) -> bool:
        """Whether that was noted."""
        return self._noted

    def wait(self, seconds: float) -> bool:
        """Sleep for so long, or until it is noted; returns whether it was."""
        until = time.monotonic() + seconds
        while not self._noted and (left := until - time.monotonic()) > 0:
            # A signal interrupts a sleep only after its handler has returned, so the slices are short.
            time.sleep(min(left, 0.1))
        return self._noted


@contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Ctrl-C or SIGTERM is noted; a second one leaves the process at once, the database being as it is."""
    event = Interrupts()

    def on_signal(number: int, _frame: object) -> None:
        if event.is_set():
            os._exit(INTERRUPTED)
        event.note()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def put_to_work(context: Context, batch: BatchRecord) -> BatchRecord:
    """Lift what stopped the batch, take back what is safe, and wake all that is due."""
    context.check_credential(batch)
    if batch.total is None:
        raise UsageError(
            f"the manifest of `{batch.name}` was never read to its end, and nothing of it was sent",
            advice=f"comfy-batch run {batch.manifest}, as it was typed before",
        )
    check_place(batch.asset_store, batch.output_dir)
    finish_edits(context, batch)
    context.batches.unblock(batch.credential_id)
    context.upkeep.set_clock_right(batch.credential_id, time.time())
    context.batches.resume(batch.id, time.time(), Policy())
    return context.batches.find(batch.id)


def enqueue(settings: Settings, context: Context, credential_id: int) -> bool:
    """Send the messages that are due now to the workers of the configured broker; returns whether it took them all."""
    from tasks.app import build_client

    wakes = context.upkeep.sweep(credential_id, time.time())
    return int(build_client(settings).publisher.publish(wakes)) == len(wakes)


def workers_elsewhere(settings: Settings, expected: int | None = None) -> int:
    """How many workers answer on the configured broker; more than `expected` are not waited for.

    Raises `BatchError` when the broker cannot be reached.
    """
    from tasks.app import build_client, ping_workers

    return ping_workers(build_client(settings), PING, expected) if settings.broker_url else 0


def work(context: Context, batch: BatchRecord, *, wait: float | None, as_json: bool, with_flower: bool = False) -> int:
    """Work on the batch until it ends or stops, then print the summary; returns the exit status.

    With `with_flower` Flower runs beside it, on a broker of the batch's own where none is configured.
    """
    settings = context.settings
    if batch.simulated:
        # The simulator lives on this machine only, so other machines' workers could not reach it.
        settings = settings.model_copy(update={"broker_url": None})
    with interrupts() as interrupted, ExitStack() as beside:
        mine = not workers_elsewhere(settings)
        if with_flower:
            settings = _watched(settings, beside)
        if mine:
            ended = _work_here(context, settings, batch, interrupted, wait)
        else:
            enqueue(settings, context, batch.credential_id)
            ended = watch(context, batch.id, console=err, interrupted=interrupted, wait=wait)
    return report(context, batch, ended, mine=mine, as_json=as_json)


def _watched(settings: Settings, beside: ExitStack) -> Settings:
    """Settings with a broker that Flower, started here, looks at for as long as `beside` is open."""
    from tasks.beside import flower_beside, private_broker

    with err.status("Starting Flower …"):
        if settings.broker_url is None:
            settings = settings.model_copy(update={"broker_url": beside.enter_context(private_broker())})
        address = beside.enter_context(flower_beside(settings))
    err.print(f"Flower: [bold]{address}[/], for as long as the batch runs.")
    # Somebody watches from the start; by itself Flower would tell the worker only seconds later.
    return settings.model_copy(update={"task_events": True})


def look_on(context: Context, batch: BatchRecord, *, wait: float | None, as_json: bool) -> int:
    """Watch a batch that others work on, until it ends or stops; returns the exit status."""
    if batch.state is BatchState.ACTIVE and not context.upkeep.live_workers(batch.credential_id, time.time()):
        err.print(f"No worker is at it now. Next: comfy-batch resume {escape(batch.name)}, or comfy-batch worker")
    with interrupts() as interrupted:
        ended = watch(context, batch.id, console=err, interrupted=interrupted, wait=wait)
    return report(context, batch, ended, mine=False, as_json=as_json)


def _work_here(
    context: Context, settings: Settings, batch: BatchRecord, interrupted: Interrupts, wait: float | None
) -> Ended:
    from tasks.engine import EmbeddedEngine

    with EmbeddedEngine(settings, context.database, batch.credential_id, only_batch=batch.id) as engine:
        ended = watch(context, batch.id, console=err, interrupted=interrupted, wait=wait, alive=lambda: engine.alive)
        if ended is Ended.INTERRUPTED:
            err.print(
                "Stopping: nothing more is sent. Calls under way are finished first; Ctrl-C again leaves at once."
            )
    if engine.failure is not None:
        raise engine.failure
    return ended


def report(context: Context, batch: BatchRecord, ended: Ended, *, mine: bool, as_json: bool) -> int:
    """Print where the batch stands now; returns the exit status."""
    summary = context.queries.summary(context.batches.find(batch.id))
    if as_json:
        print_json(summary_document(summary))
    else:
        unhappy = (JobState.FAILED, JobState.HELD, JobState.EXPIRED, JobState.CANCELLED)
        print_summary(summary, context.queries.reasons(batch.id, unhappy))
    if ended is Ended.INTERRUPTED:
        return _interrupted(batch, mine, sum(summary.counts[state] for state in IN_FLIGHT))
    if ended is Ended.OUT_OF_TIME:
        err.print(f"The time of --wait is over; {summary.counts.in_flight:,} requests go on at the Router.")
    if not as_json:
        print_next(summary)
    return exit_status(summary)


def _interrupted(batch: BatchRecord, mine: bool, going_on: int) -> int:
    name = escape(batch.name)
    if not mine:
        err.print(f"No longer watching; the workers go on. Next: comfy-batch status {name}")
        return INTERRUPTED
    if going_on:
        err.print(
            f"{going_on:,} requests go on at the Router and are paid for; their results are kept there for 24 hours."
        )
    err.print(f"Next: comfy-batch resume {name} collects them and goes on; nothing is paid twice.")
    return INTERRUPTED


def nothing_to_do(context: Context, batch: BatchRecord, *, as_json: bool) -> int:
    """The batch has ended before: say so, and how it ended."""
    if not as_json:
        out.print(
            f"Nothing to send: every row of [bold]{escape(batch.name)}[/] has ended before. --new pays for it anew."
        )
    return report(context, batch, Ended.FINISHED, mine=True, as_json=as_json)
