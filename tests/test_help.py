"""What a user sees before anything is done: help, completion, and that neither takes long."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runner import __version__

#: Libraries that take long to load, and that no help needs.
HEAVY = ("alembic", "celery", "httpx", "jinja2", "kombu", "PIL", "rich.live", "sqlalchemy", "starlette")
INSTALLED = Path(sys.executable).with_name("comfy-batch")


def said(folder: Path, *command: str, **environment: str) -> str:
    """What a program prints, started in an empty folder."""
    variables = {"PATH": os.defpath, "HOME": str(folder), "COMFY_BATCH_HOME": str(folder / "home"), **environment}
    ended = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stderr == ""
    return ended.stdout


def completed(folder: Path, typed: str) -> list[str]:
    """What bash offers for the last word of what is typed."""
    words = typed.split(" ")
    return said(
        folder,
        str(INSTALLED),
        _COMFY_BATCH_COMPLETE="complete_bash",
        COMP_WORDS=typed,
        COMP_CWORD=str(len(words) - 1),
    ).split()


def test_python_m_runner_is_the_same_command(tmp_path: Path) -> None:
    assert said(tmp_path, sys.executable, "-m", "runner", "--version") == f"comfy-batch {__version__}\n"
    assert said(tmp_path, sys.executable, "-m", "runner", "run", "--help").splitlines()[1].split()[1:] == [
        "python", "-m", "runner", "run", "[OPTIONS]", "{MANIFEST}",
    ]  # fmt: skip


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    program = """
import sys
from runner.cli.main import main
sys.argv = ["comfy-batch", "run", "--help"]
try:
    main()
finally:
    print(*sys.modules, file=open("modules", "w"))
"""
    said(tmp_path, sys.executable, "-c", program)
    loaded = set((tmp_path / "modules").read_text().split())
    assert [name for name in HEAVY if name in loaded] == []


@pytest.mark.parametrize("width", ["80", "120"])
def test_the_help_of_run_cuts_no_word_of_what_options_mean(tmp_path: Path, width: str) -> None:
    shown = said(tmp_path, str(INSTALLED), "run", "--help", COLUMNS=width)
    assert "{{column:base64}}" in shown
    assert "{batch}/{custom_id}-{index}.{ext}" in shown


def test_commands_batches_states_and_formats_are_completed(tmp_path: Path) -> None:
    assert completed(tmp_path, "comfy-batch exp") == ["export"]
    assert completed(tmp_path, "comfy-batch export last --format p") == ["parquet"]
    assert completed(tmp_path, "comfy-batch retry last --state h") == ["held"]
    # Before there is a batch nothing is made to look for one.
    assert completed(tmp_path, "comfy-batch status ") == ["last"]
    assert not (tmp_path / "home").exists()
    (tmp_path / "autumn.csv").write_text("prompt\na fox\n")
    command = (str(INSTALLED), "run", "autumn.csv", "--simulate", "--model", "bfl/flux-2-pro")
    variables = {"PATH": os.defpath, "HOME": str(tmp_path), "COMFY_BATCH_HOME": str(tmp_path / "home")}
    subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, timeout=60, check=True)
    assert completed(tmp_path, "comfy-batch status ") == ["last", "autumn-simulated"]
    assert completed(tmp_path, "comfy-batch status a") == ["autumn-simulated"]


def test_a_database_that_cannot_be_read_offers_nothing_and_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "comfy-batch.db").write_bytes(b"no database " * 1000)
    assert completed(tmp_path, "comfy-batch status ") == ["last"]
