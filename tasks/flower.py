"""Flower on the configured broker."""

from __future__ import annotations

import os
from collections.abc import Callable

from config.settings import Settings, is_loopback
from runner.core.errors import SettingsError
from tasks.app import build_client


def check_address(settings: Settings) -> None:
    """Raises `SettingsError` where Flower would listen beyond this machine unprotected."""
    if settings.flower_basic_auth is None and not is_loopback(settings.flower_address):
        raise SettingsError(
            f"Flower would listen on {settings.flower_address} for everybody",
            advice="set COMFY_BATCH_FLOWER_BASIC_AUTH=user:password, or listen on 127.0.0.1",
        )


def run_flower(settings: Settings, tell: Callable[[str], None]) -> int:
    """Serve Flower in the foreground until Ctrl-C; `tell` hears its address first. Returns the exit status.

    Raises `SettingsError` without a broker to watch, or where it would listen beyond this machine unprotected.
    """
    if settings.broker_url is None:
        raise SettingsError(
            "Flower watches a broker, and COMFY_BATCH_BROKER_URL is not set",
            advice="export COMFY_BATCH_BROKER_URL=redis://localhost:6379/0, start workers on it, then flower again",
        )
    check_address(settings)
    password = settings.flower_basic_auth.get_secret_value() if settings.flower_basic_auth else None
    arguments = [
        "flower",
        f"--address={settings.flower_address}",
        f"--port={settings.flower_port}",
        # Tells the workers to report their tasks; they go on until they are started anew.
        "--enable_events=True",
        # Batch and row stand in the arguments, and `eta` says when a poll is due.
        "--tasks_columns=name,kwargs,state,received,eta,runtime,worker",
        f"--logging={settings.log_level}",
    ]
    if password is None:
        # Flower keeps its API shut without a password. On this machine alone it may be read, and no page that a browser
        # happens to show may stop a worker.
        os.environ["FLOWER_UNAUTHENTICATED_API"] = "true"
        arguments.append("--read_only=True")
    else:
        arguments.append(f"--basic_auth={password}")
    app = build_client(settings)
    tell(f"http://{settings.flower_address}:{settings.flower_port}")
    try:
        app.start(argv=arguments)
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0
