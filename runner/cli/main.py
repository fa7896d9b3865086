"""The command `comfy-batch`. Heavy imports happen inside the commands, so that `--help` answers at once."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runner import __version__
from runner.cli.completion import batch_names, formats, states

if TYPE_CHECKING:
    from decimal import Decimal

    from runner.cli.context import Context
    from runner.cli.intake import Taken
    from runner.cli.reading import Intake
    from runner.core.queryparams import QueryParameters
    from runner.core.quotes import Shapes
    from runner.router.client import RouterClient
    from runner.store.batches import BatchRecord

app = typer.Typer(
    name="comfy-batch",
    help=(
        "Bulk runner for Comfy Router: each row of a CSV or JSONL file becomes one paid generation, "
        "generated once, paid once, its media on disk. After any crash the same command carries on."
    ),
    epilog="First steps: comfy-batch run examples/prompts.csv --simulate",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

#: Panels of a command's help, each as wide as its own options need.
ROWS = "Rows"
BATCH = "Batch"
COST = "Cost"
ROUTER = "Said to the Router"

Manifest = Annotated[str, typer.Argument(metavar="MANIFEST", help="A CSV or JSONL file; - reads standard input.")]
Batch = Annotated[
    str, typer.Argument(metavar="BATCH", help="A batch's name or id, or [bold]last[/].", autocompletion=batch_names)
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, nothing else.")]
Simulate = Annotated[
    bool, typer.Option("--simulate", help="Run against the bundled simulator: no key, no cost, no network.")
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model", rich_help_panel=ROWS, metavar="ID", help="Model of the rows that name none, such as bfl/flux-2-pro."
    ),
]
TemplateFile = Annotated[
    Path | None,
    typer.Option(
        "--template",
        rich_help_panel=ROWS,
        metavar="FILE",
        help="A JSON body whose strings may hold {{column}}, {{column:int}} and, for a file, {{column:base64}}.",
    ),
]
FilesBelow = Annotated[
    Path | None,
    typer.Option(
        "--files-below",
        rich_help_panel=ROWS,
        metavar="DIR",
        help="Files that the template embeds may lie below this folder, too; by default below the manifest's only.",
    ),
]
Name = Annotated[
    str | None,
    typer.Option(
        "--name", metavar="NAME", rich_help_panel=BATCH, help="The batch's name; by default the manifest's stem."
    ),
]
Output = Annotated[
    Path | None, typer.Option("--output", rich_help_panel=BATCH, metavar="DIR", help="Folder for the media.")
]
NameTemplateOption = Annotated[
    str | None,
    typer.Option(
        "--name-template",
        rich_help_panel=BATCH,
        metavar="TEMPLATE",
        help="How media are named below the folder: '{batch}/{custom_id}-{index}.{ext}'; also {row} and {model}.",
    ),
]
MaxInFlight = Annotated[
    int | None,
    typer.Option(
        "--max-in-flight", rich_help_panel=BATCH, metavar="N", min=1, help="Requests under way at a time, at most."
    ),
]
Delimiter = Annotated[
    str,
    typer.Option(
        "--delimiter", metavar="CHAR", rich_help_panel=ROWS, help="What separates the CSV's fields; 'tab' for a tab."
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option(
        "--encoding",
        metavar="NAME",
        rich_help_panel=ROWS,
        help="The manifest's encoding where it is not UTF-8, such as cp1252.",
    ),
]
New = Annotated[
    bool, typer.Option("--new", rich_help_panel=BATCH, help="A second, separately paid batch of the same manifest.")
]
MaxCost = Annotated[
    str | None,
    typer.Option(
        "--max-cost", rich_help_panel=COST, metavar="USD", help="Refuse, or pause, before the quotes add up to more."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", rich_help_panel=COST, help="Do not ask before spending.")]
Wait = Annotated[
    float | None,
    typer.Option(
        "--wait",
        rich_help_panel=BATCH,
        metavar="SECONDS",
        min=0,
        help="Stop watching after so long; the batch stays as it is.",
    ),
]

ModelProvider = Annotated[
    str | None,
    typer.Option(
        "--model-provider",
        rich_help_panel=ROUTER,
        metavar="NAME",
        help="Another provider is to serve the model, such as fal.",
    ),
]
StrictMode = Annotated[
    bool | None,
    typer.Option(
        "--strict-mode/--no-strict-mode", rich_help_panel=ROUTER, help="Bodies are in that provider's own form already."
    ),
]
RejectUnknownFields = Annotated[
    bool | None,
    typer.Option(
        "--reject-unknown-fields/--no-reject-unknown-fields",
        rich_help_panel=ROUTER,
        help="The Router refuses a body with fields that the model's schema does not have.",
    ),
]
NoCheck = Annotated[
    bool,
    typer.Option(
        "--no-check",
        rich_help_panel=ROWS,
        help="Send bodies that do not fit their model's published schema all the same.",
    ),
]
CancelAfter = Annotated[
    float | None,
    typer.Option(
        "--cancel-after",
        rich_help_panel=BATCH,
        metavar="SECONDS",
        min=1,
        help="Ask the Router once to cancel a request that takes longer.",
    ),
]


#: More is a slip of the keyboard.
MOST_DOLLARS = 10**9


@contextmanager
def reporting(*, as_json: bool = False) -> Iterator[None]:
    """What a user can mend is said in words, with the exit status that belongs to it."""
    from runner.core.errors import BatchError

    try:
        yield
    except BatchError as error:
        from runner.cli.output import error_document, print_error, print_json

        if as_json:
            print_json(error_document(error))
        print_error(error)
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt:
        # Before the work has begun; from then on it is noted, and told of.
        raise typer.Exit(130) from None


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"comfy-batch {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command(epilog="Example: comfy-batch run prompts.csv --model bfl/flux-2-pro --output pictures")
def run(
    manifest: Manifest,
    model: Model = None,
    template: TemplateFile = None,
    files_below: FilesBelow = None,
    name: Name = None,
    output: Output = None,
    name_template: NameTemplateOption = None,
    max_in_flight: MaxInFlight = None,
    delimiter: Delimiter = ",",
    encoding: Encoding = None,
    new: New = False,
    model_provider: ModelProvider = None,
    strict_mode: StrictMode = None,
    reject_unknown_fields: RejectUnknownFields = None,
    no_check: NoCheck = False,
    cancel_after: CancelAfter = None,
    max_cost: MaxCost = None,
    yes: Yes = False,
    wait: Wait = None,
    simulate: Simulate = False,
    with_flower: Annotated[
        bool,
        typer.Option("--flower", help="Run Flower beside the batch and print its address; needs no broker of yours."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Do the main job: create or resume the batch of MANIFEST, work until it ends, print a summary.

    The same manifest, model and template are the same batch: running it again resumes it, and pays for nothing twice.
    An edited manifest of the same name runs only what is new or changed in it, after saying how much that is.
    Workers of a configured broker are used where there are any; otherwise the work is done in this process.

    Exit status: 0 every job succeeded; 1 the batch ended and some did not; 2 wrong usage or a bad manifest, nothing was
    sent; 3 not finished (paused, held, waiting or out of --wait); 130 interrupted.
    """
    from runner.cli.reading import Intake

    query = _query(model_provider, strict_mode, reject_unknown_fields)
    intake = Intake(
        manifest,
        model,
        template,
        name,
        output,
        _delimiter(delimiter),
        encoding,
        new,
        simulate,
        query,
        not no_check,
        files_below,
    )
    _check_name_template(name_template)
    with reporting(as_json=as_json), _at_router(simulate, max_in_flight=max_in_flight) as context:
        from runner.cli.running import nothing_to_do, put_to_work, work
        from runner.core.types import BatchState

        taken = _take_in(context, intake, max_cost, cancel_after, name_template, yes=yes)
        batch = put_to_work(context, taken.batch)
        if batch.state is BatchState.FINISHED:
            raise typer.Exit(nothing_to_do(context, batch, as_json=as_json))
        raise typer.Exit(work(context, batch, wait=wait, as_json=as_json, with_flower=with_flower))


