"""Asking before something is spent or given up."""

from __future__ import annotations

import typer

from runner.core.errors import UsageError


def agree(question: str) -> None:
    """Go on if the user says yes. Raises `UsageError` for a no, and where nobody can answer."""
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort:
        raise UsageError("nobody answers here, so nothing was started", advice="the same command with --yes") from None
    if not agreed:
        raise UsageError("nothing was started")
