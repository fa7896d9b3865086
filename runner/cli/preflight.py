"""`models`, `validate` and `estimate`: what can be known before anything is sent."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from rich.markup import escape
from rich.table import Table

from runner.cli.context import Context
from runner.cli.output import err, out, print_json
from runner.cli.progress import ReadingBar
from runner.cli.reading import CHUNK, Intake, Reading, opened, parse_template, read_template
from runner.cli.spending import estimate_of
from runner.core.errors import NotFound
from runner.core.fielddocs import InputField, described_fields
from runner.core.inputs import input_schema_of
from runner.core.money import amount_text, estimate_words
from runner.core.quotes import Estimate
from runner.router.catalog import Exchange, ModelInfo, NoSuchModel, list_models, look_up_model
from runner.router.patience import Patient

#: Rows between two numbers on the bar.
TOLD_ROWS = 1000
_CHARGED: Mapping[str, str] = {"yes": "charged", "no": "free", "unknown": "perhaps charged"}


def read_through(context: Context, intake: Intake, router: Exchange | None, *, priced: bool = False) -> Reading:
    """Read and check the whole manifest and keep nothing of it; without a Router its bodies are not checked. Raises
    `ManifestError` with every problem."""
    template = parse_template(intake.template, read_template(intake.template))
    with opened(intake.manifest) as source, ReadingBar(err) as bar:
        file = bar.over(source)
        patient = Patient(router, time.sleep) if router is not None else None
        reading = Reading(context, intake, patient, template, file.read(CHUNK), priced=priced)
        file.seek(0)
        for row in reading.rows(file):
            if row.row % TOLD_ROWS == 0:
                bar.tell(row.row)
        reading.fail_if_faulty(file)
    return reading


def tell_notes(unchecked: Iterable[str], hints: Iterable[str]) -> None:
    """What is no fault, once for each model or column."""
    for model in unchecked:
        err.print(f"[bold yellow]Note:[/] {escape(model)} has no schema: its rows cannot be checked ahead.")
    for hint in hints:
        err.print(f"[bold yellow]Note:[/] {escape(hint)}")


def validate(context: Context, intake: Intake, router: Exchange | None, *, as_json: bool) -> int:
    """Every problem of the file and of every body; exit status 0 when there is none."""
    reading = read_through(context, intake, router)
    report = reading.report
    if as_json:
        print_json(
            {
                "manifest": intake.manifest,
                "rows": report.rows,
                "blank_rows": report.blank_rows,
                "models": [{"id": model, "checked": model not in reading.unchecked} for model in report.models],
                "hints": report.hints,
                "problem_count": 0,
                "problems": [],
            }
        )
        return 0
    blank = f", {report.blank_rows:,} blank rows passed over" if report.blank_rows else ""
    rows = "1 row" if report.rows == 1 else f"{report.rows:,} rows"
    out.print(f"{escape(intake.manifest)}: {rows} for {', '.join(report.models)}{blank}; nothing wrong.")
    if router is None:
        err.print("[bold yellow]Note:[/] COMFY_API_KEY is not set, so the rows were not checked against their models.")
    tell_notes(reading.unchecked if router is not None else (), report.hints)
    err.print("Next: the same command with estimate, or with run, in place of validate")
    return 0


def estimate(context: Context, intake: Intake, router: Exchange, *, as_json: bool) -> int:
    """What the manifest would cost, unknown parts named as unknown."""
    reading = read_through(context, intake, router, priced=True)
    found = estimate_of(router, reading.shapes)
    if as_json:
        print_json(_estimate_document(intake.manifest, found))
        return 0
    out.print(f"{escape(intake.manifest)}: {estimate_words(found)}.")
    if found.unknown_rows < found.rows:
        err.print("A quote is no promise: a run is charged at the price of its day.")
    return 0


def _estimate_document(manifest: str, found: Estimate) -> dict[str, Any]:
    known = found.unknown_rows < found.rows
    return {
        "manifest": manifest,
        "currency": "USD",
        "rows": found.rows,
        "quoted_rows": found.rows - found.unknown_rows,
        "min_amount": amount_text(found.low) if known else None,
        "max_amount": amount_text(found.high) if known else None,
        "unknown": [{"reason": reason, "rows": rows} for reason, rows in found.unknown.items()],
    }


def catalog(router: Exchange, *, as_json: bool) -> int:
    """Every model of the Router."""
    entries = list(list_models(Patient(router, time.sleep)))
    if as_json:
        print_json(
            {"models": [{"id": e.id, "charges_on_policy_rejection": e.charges_on_policy_rejection} for e in entries]}
        )
        return 0
    table = Table(box=None, pad_edge=False)
    for name in ("model", "a refusal by policy is"):
        table.add_column(name)
    for entry in entries:
        table.add_row(entry.id, _CHARGED.get(entry.charges_on_policy_rejection, "perhaps charged"))
    out.print(table)
    err.print("Next: comfy-batch models ID shows what one of them takes")
    return 0


def one_model(router: Exchange, model: str, *, as_json: bool) -> int:
    """What one model takes. Raises `NotFound` with models of nearly that name."""
    patient = Patient(router, time.sleep)
    info = look_up_model(patient, model)
    if isinstance(info, NoSuchModel):
        close = get_close_matches(model, [entry.id for entry in list_models(patient)], n=3, cutoff=0.4)
        raise NotFound(
            f"there is no model `{model}`: {info.detail}",
            advice=f"comfy-batch models {close[0]}" if close else "comfy-batch models",
        )
    fields = described_fields(info.document) if info.document is not None else []
    if as_json:
        print_json(_model_document(info, fields))
        return 0
    charged = _CHARGED.get(info.charges_on_policy_rejection, "perhaps charged")
    out.print(f"[bold]{escape(model)}[/]: a refusal by policy is {charged}.")
    if not fields:
        out.print("It has no schema: what it takes cannot be shown, and its rows cannot be checked ahead.")
        return 0
    table = Table(box=None, pad_edge=False)
    for name in ("field", "type", "", "allowed", "what it is"):
        table.add_column(name, overflow="fold")
    for field in fields:
        allowed = "; ".join(
            part for part in (field.allowed, f"default {field.default}" if field.default else "") if part
        )
        needed = "needed" if field.required else ""
        table.add_row(*(escape(text) for text in (field.name, field.type, needed, allowed, field.description)))
    out.print(table)
    return 0


def _model_document(info: ModelInfo, fields: list[InputField]) -> dict[str, Any]:
    return {
        "id": info.id,
        "charges_on_policy_rejection": info.charges_on_policy_rejection,
        "checked_ahead": info.document is not None and input_schema_of(info.document) is not None,
        "fields": [
            {
                "name": field.name,
                "type": field.type,
                "required": field.required,
                "default": field.default or None,
                "allowed": field.allowed or None,
                "description": field.description or None,
            }
            for field in fields
        ],
    }
