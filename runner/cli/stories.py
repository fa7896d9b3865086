"""`status` and `show`: where things stand, and how they came there."""

from __future__ import annotations

import json
import socket
import time
from datetime import datetime
from typing import Any

from rich.markup import escape
from rich.table import Table

from runner.cli.context import Context
from runner.cli.output import (
    exit_status,
    moment,
    out,
    print_json,
    print_next,
    print_summary,
    summary_document,
)
from runner.cli.running import workers_elsewhere
from runner.cli.watching import has_stopped
from runner.core.errors import BatchError
from runner.core.types import BatchState, JobState
from runner.report.wording import HELD, detail_words, duration, note_words, quote_words
from runner.store.batches import BatchRecord
from runner.store.queries import EventView, JobView
from tasks.processes import is_running

#: How long before their end results and links are warned of, in seconds, while nobody works, and while somebody does.
BEFORE_LONG = 6 * 3600.0
SOON = 60.0
_UNHAPPY = (JobState.FAILED, JobState.HELD, JobState.EXPIRED, JobState.CANCELLED)


def status_of_all(context: Context, *, as_json: bool) -> int:
    """Every batch in a line."""
    summaries = [context.queries.summary(batch) for batch in context.batches.all()]
    if as_json:
        print_json({"batches": [summary_document(summary) for summary in summaries]})
        return 0
    if not summaries:
        out.print("No batch yet. Next: comfy-batch run MANIFEST")
        return 0
    table = Table(box=None, pad_edge=False)
    for name in ("batch", "state", "jobs", "succeeded", "in flight", "pending", "failed", "held", "begun"):
        table.add_column(name, justify="left" if name in {"batch", "state", "begun"} else "right")
    for summary in summaries:
        document = summary_document(summary)
        jobs = document["jobs"]
        ended_badly = jobs["failed"] + jobs["cancelled"] + jobs["expired"]
        numbers = (jobs["total"], jobs["succeeded"], jobs["in_flight"] + jobs["downloading"], jobs["pending"])
        table.add_row(
            escape(document["name"]),
            document["state"],
            *(f"{number:,}" for number in (*numbers, ended_badly, jobs["held"])),
            _local(summary.batch.created_at),
        )
    out.print(table)
    return 0


def status_of(context: Context, batch: BatchRecord, *, as_json: bool) -> int:
    """One batch: counts, reasons, the slowest job, and what to do next."""
    summary = context.queries.summary(batch)
    if as_json:
        print_json(summary_document(summary))
        return exit_status(summary)
    out.print(f"{batch.state.value}, {batch.manifest}, begun {_local(batch.created_at)}")
    print_summary(summary, context.queries.reasons(batch.id, _UNHAPPY))
    slowest = context.queries.slowest(batch.id)
    if slowest is not None:
        row, since = slowest
        out.print(f"  slowest  row {row}, for {duration(max(0.0, time.time() - since))} now")
    seen = context.upkeep.live_workers(batch.credential_id, time.time())
    # The process of a worker that was killed just now shows at once, on the machine that it ran on.
    workers = sum(worker.host != socket.gethostname() or is_running(worker.pid) for worker in seen)
    at_work = batch.state is BatchState.ACTIVE and workers > 0 and not has_stopped(batch, summary.counts)
    _warn(context, batch, at_work=at_work)
    if at_work:
        out.print(f"  workers  {workers} at work")
        _warn_of_unseen_workers(context, batch, workers)
    else:
        print_next(summary)
    return exit_status(summary)


def _warn_of_unseen_workers(context: Context, batch: BatchRecord, at_work: int) -> None:
    """What Flower would show is what answers on the broker; who works without it is missing there."""
    if batch.simulated or context.settings.broker_url is None:
        return
    try:
        answering = workers_elsewhere(context.settings, at_work)
    except BatchError as error:
        out.print(f"  [bold yellow]broker[/]   {escape(error.message)}: Flower shows none of them")
        return
    if answering < at_work:
        out.print(
            f"  [bold yellow]missing[/]  {answering} of {at_work} answer on this broker, and Flower shows no others: "
            "started with another COMFY_BATCH_BROKER_URL or without, or stuck"
        )


def _warn(context: Context, batch: BatchRecord, *, at_work: bool) -> None:
    """What is lost if nothing is done, and what has come to a halt."""
    now = time.time()
    expiring = context.queries.expiring(batch.id, now + (SOON if at_work else BEFORE_LONG))
    if expiring is not None:
        jobs = "1 result or link" if expiring.jobs == 1 else f"{expiring.jobs:,} results or links"
        left = expiring.first - now
        when = f"in {duration(left)}" if left > 0 else f"{duration(-left)} ago"
        verb = "ends" if expiring.jobs == 1 else "end, the first"
        out.print(f"  [bold yellow]expiring[/] {jobs} not collected {verb} {when}: resume before")
    overdue = context.queries.overdue(batch.id, now) if batch.state is BatchState.ACTIVE else None
    if overdue is not None:
        steps = "1 step has" if overdue.jobs == 1 else f"{overdue.jobs:,} steps have"
        since = duration(overdue.seconds)
        out.print(f"  [bold yellow]stalled[/]  {steps} been due for up to {since}: no worker takes them")


