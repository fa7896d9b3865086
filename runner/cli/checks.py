"""`doctor`: each thing that the work depends on, whether it is well, and what to do if not."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rich.markup import escape

from config.settings import DEFAULT_ROUTER, Settings, load_settings
from runner import __version__
from runner.cli.output import out, print_json
from runner.core.errors import BatchError, StoreError

#: Less free space than this is worth a word, in bytes.
LITTLE_SPACE = 2 * 1024**3


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at."""

    name: str
    ok: bool
    says: str
    cure: str | None = None


def doctor(*, as_json: bool) -> int:
    """Look at everything; the exit status is 1 when something is not well."""
    findings = list(_findings())
    if as_json:
        print_json(
            {
                "ok": all(finding.ok for finding in findings),
                "checks": [{"check": f.name, "ok": f.ok, "says": f.says, "cure": f.cure} for f in findings],
            }
        )
    else:
        for finding in findings:
            mark = "[green]ok  [/]" if finding.ok else "[red]bad [/]"
            out.print(f"{mark} {finding.name:<9} {escape(finding.says)}")
            if finding.cure:
                out.print(f"     {'':<9} → {escape(finding.cure)}")
    return 0 if all(finding.ok for finding in findings) else 1


def _findings() -> Iterator[Finding]:
    yield Finding("versions", True, f"comfy-batch {__version__}, Python {platform.python_version()}")
    try:
        settings = load_settings()
    except BatchError as error:
        yield Finding("settings", False, error.message, error.advice)
        return
    yield Finding("settings", True, f"home {settings.home.absolute()}, {settings.max_in_flight} in flight at most")
    yield _key(settings)
    yield _router(settings)
    yield _database(settings)
    yield _broker(settings)
    yield _disk(settings)
    yield from _media(settings)


def _key(settings: Settings) -> Finding:
    if settings.api_key is None:
        return Finding("key", False, "COMFY_API_KEY is not set", "export COMFY_API_KEY=…, or use --simulate")
    return Finding("key", True, f"set; its fingerprint is {settings.credential_fingerprint[:8]}")


def _router(settings: Settings) -> Finding:
    from runner.router.catalog import check_access
    from runner.router.client import RouterClient

    if settings.api_key is None:
        return Finding("router", True, f"{settings.router_base_url}, not asked without a key")
    key = settings.api_key.get_secret_value()
    with closing(RouterClient(settings.router_base_url, key, timeout=10.0)) as client:
        trouble = check_access(client)
    where = settings.router_base_url
    if trouble is None:
        return Finding("router", True, f"{where} answers" + ("" if where == DEFAULT_ROUTER else " (not the default)"))
    cure = "check COMFY_API_KEY" if "401" in trouble or "403" in trouble else "check the network, then try again"
    return Finding("router", False, f"{where}: {trouble}", cure)


def _database(settings: Settings) -> Finding:
    from runner.store.engine import Database
    from runner.store.migrate import migrate

    try:
        database = Database(settings.effective_database_url)
        with closing(database):
            migrate(database)
            where = database.url.render_as_string(hide_password=True)
    except BatchError as error:
        cure = "see COMFY_BATCH_DATABASE_URL" if isinstance(error, StoreError) else error.advice
        return Finding("database", False, error.message, cure)
    return Finding("database", True, where)


def _broker(settings: Settings) -> Finding:
    from tasks.app import build_client, ping_workers

    if settings.broker_url is None:
        return Finding("broker", True, "embedded: the work is done in the command's own process")
    try:
        workers = ping_workers(build_client(settings), 1.0)
    except BatchError as error:
        return Finding("broker", False, error.message, error.advice)
    cure = None if workers else "comfy-batch worker (run works without one, too)"
    return Finding("broker", True, f"it answers; {workers} workers at work", cure)


def _disk(settings: Settings) -> Finding:
    folder = settings.home.absolute()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not _is_writable(existing):
        return Finding("disk", False, f"{existing} cannot be written", "choose another COMFY_BATCH_HOME")
    free = shutil.disk_usage(existing).free
    cure = None if free >= LITTLE_SPACE else "free some space before a large batch"
    return Finding("disk", free >= LITTLE_SPACE, f"{free / 1024**3:.1f} GiB free at {existing}", cure)


def _media(settings: Settings) -> Iterator[Finding]:
    """Where media go, if that is not the disk."""
    from runner.core.places import is_object_store

    if not is_object_store(settings.asset_store):
        return
    from runner.assets.objects import ObjectSink

    try:
        ObjectSink(settings.asset_store).check()
    except BatchError as error:
        yield Finding("media", False, error.message, error.advice)
    else:
        yield Finding("media", True, f"{settings.asset_store} can be written")


def _is_writable(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK)
