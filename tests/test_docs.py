"""The documentation names what there is, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.main import get_command

from config.settings import setting_names
from runner.cli.main import app
from tests.support import reference

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
COMMANDS = sorted(get_command(app).commands)  # type: ignore[attr-defined]  # a group, since there are several
#: Variables of other programs and of the tests, that pages may name.
FOREIGN = {"COMFY_BATCH_TEST_POSTGRES_URL", "COMFY_BATCH_TEST_REDIS_URL"}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_stands_in_the_readme(command: str) -> None:
    assert f"comfy-batch {command}" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("variable", sorted(setting_names().values()))
def test_every_setting_stands_in_the_example_file(variable: str) -> None:
    assert re.search(rf"^# {variable}=", (ROOT / "config" / "example.env").read_text(), re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_only_commands_and_settings_that_there_are(page: Path) -> None:
    text = page.read_text()
    named = set(re.findall(r"^(?:\$ )?comfy-batch ([a-z]+)", text, re.MULTILINE))
    named |= set(re.findall(r"`comfy-batch ([a-z]+)", text))
    assert named <= set(COMMANDS)
    variables = set(re.findall(r"\bCOMFY_(?:BATCH_|API_KEY|ROUTER_)[A-Z_]*", text)) - FOREIGN
    assert variables <= set(setting_names().values()) | {"COMFY_BATCH_"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_pages_links_lead_to_files_that_there_are(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_an_example_in_its_help(command: str) -> None:
    assert (get_command(app).commands[command].epilog or "").startswith("Example: ")  # type: ignore[attr-defined]


def test_the_reference_is_what_the_program_says() -> None:
    assert reference.PAGE.read_text(encoding="utf-8") == reference.page(), "make reference"
