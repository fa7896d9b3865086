"""The report: one page that needs nothing but itself, and the media beside it.

Nothing from a manifest or an output can run in it: texts stand in a JSON block or are escaped by the template, the
program of the page writes them as texts only, and the page's own policy allows no other program, style or host
(https://www.w3.org/TR/CSP3/).
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from runner.core.money import spread
from runner.core.types import AssetState, Charge, JobState
from runner.report.charts import Chart, durations, median, over_time
from runner.report.export import cells_of, error_type
from runner.report.thumbnails import thumbnails
from runner.report.wording import alike_words, detail_words, duration
from runner.store.queries import Alike, AssetView, JobView, ModelLine, Summary, Timing

#: Rows that the page shows; totals and charts are of all of them.
MOST_ROWS = 10_000
#: Pictures that stand in the page itself; the others are shown from where they lie.
MOST_THUMBNAILS = 1_000
#: Characters of a prompt or of a failure.
LONGEST_TEXT = 1_000
#: Characters of a text result.
LONGEST_ANSWER = 2_000
#: Characters of a result in which its text is looked for.
_MOST_READ = 1_000_000
_SHOWN_PARTS = ("image/", "video/", "audio/")


@dataclass(frozen=True)
class Material:
    """What a report is made of."""

    summary: Summary
    reasons: Sequence[Alike]
    models: Sequence[ModelLine]
    timings: Sequence[Timing]
    jobs: Iterable[JobView]
    #: Where the page will stand: links to media count from there.
    folder: Path
    #: The bytes of a job's media file that are kept in the database; `None` where they are not.
    content: Callable[[int, int], bytes | None]
    #: How many pictures stand in the page itself.
    most_thumbnails: int = MOST_THUMBNAILS


@dataclass
class Shown:
    """One row of the page, as its program reads it."""

    document: dict[str, Any]
    #: Gives the picture that may stand in the page itself.
    picture: Callable[[], bytes | None] | None = None
    thumbnail: str | None = field(default=None)


def report_page(material: Material) -> str:
    """The page. Media in files are linked, so that it can be moved together with their folder only."""
    rows = [_shown(material, job) for job in material.jobs]
    with_picture = [row for row in rows if row.picture is not None][: material.most_thumbnails]
    for row, small in zip(with_picture, thumbnails(_pictures(with_picture)), strict=True):
        if small is not None:
            row.document["thumb"] = small
    style, program = _source("report.css"), _source("report.js")
    page = _environment().get_template("report.html")
    return page.render(
        batch=material.summary.batch,
        tiles=_tiles(material),
        models=[_model_row(line, material.timings) for line in material.models],
        reasons=[(alike.state.value, alike_words(alike)) for alike in material.reasons],
        charts=list(_charts(material.timings)),
        rows=len(rows),
        total=material.summary.counts.total,
        data=Markup(_harmless_json([row.document for row in rows])),  # noqa: S704  # nothing in it can end its block
        style=Markup(style),  # noqa: S704  # our own file
        program=Markup(program),  # noqa: S704  # our own file
        policy=_policy(style, program),
    )


def _pictures(rows: Iterable[Shown]) -> Iterator[Callable[[], bytes | None]]:
    return (row.picture for row in rows if row.picture is not None)


@cache
def _environment() -> Environment:
    loader = PackageLoader("runner.report")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def _source(name: str) -> str:
    return (Path(__file__).parent / "templates" / name).read_text(encoding="utf-8")


def _policy(style: str, program: str) -> str:
    media = "'self' file: data:"
    return (
        f"default-src 'none'; script-src {_hash(program)}; style-src {_hash(style)}; img-src {media}; "
        f"media-src {media}; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _harmless_json(document: object) -> str:
    """JSON in which nothing looks like markup, for a block that a browser does not run."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    # Half a character of a pair cannot be written, and a manifest's text holds none; an answer's might.
    return text.encode("utf-8", "replace").decode("utf-8")


# ---- rows ----


def _shown(material: Material, job: JobView) -> Shown:
    document: dict[str, Any] = {
        "row": job.row,
        "id": job.custom_id,
        "model": job.model,
        "state": job.state.value,
        "reason": error_type(job) or "",
        "detail": _clipped(detail_words(job.error_detail) or job.remark or "", LONGEST_TEXT),
        "prompt": _clipped(_said(job), LONGEST_TEXT),
        "charge": job.charge,
        "took": _taken(job),
        "files": [_file(material, asset) for asset in job.assets],
    }
    if job.result_path is not None:
        document["files"].append({"href": _link(material.folder, job.result_path), "kind": "text", "lost": ""})
        document["text"] = _answer(job.result_path)
    return Shown(document, _picture(material, job))


def _said(job: JobView) -> str:
    """The row's prompt; where a template makes it, what the row gave to it."""
    cells = cells_of(job)
    given = (f"{name}: {cell}" for name, cell in cells.items() if cell and name not in ("id", "model"))
    return cells.get("prompt") or " · ".join(given)


def _taken(job: JobView) -> str:
    if job.submitted_at is None or job.finished_at is None:
        return ""
    return duration(job.finished_at - job.submitted_at, tenths=True)