@app.command(epilog="Example: comfy-batch submit prompts.jsonl && comfy-batch status last")
def submit(
    manifest: Manifest,
    model: Model = None,
    template: TemplateFile = None,
    files_below: FilesBelow = None,
    name: Name = None,
    output: Output = None,
    name_template: NameTemplateOption = None,
    max_in_flight: MaxInFlight = None,
    delimiter: Delimiter = ",",
    encoding: Encoding = None,
    new: New = False,
    model_provider: ModelProvider = None,
    strict_mode: StrictMode = None,
    reject_unknown_fields: RejectUnknownFields = None,
    no_check: NoCheck = False,
    cancel_after: CancelAfter = None,
    max_cost: MaxCost = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Create or resume the batch of MANIFEST for workers that run elsewhere, and return at once."""
    from runner.cli.reading import Intake

    query = _query(model_provider, strict_mode, reject_unknown_fields)
    intake = Intake(
        manifest,
        model,
        template,
        name,
        output,
        _delimiter(delimiter),
        encoding,
        new,
        query=query,
        check=not no_check,
        files_below=files_below,
    )
    _check_name_template(name_template)
    with reporting(as_json=as_json), _at_router(False, max_in_flight=max_in_flight) as context:
        from runner.cli.output import err, print_json, summary_document
        from runner.cli.running import enqueue, put_to_work

        taken = _take_in(context, intake, max_cost, cancel_after, name_template, yes=yes)
        batch = put_to_work(context, taken.batch)
        if context.settings.broker_url is not None and not enqueue(context.settings, context, batch.credential_id):
            err.print("[bold yellow]Note:[/] the broker took no message, but workers also find jobs in the database.")
        summary = context.queries.summary(context.batches.find(batch.id))
        if as_json:
            print_json(summary_document(summary))
        else:
            total = summary.counts.total
            jobs = "1 job is" if total == 1 else f"{total:,} jobs are"
            typer.echo(f"{batch.name}: {jobs} in the database.")
        err.print(f"Next: comfy-batch status {batch.name}; where no worker runs yet: comfy-batch worker")


@app.command(epilog="Example: comfy-batch validate prompts.csv --model bfl/flux-2-pro")
def validate(
    manifest: Manifest,
    model: Model = None,
    template: TemplateFile = None,
    files_below: FilesBelow = None,
    delimiter: Delimiter = ",",
    encoding: Encoding = None,
    simulate: Simulate = False,
    as_json: Json = False,
) -> None:
    """Every problem of MANIFEST and, against each model's live schema, of every body. Sends nothing.

    `run` and `submit` do the same before they send anything. Exit status: 0 nothing is wrong; 2 something is.
    """
    from runner.cli.reading import Intake

    intake = Intake(
        manifest,
        model,
        template,
        None,
        None,
        _delimiter(delimiter),
        encoding,
        simulated=simulate,
        files_below=files_below,
    )
    with reporting(as_json=as_json), _at_router(simulate) as context, ExitStack() as stack:
        from runner.cli.preflight import validate as check

        # Without a key the file itself can be checked all the same.
        asks = context.settings.api_key is not None
        router = stack.enter_context(_router(context, simulated=simulate)) if asks else None
        raise typer.Exit(check(context, intake, router, as_json=as_json))


@app.command(epilog="Example: comfy-batch estimate prompts.csv --model bfl/flux-2-pro")
def estimate(
    manifest: Manifest,
    model: Model = None,
    template: TemplateFile = None,
    files_below: FilesBelow = None,
    delimiter: Delimiter = ",",
    encoding: Encoding = None,
    model_provider: ModelProvider = None,
    simulate: Simulate = False,
    as_json: Json = False,
) -> None:
    """What MANIFEST would cost by the Router's own quotes, unknown parts named as unknown. Sends nothing.

    Rows that differ in their texts only are priced once, by the shortest and the longest of them.
    """
    from runner.cli.reading import Intake

    query = _query(model_provider, None, None)
    intake = Intake(
        manifest,
        model,
        template,
        None,
        None,
        _delimiter(delimiter),
        encoding,
        simulated=simulate,
        query=query,
        files_below=files_below,
    )
    with reporting(as_json=as_json), _at_router(simulate) as context, _router(context, simulated=simulate) as router:
        from runner.cli.preflight import estimate as price

        raise typer.Exit(price(context, intake, router, as_json=as_json))


@app.command(epilog="Example: comfy-batch models bfl/flux-2-pro")
def models(
    model: Annotated[str | None, typer.Argument(metavar="[ID]", help="Show what this model takes.")] = None,
    simulate: Simulate = False,
    as_json: Json = False,
) -> None:
    """The Router's catalog, or one model's inputs."""
    with reporting(as_json=as_json), _at_router(simulate) as context, _router(context, simulated=simulate) as router:
        from runner.cli.preflight import catalog, one_model

        shown = catalog(router, as_json=as_json) if model is None else one_model(router, model, as_json=as_json)
        raise typer.Exit(shown)


@app.command(epilog="Example: comfy-batch worker --concurrency 16")
def worker(
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", "-c", metavar="N", min=1, max=256, help="Calls at a time.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="How Flower shows it; by default by machine.")
    ] = None,
) -> None:
    """Work in the foreground, for every batch of this API key, until Ctrl-C or SIGTERM.

    Start one for each core; where they run does not matter as long as they share the database and the broker. Without
    a broker it works alone on the database.
    """
    with reporting(), _at_router(False) as context:
        import os
        import socket

        from runner.cli.output import err
        from tasks.engine import run_worker

        credential = context.credential(simulated=False, keeps_window=True)
        full_name = name or f"worker-{os.getpid()}"
        full_name = full_name if "@" in full_name else f"{full_name}@{socket.gethostname()}"
        threads = concurrency or context.settings.concurrency
        err.print(f"{full_name}: {threads} calls at a time, Router {context.settings.router_base_url}")
        raise typer.Exit(run_worker(context.settings, context.database, credential, threads, full_name))


@app.command(epilog="Example: COMFY_BATCH_BROKER_URL=redis://localhost:6379/0 comfy-batch flower")
def flower(
    address: Annotated[
        str | None, typer.Option("--address", metavar="ADDRESS", help="Where to listen; loopback by default.")
    ] = None,
    port: Annotated[int | None, typer.Option("--port", metavar="N", min=0, max=65535, help="5555 by default.")] = None,
) -> None:
    """Watch the workers of the configured broker in a browser, with Flower.

    It listens on this machine only, unless COMFY_BATCH_FLOWER_BASIC_AUTH=user:password protects it.
    """
    with reporting():
        from config.settings import load_settings
        from runner.cli.context import set_up_logging
        from runner.cli.output import err
        from tasks.flower import run_flower

        settings = load_settings(flower_address=address, flower_port=port)
        set_up_logging(settings.log_level)
        raise typer.Exit(run_flower(settings, lambda address: err.print(f"Flower: {address}; Ctrl-C stops it.")))


@app.command(epilog="Example: comfy-batch resume last")
def resume(batch: Batch, wait: Wait = None, max_in_flight: MaxInFlight = None, as_json: Json = False) -> None:
    """Put everything that is owed back to work, after a crash, a pause or a week's holiday. Pays for nothing twice.

    Takes back held jobs where that is safe: reading costs nothing, and a key younger than 24 hours cannot be charged
    twice. The others stay held; status says why.
    """
    with reporting(as_json=as_json), _for_batch(batch, max_in_flight) as (context, found):
        from runner.cli.running import nothing_to_do, put_to_work, work
        from runner.core.types import BatchState

        ready = put_to_work(context, found)
        if ready.state is BatchState.FINISHED:
            raise typer.Exit(nothing_to_do(context, ready, as_json=as_json))
        raise typer.Exit(work(context, ready, wait=wait, as_json=as_json))


@app.command(epilog="Example: comfy-batch retry last --state failed --error-type provider_error")
def retry(
    batch: Batch,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help="failed, cancelled, expired or held; may be repeated.",
            autocompletion=states,
        ),
    ] = None,
    error_type: Annotated[
        list[str] | None,
        typer.Option("--error-type", metavar="TYPE", help="Only jobs that ended with it; may be repeated."),
    ] = None,
    yes: Yes = False,
    wait: Wait = None,
    as_json: Json = False,
) -> None:
    """Start new paid runs of jobs that failed, expired or were cancelled (held ones only with --state held).

    Each gets a new key, and a new key is a new charge: how many that is is said first, and asked, unless --yes.
    """
    with reporting(as_json=as_json), _for_batch(batch, None) as (context, found):
        from runner.cli.retrying import retry_jobs
        from runner.cli.running import work

        context.check_credential(found)
        if not retry_jobs(context, found, state or [], error_type or [], yes=yes):
            raise typer.Exit(0)
        context.batches.unblock(found.credential_id)
        raise typer.Exit(work(context, context.batches.find(found.id), wait=wait, as_json=as_json))


@app.command(epilog="Example: comfy-batch pause last && comfy-batch resume last")
def pause(batch: Batch, as_json: Json = False) -> None:
    """Send nothing more of the batch until it is resumed. What the Router has is still collected by whoever works."""
    with reporting(as_json=as_json), _offline() as context:
        from runner.cli.stopping import pause_batch

        raise typer.Exit(pause_batch(context, context.batches.find(batch), as_json=as_json))


@app.command(epilog="Example: comfy-batch cancel last")
def cancel(batch: Batch, yes: Yes = False, wait: Wait = None, as_json: Json = False) -> None:
    """Give the batch up: waiting rows end at once and cost nothing, running requests are asked to stop.

    Asked is not done: a request that the provider is at work on may finish, and then it is paid for and collected.
    What may still be billed is said first, and asked, unless --yes.
    """
    with reporting(as_json=as_json), _for_batch(batch, None) as (context, found):
        from runner.cli.running import work
        from runner.cli.stopping import cancel_batch

        context.check_credential(found)
        if not cancel_batch(context, found, yes=yes):
            raise typer.Exit(0)
        context.batches.unblock(found.credential_id)
        raise typer.Exit(work(context, context.batches.find(found.id), wait=wait, as_json=as_json))


@app.command(epilog="Example: comfy-batch status last --json")
def status(
    batch: Annotated[
        str | None, typer.Argument(metavar="[BATCH]", help="A batch's name or id, or last.", autocompletion=batch_names)
    ] = None,
    as_json: Json = False,
) -> None:
    """Counts of one batch, or every batch in a line. With BATCH the exit status is that of run."""
    with reporting(as_json=as_json), _offline() as context:
        from runner.cli.stories import status_of, status_of_all

        if batch is None:
            raise typer.Exit(status_of_all(context, as_json=as_json))
        raise typer.Exit(status_of(context, context.batches.find(batch), as_json=as_json))


@app.command(epilog="Example: comfy-batch watch last")
def watch(batch: Batch, wait: Wait = None, as_json: Json = False) -> None:
    """Live progress of a batch that others work on, until it ends or stops; watching changes nothing.

    On a terminal: bars by state, rate and time left, what is in flight, places in the Router's queue, cool-downs, what
    was billed so far, and failures by their reasons. Elsewhere plain lines. The exit status is that of run.
    """
    with reporting(as_json=as_json), _offline() as context:
        from runner.cli.running import look_on

        raise typer.Exit(look_on(context, context.batches.find(batch), wait=wait, as_json=as_json))


@app.command("list", epilog="Example: comfy-batch list --json")
def list_batches(as_json: Json = False) -> None:
    """Every batch in a line, the newest first."""
    with reporting(as_json=as_json), _offline() as context:
        from runner.cli.stories import status_of_all

        raise typer.Exit(status_of_all(context, as_json=as_json))


@app.command(epilog="Example: comfy-batch show prompts:17")
def show(
    job: Annotated[
        str, typer.Argument(metavar="JOB", help="BATCH:ROW, a custom_id, a job's id, its key or its request id.")
    ],
    result: Annotated[bool, typer.Option("--result", help="Print the model's output, byte for byte.")] = False,
    as_json: Json = False,
) -> None:
    """One job's whole story: every transition, key, request id, call ids, media."""
    with reporting(as_json=as_json), _offline() as context:
        from runner.cli.stories import show as tell

        if result:
            document = context.jobs.result_document(context.queries.find_jobs(job)[0].id)
            sys.stdout.buffer.write(document.body)
            raise typer.Exit(0)
        raise typer.Exit(tell(context, job, as_json=as_json))


@app.command(epilog="Example: comfy-batch export last -o outcome.csv && comfy-batch export last --failed -o again.csv")
def export(
    batch: Batch,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="csv, jsonl or parquet; by default as FILE ends, else csv, with --failed the manifest's own.",
            autocompletion=formats,
        ),
    ] = None,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="- is standard output.")] = "-",
    failed: Annotated[
        bool, typer.Option("--failed", help="A manifest of what did not succeed, to be mended and run again.")
    ] = False,
    for_spreadsheets: Annotated[
        bool,
        typer.Option("--for-spreadsheets", help="CSV: put an apostrophe before cells that would be calculated."),
    ] = False,
) -> None:
    """The manifest's own rows and columns, in order, with what became of each. A file appears whole or not at all.

    In the manifest's own format it is a manifest again, that can be run as a batch of its own. Parquet needs pyarrow.

    With --failed: only the rows that did not succeed, or lost media, as they stood in the manifest and with their
    model, ready to be mended and run as a batch of their own, which pays for each of them. As they are, retry does so.
    """
    with reporting(), _offline() as context:
        from runner.cli.harvest import export as write

        write(context, context.batches.find(batch), form, output, failed=failed, for_spreadsheets=for_spreadsheets)


