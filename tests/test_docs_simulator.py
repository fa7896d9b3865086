"""docs/simulator.md names every flag, fault and marker there is, and none that there is not."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer

from runner.cli.main import app
from runner.simulator.faults import FAULT_NAMES, Markers, parse_faults, read_markers

TEXT = (Path(__file__).parents[1] / "docs" / "simulator.md").read_text()


def section(title: str, end: str) -> str:
    """The text between a heading and the next one that begins with `end`."""
    return TEXT.split(f"\n## {title}\n")[1].split(f"\n{end}")[0]


def first_cells(text: str) -> list[str]:
    """What stands in backticks in the first cell of each line of the tables."""
    return [name for line in text.splitlines() for name in re.findall(r"^\| `([^`]+)`", line)]


def documented_faults() -> list[str]:
    """The faults of the tables below the headings of their groups."""
    return first_cells("\n".join(section("Faults", "## ").split("\n### ")[1:]))


def flags() -> dict[str, Any]:
    """The command's own flags with their defaults."""
    group: Any = typer.main.get_command(app)
    command = group.commands["simulator"]
    return {parameter.opts[0]: parameter.default for parameter in command.params if parameter.name != "help"}


def test_every_flag_is_there_in_order() -> None:
    assert first_cells(section("Flags", "## ")) == list(flags())


@pytest.mark.parametrize("flag", [flag for flag, default in flags().items() if isinstance(default, int | float | str)])
def test_each_default_is_the_one_in_force(flag: str) -> None:
    line = next(line for line in section("Flags", "## ").splitlines() if line.startswith(f"| `{flag}` "))
    default = flags()[flag]
    shown = str(int(default)) if isinstance(default, float) else str(default)
    assert line.split("|")[2].strip() == f"`{shown}`"


def test_every_fault_is_there_in_order() -> None:
    doses = [name for name in documented_faults() if name != "fail_type"]
    assert doses == [name for name in FAULT_NAMES if name != "fail_type"]
    assert "fail_type" in documented_faults()


def test_every_marker_is_there() -> None:
    documented = first_cells(section("Markers in a prompt", "## "))
    assert [re.sub(r"[\[\]]|:.*", "", marker) for marker in documented] == ["fail", "moderated", "slow", "never"]
    assert {"fail", "moderated", "slow", "never"} == {each.name for each in fields(Markers)}


def test_the_examples_of_markers_are_understood() -> None:
    written = re.findall(r"`(\[[a-z]+(?::[a-z0-9_.]+)?\])`", TEXT)
    assert len(written) >= 6
    assert all(read_markers(f"a cat {marker}") != Markers() for marker in written)


def test_the_examples_of_faults_are_understood() -> None:
    written = re.findall(r"--fault (\S+=\S+)", TEXT)
    assert written
    parse_faults(written)