def show(context: Context, reference: str, *, as_json: bool) -> int:
    """The whole story of the job, or of each job that goes by that name."""
    jobs = context.queries.find_jobs(reference)
    if as_json:
        print_json([_job_document(context, job) for job in jobs])
        return 0
    for job in jobs:
        _tell(context, job)
    return 0


def _job_document(context: Context, job: JobView) -> dict[str, Any]:
    return {
        "job": job.id,
        "batch": context.jobs.batch_name(job.batch_id),
        "row": job.row,
        "custom_id": job.custom_id,
        "model": job.model,
        "state": job.state.value,
        "reason": job.reason,
        "error_type": job.error_type,
        "error_detail": job.error_detail,
        "charge": job.charge,
        "estimate": job.estimate or None,
        "notes": job.notes,
        "query": job.query or None,
        "run": job.run,
        "idempotency_key": job.idempotency_key,
        "request_id": job.request_id,
        "call_ids": {"submit": job.submit_call_id, "read": job.read_call_id},
        "submitted_at": moment(job.submitted_at),
        "finished_at": moment(job.finished_at),
        "result_path": job.result_path,
        "remark": job.remark,
        "assets": [
            {
                "number": asset.number,
                "state": asset.state,
                "path": asset.path,
                "media_type": asset.media_type,
                "size": asset.size,
                "sha256": asset.sha256,
                "secondary": asset.secondary,
                "mismatch": asset.mismatch,
                "error": asset.error,
            }
            for asset in job.assets
        ],
        "events": [
            {
                "at": moment(event.at),
                "event": event.kind,
                "state": event.state,
                "run": event.run,
                "http_status": event.http_status,
                "call_id": event.call_id,
                **event.data,
            }
            for event in context.queries.events(job.id)
        ],
        "input": json.loads(job.columns),
    }


def _tell(context: Context, job: JobView) -> None:
    name = context.jobs.batch_name(job.batch_id)
    out.print(f"[bold]{escape(name)}:{job.row}[/]  {escape(job.custom_id)}  {job.model}  [bold]{job.state.value}[/]")
    held = HELD.get(job.reason or "") if job.state is JobState.HELD else None
    lines = [
        ("job", str(job.id)),
        ("key", job.idempotency_key if job.run == 1 else f"{job.idempotency_key} (run {job.run})"),
        ("request", job.request_id),
        ("query", job.query),
        ("charge", job.charge),
        ("quote", quote_words(job.estimate)),
        ("why", held.why if held else job.reason),
        ("cost", held.may_have_cost if held else None),
        (
            "decide",
            held.decides.replace("resume", f"resume {name}").replace("retry", f"retry {name}") if held else None,
        ),
        ("error", job.error_type),
        ("detail", detail_words(job.error_detail)),
        ("queue", f"position {job.queue_position}" if job.queue_position is not None else None),
        ("next", _next_time(job)),
        ("call ids", ", ".join(x for x in (job.submit_call_id, job.read_call_id) if x)),
        ("result", job.result_path),
        ("remark", job.remark),
        *note_words(job.notes),
    ]
    for label, value in lines:
        if value:
            out.print(f"  {label:9} {escape(value)}")
    for asset in job.assets:
        where = asset.path or ("in the database" if asset.state == "saved" else asset.error or "not fetched yet")
        size = f", {asset.size:,} bytes" if asset.size is not None else ""
        note = ", not what it was said to be" if asset.mismatch else ""
        out.print(
            f"  media {asset.number:<3} {asset.state}: {escape(where)} ({asset.media_type or 'unknown'}{size}{note})"
        )
    events = context.queries.events(job.id)
    for event in events:
        out.print(f"  {_local(event.at)}  {event.kind:<18} → {event.state:<11} {escape(_event_words(event))}")
    out.print()


def _next_time(job: JobView) -> str | None:
    if job.due_at is None:
        return None
    left = job.due_at - time.time()
    return f"in {duration(left)}" if left > 0 else "due now"


def _event_words(event: EventView) -> str:
    parts = [str(event.http_status)] if event.http_status else []
    told = ("error_type", "reason", "charge", "request_id", "delay", "attempt")
    parts += [f"{name} {event.data[name]}" for name in told if name in event.data]
    if event.call_id:
        parts.append(f"call {event.call_id}")
    parts += [f"{name}: {value}" for name, value in note_words(event.data.get("notes", {}))]
    return ", ".join(parts)


def _local(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")