@app.command(epilog="Example: comfy-batch report last")
def report(
    batch: Batch,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="By default BATCH-report.html, in this folder."),
    ] = None,
    thumbnails: Annotated[
        int,
        typer.Option("--thumbnails", metavar="N", min=0, help="So many pictures stand in the page itself, made small."),
    ] = 1000,
) -> None:
    """One page of the batch: a gallery to filter, failures with their reasons, timings, costs.

    The page needs no network and no server. Its first pictures stand in it; films, sounds and full sizes are shown from
    where they lie, so move it together with their folder. Of a large batch 10,000 rows are shown, those that did not
    succeed first of all; sums and charts are of all rows.
    """
    with reporting(), _offline() as context:
        from runner.cli.reporting import write_report

        write_report(context, context.batches.find(batch), output, thumbnails)


@app.command(epilog="Example: comfy-batch simulator --port 9000 --duration 2 --fault unavailable=10")
def simulator(
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="A loopback address.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="0 takes a free one.")] = 9000,
    duration: Annotated[
        float | None, typer.Option("--duration", min=0, metavar="SECONDS", help="How long each run takes.")
    ] = None,
    concurrency: Annotated[
        int, typer.Option("--concurrency", metavar="N", min=1, help="Runs at a time; others queue.")
    ] = 40,
    backlog: Annotated[
        int, typer.Option("--backlog", metavar="N", min=0, help="Queued requests before 429.")
    ] = 100_000,
    retention: Annotated[
        float, typer.Option("--retention", metavar="SECONDS", min=0, help="Seconds results are kept.")
    ] = 86_400.0,
    link_lifetime: Annotated[
        float, typer.Option("--link-lifetime", metavar="SECONDS", min=0, help="Seconds media links live.")
    ] = 3600.0,
    journal: Annotated[
        Path | None, typer.Option("--journal", metavar="FILE", help="File that survives a restart.")
    ] = None,
    fault: Annotated[list[str] | None, typer.Option("--fault", metavar="NAME=VALUE", help="May be repeated.")] = None,
) -> None:
    """A Router on loopback, true to the contract, with a ledger of what was billed at /_simulator/ledger.

    Point anything at it with COMFY_ROUTER_BASE_URL; any key will do. Its faults are described in docs/simulator.md.
    """
    with reporting():
        from runner.cli.simulation import serve_in_foreground

        serve_in_foreground(
            host=host,
            port=port,
            duration=duration,
            concurrency=concurrency,
            backlog=backlog,
            retention=retention,
            link_lifetime=link_lifetime,
            journal=journal,
            faults=fault or [],
        )