def _file(material: Material, asset: AssetView) -> dict[str, str]:
    kind = next((part[:-1] for part in _SHOWN_PARTS if (asset.media_type or "").startswith(part)), "file")
    lost = "" if asset.state == AssetState.SAVED else asset.error or asset.state
    name = asset.path.rpartition("/")[2] if asset.path else f"file {asset.number}, kept in the database"
    return {"href": _link(material.folder, asset.path), "kind": kind, "lost": lost, "name": name}


def _link(folder: Path, path: str | None) -> str:
    """The file's address as seen from the page; nothing for what no browser could open."""
    if path is None or "://" in path:
        return ""
    try:
        return "./" + quote(os.path.relpath(path, folder).replace(os.sep, "/"))
    except ValueError:
        # On another drive of Windows there is no way from here to there.
        return Path(path).as_uri()


def _picture(material: Material, job: JobView) -> Callable[[], bytes | None] | None:
    for asset in job.assets:
        if asset.state == AssetState.SAVED and (asset.media_type or "").startswith("image/"):
            if asset.path is None:
                return partial(material.content, job.id, asset.number)
            return partial(_bytes_of, asset.path)
    return None


def _bytes_of(path: str) -> bytes | None:
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError):
        return None


def _answer(path: str) -> str:
    """The beginning of a result without media, which is mostly a text."""
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            read = file.read(_MOST_READ)
    except (OSError, ValueError):
        return ""
    try:
        said = "\n".join(_sayings(json.loads(read)))
    except (ValueError, RecursionError):
        said = ""
    return _clipped(said or read, LONGEST_ANSWER)


def _sayings(node: object, key: str = "") -> Iterator[str]:
    """What a text model says, by the names that models give it: `text`, `content`, `output_text`."""
    if isinstance(node, str):
        if key in {"text", "content", "output_text"}:
            yield node
    elif isinstance(node, dict):
        for name, value in node.items():
            yield from _sayings(value, str(name))
    elif isinstance(node, list):
        for value in node:
            yield from _sayings(value, key)


def _clipped(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


# ---- sums ----


def _tiles(material: Material) -> list[tuple[str, str, str]]:
    """(what, how much, more about it)."""
    summary, counts = material.summary, material.summary.counts
    open_ = sum(
        counts[state]
        for state in (JobState.PENDING, JobState.SUBMITTING, JobState.QUEUED, JobState.RUNNING, JobState.DOWNLOADING)
    )
    unhappy = [(state.value, counts[state]) for state in _UNHAPPY if counts[state]]
    tiles = [("succeeded", f"{counts[JobState.SUCCEEDED]:,}", f"of {counts.total:,} rows")]
    tiles.append(
        ("not succeeded", f"{sum(count for _, count in unhappy):,}", ", ".join(f"{n:,} {name}" for name, n in unhappy))
    )
    if open_:
        tiles.append(("not ended", f"{open_:,}", "the batch goes on"))
    lost = summary.assets[AssetState.FAILED]
    saved = summary.assets[AssetState.SAVED]
    tiles.append(("media", f"{saved:,}", f"{lost:,} lost" if lost else "saved"))
    billed = summary.charges.get(Charge.BILLED, 0)
    possible = summary.charges.get(Charge.POSSIBLE, 0)
    tiles.append(("billed", f"{billed:,}", _cost(summary, Charge.BILLED)))
    if possible:
        tiles.append(("perhaps billed", f"{possible:,}", _cost(summary, Charge.POSSIBLE)))
    taken = median(_durations(material.timings))
    if taken is not None:
        tiles.append(("a run takes", duration(taken, tenths=True), "in the middle"))
    return tiles


_UNHAPPY = (JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED, JobState.HELD)


def _cost(summary: Summary, charge: Charge) -> str:
    cost = summary.costs.get(charge)
    if cost is None or (not cost.high and cost.unknown):
        return "cost unknown" if cost is not None and cost.unknown else ""
    unknown = f", unknown for {cost.unknown:,}" if cost.unknown else ""
    return f"{spread(cost.low, cost.high)}{unknown}"


def _durations(timings: Iterable[Timing], model: str | None = None) -> list[float]:
    return [
        timing.finished_at - timing.submitted_at
        for timing in timings
        if timing.finished_at is not None
        and timing.submitted_at is not None
        and timing.kind == "succeeded"
        and model in (None, timing.model)
    ]


def _model_row(line: ModelLine, timings: Sequence[Timing]) -> dict[str, str]:
    taken = median(_durations(timings, line.model))
    cost = line.cost
    known = bool(cost.high) or not cost.unknown
    return {
        "model": line.model,
        "jobs": f"{line.jobs:,}",
        "succeeded": f"{line.succeeded:,}",
        "took": "" if taken is None else duration(taken, tenths=True),
        "cost": spread(cost.low, cost.high) + (f", unknown for {cost.unknown:,}" if cost.unknown else "")
        if known
        else "unknown",
    }


def _charts(timings: Sequence[Timing]) -> Iterator[tuple[str, str, Chart]]:
    """(title, what the axis is, drawing)."""
    for title, axis, chart in (
        ("Jobs over time", "since the first ended", over_time(timings)),
        ("How long they took", "from acceptance to the end", durations(timings)),
    ):
        if chart is not None:
            yield title, axis, chart
