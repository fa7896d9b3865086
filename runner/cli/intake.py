"""A manifest becomes a batch: read once as a stream, checked, written, and only then counted as there."""

from __future__ import annotations

import json
import os
import secrets
import socket
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

from rich.markup import escape

from runner.cli.context import SIMULATED, Context
from runner.cli.editing import adopt, is_being_read, is_dead
from runner.cli.output import err
from runner.cli.progress import ReadingBar
from runner.cli.reading import CHUNK, Intake, Reading, opened, parse_template, read_template
from runner.core.errors import Interrupted, UsageError
from runner.core.jobspec import JobSpec
from runner.core.places import is_object_store
from runner.core.quotes import Shapes
from runner.core.types import BatchState
from runner.router.catalog import Exchange
from runner.store.batches import BatchRecord, NewBatch, NewJob
from runner.store.editing import Changes

#: A process that reads a manifest shows itself at least this often, in seconds.
LOADING_LEASE = 60.0
#: Bytes of a batch's name: it becomes a folder's.
LONGEST_NAME = 150
#: Seconds between two looks whether another process has read the manifest.
LOOK = 0.2


@dataclass(frozen=True, slots=True)
class Taken:
    """The batch, and how it came about."""

    batch: BatchRecord
    created: bool
    #: How the manifest differs from the one that the batch was made of; `None` where it is the same, or the first.
    changes: Changes | None = None
    blank_rows: int = 0
    #: Models whose bodies could not be checked ahead.
    unchecked: Sequence[str] = ()
    #: What is no fault but may not be what was meant.
    hints: Sequence[str] = ()