@app.command(epilog="Example: comfy-batch doctor")
def doctor(as_json: Json = False) -> None:
    """Check key, Router, broker, database, disk and versions, and say what to do about each."""
    with reporting(as_json=as_json):
        from runner.cli.checks import doctor as look

        raise typer.Exit(look(as_json=as_json))


def _query(model_provider: str | None, strict_mode: bool | None, reject_unknown_fields: bool | None) -> QueryParameters:
    from runner.core.errors import UsageError
    from runner.core.queryparams import ParameterFault, QueryParameters

    try:
        return QueryParameters(model_provider, strict_mode, reject_unknown_fields)
    except ParameterFault as fault:
        with reporting():
            raise UsageError(str(fault), advice="such as --model-provider fal") from None


def _check_name_template(template: str | None) -> None:
    from runner.core.errors import UsageError
    from runner.core.filenames import NameFault, NameTemplate

    if template is None:
        return
    try:
        NameTemplate.parse(template)
    except NameFault as fault:
        with reporting():
            raise UsageError(
                f"--name-template {template!r}: {fault}",
                advice="such as --name-template '{batch}/{custom_id}-{index}.{ext}'",
            ) from None


def _delimiter(text: str) -> str:
    from runner.core.errors import UsageError

    delimiter = {"tab": "\t", "\\t": "\t"}.get(text, text)
    if len(delimiter) != 1:
        with reporting():
            raise UsageError(f"the delimiter must be one character, not {text!r}", advice="such as --delimiter ';'")
    return delimiter


