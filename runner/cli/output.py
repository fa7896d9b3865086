"""What people and scripts read: data on stdout, everything else on stderr."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any, TextIO, cast

from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape

from runner.core.errors import BatchError, Excerpt, ManifestError
from runner.core.money import amount_text, spread
from runner.core.types import AssetState, BatchState, Charge, JobState
from runner.report.wording import alike_words
from runner.store.queries import Alike, Summary

#: Columns of a table where no terminal says how many there are.
PIPE_WIDTH = 200


class _Unbreakable:
    """A stream whose reader may go away: the work goes on without its progress."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, if anybody still reads."""
        with contextlib.suppress(BrokenPipeError):
            return self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, if anybody still reads."""
        with contextlib.suppress(BrokenPipeError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


out = Console(file=cast(TextIO, _Unbreakable(sys.stdout)), highlight=False, soft_wrap=True)
if not out.is_terminal:
    out.width = PIPE_WIDTH
err = Console(file=cast(TextIO, _Unbreakable(sys.stderr)), highlight=False, soft_wrap=True)

#: What a paused batch waits for, and the command that goes on once it is mended.
PAUSE_ADVICE: Mapping[str, tuple[str, str]] = {
    "insufficient_credits": ("the account has not enough credits", "add credits"),
    "unauthorized": ("the Router refuses the API key", "check COMFY_API_KEY"),
    "forbidden": ("the account may not do this", "ask whoever manages the account"),
    "not_enabled": ("the Router is not enabled for this account", "ask Comfy to enable it"),
    "unreachable": ("the Router cannot be reached", "check the network"),
    "storage": ("the media cannot be written", "free some space, or mend the folder or the object store"),
    "failing_alike": ("the rows fail alike, so the rest was not sent", "mend the manifest or the model's fields"),
    "max_cost": ("the next row could pass --max-cost", "run the same manifest with a larger --max-cost"),
    "user": ("paused by you", "nothing needs mending"),
}


def print_json(document: Any) -> None:
    """One JSON document on stdout."""
    # A console that cannot print every character gets them as JSON's own escapes.
    plain = (sys.stdout.encoding or "").lower().replace("-", "") not in {"utf8", "utf16"}
    sys.stdout.write(json.dumps(document, ensure_ascii=plain, indent=2) + "\n")
    sys.stdout.flush()


def moment(seconds: float | None) -> str | None:
    """Unix seconds as RFC 3339 in UTC."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def summary_document(summary: Summary) -> dict[str, Any]:
    """The JSON summary of `run`, `submit` and `status`."""
    batch, counts = summary.batch, summary.counts
    plain = ("pending", "downloading", "succeeded", "failed", "cancelled", "expired", "held")
    jobs = {"total": counts.total, "in_flight": counts.in_flight}
    jobs |= {name: counts[JobState(name)] for name in plain}
    order = ("total", "pending", "in_flight", *plain[1:])
    return {
        "batch": batch.id,
        "name": batch.name,
        "state": batch.state.value,
        "pause_reason": batch.pause_reason,
        "jobs": {name: jobs[name] for name in order},
        "charges": {charge.value: count for charge, count in summary.charges.items()},
        "assets": {
            "expected": sum(summary.assets.values()),
            "saved": summary.assets[AssetState.SAVED],
            "failed": summary.assets[AssetState.FAILED],
        },
        "output_dir": batch.output_dir,
        "started_at": moment(batch.started_at),
        "finished_at": moment(batch.finished_at),
        "cost": {
            "currency": "USD",
            **{charge.value: _cost_document(summary, charge) for charge in (Charge.BILLED, Charge.POSSIBLE)},
        },
    }


def _cost_document(summary: Summary, charge: Charge) -> dict[str, Any]:
    cost = summary.costs.get(charge)
    if cost is None:
        return {"min_amount": "0", "max_amount": "0", "unknown_jobs": 0}
    return {"min_amount": amount_text(cost.low), "max_amount": amount_text(cost.high), "unknown_jobs": cost.unknown}


def exit_status(summary: Summary) -> int:
    """0 when every job succeeded with its media, 1 when the batch ended otherwise, 3 when it has not ended."""
    if summary.batch.state is not BatchState.FINISHED:
        return 3
    return 0 if summary.succeeded else 1