def take_in(
    context: Context,
    intake: Intake,
    router: Exchange,
    bar: ReadingBar,
    approve: Callable[[Shapes], None] | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Taken:
    """The batch of the manifest: the one that exists already, or a new one with all its rows written.

    `bar` shows how far the reading is, `approve` is shown what a new batch would pay for and raises to refuse it,
    and `interrupted` is asked whether the user wants to stop. Raises `Interrupted` then, and `ManifestError` with every
    problem of the file and of its bodies; in all three cases nothing of it remains. Raises `UsageError` when the file
    or the template cannot be read, the name is taken or the folder cannot be written, and `DiskError` where an object
    store cannot be written.
    """
    template_bytes = read_template(intake.template)
    template = parse_template(intake.template, template_bytes)
    with opened(intake.manifest) as source:
        file = bar.over(source)
        fingerprint = _fingerprint(file, intake, template_bytes)
        existing = _finished_batch(context, intake, fingerprint)
        if existing is not None:
            _refuse_other_wishes(existing, intake)
            return Taken(existing, created=False)
        with _only_reader(context, intake.manifest, f"load:{fingerprint}", interrupted) as keep_lease:
            # Another process may have read it while this one waited.
            existing = _finished_batch(context, intake, fingerprint)
            if existing is not None:
                return Taken(existing, created=False)
            before = _batch_to_edit(context, intake, fingerprint)
            batch = _begin(context, intake, fingerprint, before)

            def told(rows: int) -> None:
                if interrupted():
                    raise Interrupted(f"{intake.manifest} was not read to its end, and nothing of it was sent")
                keep_lease()
                bar.tell(rows)

            priced = approve is not None and before is None
            reading = Reading(context, intake, router, template, file.read(CHUNK), priced=priced)
            changes = _write(context, batch, reading, file, told, approve, before)
    found = context.batches.find(before.id if before is not None else batch.id)
    notes = tuple(reading.unchecked), tuple(reading.report.hints)
    return Taken(found, before is None, changes, reading.report.blank_rows, *notes)


def _finished_batch(context: Context, intake: Intake, fingerprint: str) -> BatchRecord | None:
    """The manifest's batch with all its rows, where that is what the user wants."""
    # The manifest may have been run more than once with --new: then the name tells which batch is meant.
    named = context.batches.by_name(intake.name) if intake.name is not None else None
    same = named is not None and named.fingerprint == fingerprint
    existing = named if same else context.batches.by_fingerprint(fingerprint)
    return existing if existing is not None and existing.total is not None and not intake.new else None


def _refuse_other_wishes(existing: BatchRecord, intake: Intake) -> None:
    """A batch keeps its name and its folder, so another wish would come to nothing."""
    name = intake.name or "NAME"
    advice = f"leave the flag away, or pay for a second batch: the same command with --new --name {name}"
    if intake.name is not None and intake.name != existing.name:
        raise UsageError(f"the batch of {intake.manifest} is named `{existing.name}` already", advice=advice)
    if intake.output is not None and _place_in(existing.asset_store, intake.output) != existing.output_dir:
        raise UsageError(
            f"the batch of {intake.manifest} keeps its media in {existing.output_dir} already", advice=advice
        )


@contextmanager
def _only_reader(
    context: Context, manifest: str, lease: str, interrupted: Callable[[], bool]
) -> Iterator[Callable[[], None]]:
    """Wait until no other process reads the same manifest, then keep others waiting; yields what keeps the lease."""
    host = socket.gethostname()
    holder = f"{host}:{os.getpid()}:{secrets.token_hex(4)}"
    waiting = False

    def keep() -> None:
        context.upkeep.take_lease(lease, holder, time.time(), LOADING_LEASE)

    while not context.upkeep.take_lease(lease, holder, time.time(), LOADING_LEASE):
        if interrupted():
            raise Interrupted(f"{manifest} was not read, and nothing of it was sent")
        other = context.upkeep.lease_holder(lease)
        if other and is_dead(other):
            context.upkeep.drop_lease(lease, other)
            continue
        if not waiting:
            other_host, pid, *_ = (other or "::").split(":")
            where = f"pid {pid} on {escape(other_host)}"
            err.print(f"Another process ({where}) reads {escape(manifest)} now; waiting for it.")
            waiting = True
        time.sleep(LOOK)
    try:
        yield keep
    finally:
        context.upkeep.drop_lease(lease, holder)


def _give_up(context: Context, unread: BatchRecord) -> None:
    """Remove a batch whose manifest was never read to its end, and say so. Raises `UsageError` while one is at it."""
    if is_being_read(context, unread):
        raise UsageError(
            f"another process reads {unread.manifest} for the batch `{unread.name}`",
            advice="wait for it, or name this one with --name NAME",
        )
    context.batches.discard(unread.id)


def _new_job(spec: JobSpec) -> NewJob:
    return NewJob(spec.row, spec.custom_id, spec.model, spec.body, spec.columns, spec.query)


def _write(
    context: Context,
    batch: NewBatch,
    reading: Reading,
    file: BinaryIO,
    tell: Callable[[int], None],
    approve: Callable[[Shapes], None] | None,
    before: BatchRecord | None,
) -> Changes | None:
    """Write the rows as a batch, and, where there was one before, make that the batch of these rows."""
    file.seek(0)
    try:
        total = 0
        for total in context.batches.write_rows(batch, map(_new_job, reading.rows(file)), time.time()):
            tell(total)
        reading.fail_if_faulty(file)
        columns = json.dumps(list(reading.report.columns), ensure_ascii=False)
        if before is not None:
            changes = adopt(context, before, batch, columns, approve)
            context.batches.discard(batch.id)
            return changes
        if approve is not None:
            approve(reading.shapes)
    except BaseException:
        context.batches.discard(batch.id)
        raise
    context.batches.complete(batch.id, total, columns, time.time())
    return None


def _batch_to_edit(context: Context, intake: Intake, fingerprint: str) -> BatchRecord | None:
    """The batch of the manifest's name, made of other rows or options: the manifest was edited."""
    if intake.new:
        return None
    found = context.batches.by_name(_name_for(intake))
    if found is None:
        return None
    if found.total is None:
        # Of the same manifest it is what a death has left, since this process is its only reader.
        if found.fingerprint != fingerprint:
            _give_up(context, found)
        return None
    if found.credential_id != context.credential(simulated=intake.simulated):
        context.check_credential(found)
    if found.state is BatchState.CANCELLING:
        raise UsageError(
            f"the batch `{found.name}` is being cancelled, and takes no other rows until that is over",
            advice=f"comfy-batch cancel {found.name} waits for it",
        )
    if intake.output is not None and _place_in(found.asset_store, intake.output) != found.output_dir:
        raise UsageError(
            f"the batch `{found.name}` keeps its media in {found.output_dir} already",
            advice="leave --output away, or pay for a second batch: the same command with --new",
        )
    return found


def _begin(context: Context, intake: Intake, fingerprint: str, before: BatchRecord | None) -> NewBatch:
    unfinished = context.batches.by_fingerprint(fingerprint)
    if unfinished is not None and unfinished.total is None:
        # Another process died while it wrote the rows; nothing of them was ever sent.
        context.batches.discard(unfinished.id)
    batch_id = uuid.uuid4().hex
    name = _free_name(context, intake) if before is None else f"{before.name}~{batch_id[:8]}"
    output = _place_of(context, intake, name) if before is None else before.output_dir
    check_place(context.settings.asset_store, output)
    batch = NewBatch(
        id=batch_id,
        name=name,
        fingerprint=fingerprint,
        credential_id=context.credential(simulated=intake.simulated),
        simulated=intake.simulated,
        manifest=intake.manifest.encode("utf-8", "backslashreplace").decode(),
        asset_store=context.settings.asset_store,
        output_dir=output,
    )
    context.batches.create(batch, time.time())
    return batch


def _place_of(context: Context, intake: Intake, name: str) -> str:
    """Where the media of a batch go: a folder, or an address in an object store."""
    store = context.settings.asset_store
    if intake.output is not None:
        return _place_in(store, intake.output)
    return f"{store}/{name}" if is_object_store(store) else str((context.settings.home / "output" / name).absolute())


def _place_in(store: str, output: Path) -> str:
    """The place that a user names, which in an object store is below its address."""
    return f"{store}/{output.as_posix().strip('/')}" if is_object_store(store) else str(output.absolute())


def check_place(store: str, place: str) -> None:
    """Find out whether media can be written there before anything is paid for. Raises `UsageError`, or `DiskError`
    where an object store cannot be written."""
    if is_object_store(store):
        from runner.assets.objects import ObjectSink

        ObjectSink(place).check()
    elif store == "files":
        _check_folder(Path(place))


def _check_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(
            f"media cannot be written to {folder}: {error.strerror}", advice="name another folder with --output DIR"
        ) from error


def _usable_name(name: str) -> str:
    """The name, if it can be typed, shown and made a folder's."""
    fault = None
    if name == "last":
        fault = "`last` means the newest batch"
    elif not name.strip() or name in {".", ".."} or not name.isprintable() or any(c in name for c in "/\\:"):
        fault = "a name holds no slashes, colons or control characters"
    elif len(name.encode("utf-8", "replace")) > LONGEST_NAME:
        fault = f"a name has at most {LONGEST_NAME} bytes"
    if fault is not None:
        raise UsageError(f"a batch cannot be named {name[:60]!r}: {fault}", advice="name it with --name NAME")
    return name


def _name_for(intake: Intake) -> str:
    """The name that a user gives, or that the manifest has."""
    stem = "stdin" if intake.manifest == "-" else Path(intake.manifest).stem
    return _usable_name(intake.name or (f"{stem}-simulated" if intake.simulated else stem))


def _free_name(context: Context, intake: Intake) -> str:
    """It, or with a number where it is taken: then the user asked for a second batch."""
    name = _name_for(intake)
    if context.batches.by_name(name) is None:
        return name
    names = context.batches.names_like(name)
    return next(f"{name}-{n}" for n in range(2, len(names) + 3) if f"{name}-{n}" not in names)


def _fingerprint(file: BinaryIO, intake: Intake, template: bytes) -> str:
    """The same manifest, model and template are the same batch, wherever the file lies and whatever it is called."""
    content = sha256()
    while chunk := file.read(CHUNK):
        content.update(chunk)
    file.seek(0)
    parts = (
        content.hexdigest(),
        intake.model or "",
        sha256(template).hexdigest() if intake.template else "",
        intake.delimiter,
        intake.encoding or "",
        SIMULATED if intake.simulated else "",
        # Where nothing is said the batches of earlier versions are found.
        *filter(None, (intake.query.query,)),
    )
    return sha256("\n".join(parts).encode()).hexdigest()