def _amount(text: str | None) -> Decimal | None:
    from decimal import Decimal, InvalidOperation

    from runner.core.errors import UsageError

    if text is None:
        return None
    try:
        amount = Decimal(text.strip().lstrip("$"))
    except InvalidOperation:
        amount = Decimal(-1)
    if not amount.is_finite() or not 0 <= amount < MOST_DOLLARS:
        raise UsageError(f"{text!r} is no amount of US dollars", advice="such as --max-cost 25")
    return amount


@contextmanager
def _router(context: Context, *, simulated: bool) -> Iterator[RouterClient]:
    """The Router under the key, which must be there: without one nothing can be asked."""
    from contextlib import closing

    from runner.router.client import RouterClient

    settings = context.settings
    context.credential(simulated=simulated, keeps_window=True)
    key = settings.api_key.get_secret_value() if settings.api_key else ""
    with closing(RouterClient(settings.router_base_url, key, timeout=settings.request_timeout)) as router:
        yield router


def _take_in(
    context: Context,
    intake: Intake,
    max_cost: str | None,
    cancel_after: float | None,
    name_template: str | None,
    *,
    yes: bool,
) -> Taken:
    """Read the manifest, say what came of it, and note what is wished of the batch."""
    import time

    from rich.markup import escape

    from runner.cli.intake import take_in
    from runner.cli.output import err
    from runner.cli.preflight import tell_notes
    from runner.cli.progress import ReadingBar
    from runner.cli.running import interrupts
    from runner.cli.spending import Consent, approver, somebody_is_there
    from runner.router.patience import Patient

    limit = _amount(max_cost)
    asks = somebody_is_there() and not intake.simulated
    consent = Consent(limit, yes, context.settings.confirm_above, asks)
    # Without a key nothing can be sent, so that is said before a large file is read.
    context.credential(simulated=intake.simulated)
    with (
        _router(context, simulated=intake.simulated) as router,
        ReadingBar(err) as bar,
        interrupts() as interrupted,
    ):

        def approve(shapes: Shapes) -> None:
            bar.stop()
            approver(router, consent)(shapes)

        asked = approve if consent.depends_on_cost else None
        taken = take_in(context, intake, Patient(router, time.sleep), bar, asked, interrupted.is_set)
    batch = taken.batch
    if limit is not None:
        context.batches.set_max_cost(batch.id, limit)
    if cancel_after is not None:
        context.batches.set_cancel_after(batch.id, cancel_after)
    if name_template is not None:
        context.batches.set_name_template(batch.id, name_template)
    tell_notes(taken.unchecked, taken.hints)
    if taken.created:
        blank = f", {taken.blank_rows:,} blank rows passed over" if taken.blank_rows else ""
        rows = "1 row" if batch.total == 1 else f"{batch.total:,} rows"
        err.print(f"Batch [bold]{escape(batch.name)}[/]: {rows}{blank}.")
    elif taken.changes is None:
        err.print(f"Batch [bold]{escape(batch.name)}[/] is there already; going on with it.")
    return taken