def print_summary(summary: Summary, reasons: list[Alike]) -> None:
    """The end of a run, for people."""
    document = summary_document(summary)
    jobs, assets, charges = document["jobs"], document["assets"], document["charges"]
    parts = [f"{jobs['succeeded']:,} of {jobs['total']:,} succeeded"]
    parts += [
        f"{jobs[name]:,} {label}"
        for name, label in (
            ("failed", "failed"),
            ("cancelled", "cancelled"),
            ("expired", "expired"),
            ("held", "held"),
            ("in_flight", "in flight"),
            ("downloading", "downloading"),
            ("pending", "waiting"),
        )
        if jobs[name]
    ]
    out.print(f"[bold]{escape(summary.batch.name)}[/]: {', '.join(parts)}")
    out.print(f"  media    {assets['saved']:,} of {assets['expected']:,} saved" + _lost(assets["failed"]))
    billed, possible = (_cost_words(summary, charge) for charge in (Charge.BILLED, Charge.POSSIBLE))
    out.print(
        f"  charges  {charges['billed']:,} billed{billed}, {charges['possible']:,} possible{possible}, "
        f"{charges['unbilled']:,} not"
    )
    out.print(f"  output   {escape(document['output_dir'])}")
    for alike in reasons[:6]:
        out.print(f"  {alike.state:8} {escape(alike_words(alike))}")


def _cost_words(summary: Summary, charge: Charge) -> str:
    """` ($0.72)`, or less exactly where less is known; nothing where nothing is."""
    cost = summary.costs.get(charge)
    if cost is None or (not cost.high and cost.unknown):
        return ""
    unknown = f"; unknown for {cost.unknown:,}" if cost.unknown else ""
    return f" ({spread(cost.low, cost.high)}{unknown})"


def _lost(count: int) -> str:
    return f", {count:,} lost (generated and paid, but the link gave no file)" if count else ""


def print_next(summary: Summary) -> None:
    """What to type next, where there is something to do."""
    batch, counts = summary.batch, summary.counts
    name = batch.name
    if batch.state is BatchState.PAUSED:
        what, mend = PAUSE_ADVICE.get(batch.pause_reason or "", (batch.pause_reason or "paused", "see why"))
        detail = f" ({batch.pause_detail})" if batch.pause_detail and batch.pause_detail != what else ""
        err.print(f"Paused: {escape(what + detail)}.")
        # Until it is raised there is nothing to resume.
        then = "" if batch.pause_reason == "max_cost" else f", then comfy-batch resume {escape(name)}"
        err.print(f"Next: {mend}{then}")
    elif counts[JobState.HELD]:
        held = counts[JobState.HELD]
        err.print("1 job is held and waits" if held == 1 else f"{held:,} jobs are held and wait", "for your word.")
        err.print(
            f"Next: comfy-batch resume {escape(name)} takes back what is safe; "
            f"comfy-batch retry {escape(name)} --state held pays for new runs, and asks before"
        )
    elif batch.state is not BatchState.FINISHED:
        err.print(f"Next: comfy-batch resume {escape(name)}")
    elif counts[JobState.FAILED] or counts[JobState.CANCELLED] or counts[JobState.EXPIRED]:
        err.print(
            f"Next: comfy-batch export {escape(name)} shows why; comfy-batch retry {escape(name)} pays for new runs"
        )
    elif summary.assets[AssetState.FAILED]:
        err.print(f"Next: comfy-batch export {escape(name)} names the lost files and their requests")


def print_error(error: BatchError) -> None:
    """What is wrong, where, and what to do; no traceback."""
    err.print(f"[bold red]Error:[/] {escape(error.message)}")
    if isinstance(error, ManifestError):
        shown = zip_longest(error.problems, error.excerpts[: len(error.problems)])
        for problem, excerpt in shown:
            err.print(f"  {escape(str(problem))}")
            if excerpt is not None:
                _print_excerpt(excerpt)
        if error.total > len(error.problems):
            err.print(f"  … and {error.total - len(error.problems):,} more")
    if error.advice:
        err.print(f"Next: {escape(error.advice)}")


def _print_excerpt(excerpt: Excerpt) -> None:
    """The line, and below it carets at the place."""
    margin = f"{excerpt.line:>8,} │ "
    err.print(f"[dim]{margin}[/]{escape(excerpt.text)}")
    if excerpt.length:
        before, at = excerpt.text[: excerpt.start], excerpt.text[excerpt.start : excerpt.start + excerpt.length]
        # Characters of some scripts take two columns.
        err.print(f"[dim]{'│':>10}[/] {' ' * cell_len(before)}[bold red]{'^' * max(1, cell_len(at))}[/]")


def error_document(error: BatchError) -> dict[str, Any]:
    """The same for scripts."""
    document: dict[str, Any] = {"error": error.message, "advice": error.advice}
    if isinstance(error, ManifestError):
        document["problem_count"] = error.total
        document["problems"] = [
            {"line": p.line, "byte": p.byte, "field": p.field, "message": p.message, "advice": p.advice}
            for p in error.problems
        ]
    return document