@contextmanager
def _offline() -> Iterator[Context]:
    from runner.cli.context import open_context

    with open_context() as context:
        yield context


@contextmanager
def _at_router(simulate: bool, **overrides: object) -> Iterator[Context]:
    """A context whose Router is the configured one, or a simulator started for the block."""
    from config.settings import DEFAULT_ROUTER, load_settings
    from runner.cli.context import SIMULATED, open_context
    from runner.cli.output import err

    if not simulate:
        with open_context(**overrides) as context:
            if context.settings.router_base_url != DEFAULT_ROUTER:
                err.print(f"Router: {context.settings.router_base_url}")
            yield context
        return
    from runner.cli.simulation import simulated_router

    with simulated_router(load_settings().home) as address:
        err.print(f"Simulating: nothing is paid, nothing leaves this machine ({address}).")
        with open_context(api_key=SIMULATED, router_base_url=address, **overrides) as context:
            yield context


@contextmanager
def _for_batch(reference: str, max_in_flight: int | None) -> Iterator[tuple[Context, BatchRecord]]:
    """The batch, in a context whose Router is the one it was begun at: a simulated batch brings its simulator."""
    with _offline() as context:
        simulated = context.batches.find(reference).simulated
    with _at_router(simulated, max_in_flight=max_in_flight) as context:
        context.credential(simulated=simulated, keeps_window=True)
        yield context, context.batches.find(reference)


def main() -> None:
    """Entry point of the console script."""
    for stream in (sys.stdout, sys.stderr):
        # A console that cannot print a prompt's characters shows their codes; work never ends because of its printing.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except SystemExit as stop:
        from tasks.processes import is_busy, leave

        if is_busy():
            # Calls that took longer than a stopping worker waits; nobody reads their answers any more.
            leave(int(stop.code or 0))
        raise


if __name__ == "__main__":
    main()
