"""The reference page, made from the commands and the settings: `make reference` writes it, a test compares it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from config.settings import Settings, setting_names
from runner.cli.main import app
from runner.core.types import AssetState, BatchState, Charge, JobState

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "reference.md"
_MARKUP = re.compile(r"\[/?(?:bold|dim)?\]")

_EXIT = """\
Of `run`, `resume`, `retry`, `cancel`, `watch` and `status BATCH`:

| status | means |
| --- | --- |
| 0 | every job succeeded, with its media |
| 1 | the batch ended, and some did not |
| 2 | wrong usage or a bad manifest; nothing was sent |
| 3 | not finished: paused, held, waiting, or out of `--wait` |
| 130 | interrupted |

Other commands: 0, or 2 with what is wrong on stderr. With `--json` an error is a document, too: `error`, `advice`, and
for a manifest `problem_count` and `problems` (`line`, `byte`, `field`, `message`, `advice`)."""


def page() -> str:
    """The whole page."""
    parts = [
        "# Reference",
        "Made from the program (`make reference`). `comfy-batch COMMAND --help` says the same.",
        "`--install-completion` of `comfy-batch` itself teaches the shell its commands, options and batches; "
        "`--version` prints the version.",
        *_commands(),
        "## Exit status",
        _EXIT,
        "## Words in data",
        _words(),
        "## Settings",
        "Environment variables, or lines of a file `.env` in the working folder; the environment goes first. "
        "Flags go before both.",
        _settings(),
    ]
    return "\n\n".join(parts) + "\n"


def _commands() -> Iterator[str]:
    commands = get_command(app).commands  # type: ignore[attr-defined]  # a group, since there are several
    for name, command in commands.items():
        yield f"## comfy-batch {name}"
        yield _text(command.help)
        yield from _tables(command)
        yield "```sh\n" + command.epilog.removeprefix("Example: ") + "\n```"


def _tables(command: Any) -> Iterator[str]:
    shown = [parameter for parameter in command.params if not parameter.hidden]
    if shown:
        lines = ["| argument or option | |", "| --- | --- |"]
        lines += [f"| {_spelt(parameter)} | {_meaning(parameter)} |" for parameter in shown]
        yield "\n".join(lines)


def _spelt(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar}`"
    names = ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])
    if parameter.is_flag:
        return names
    return f"{names} `{parameter.metavar}`"


def _meaning(parameter: Any) -> str:
    text = _text(parameter.help).replace("|", "\\|")
    default = parameter.default
    if parameter.param_type_name == "argument" or parameter.is_flag or default is None:
        return text
    return f"{text} Default: `{default}`."


def _text(help_: str | None) -> str:
    return _MARKUP.sub("", (help_ or "").strip())


def _words() -> str:
    words = {
        "state of a batch": BatchState,
        "state of a job": JobState,
        "charge": Charge,
        "state of a media file": AssetState,
    }
    lines = ["| | |", "| --- | --- |"]
    lines += [f"| {name} | {', '.join(f'`{value.value}`' for value in kind)} |" for name, kind in words.items()]
    return "\n".join(lines)


def _settings() -> str:
    said = _comments((ROOT / "config" / "example.env").read_text(encoding="utf-8"))
    lines = ["| variable | default | |", "| --- | --- | --- |"]
    for field, variable in setting_names().items():
        default = Settings.model_fields[field].default
        shown = "" if default is None else f"`{str(default).lower() if isinstance(default, bool) else default}`"
        lines.append(f"| `{variable}` | {shown} | {said[variable]} |")
    return "\n".join(lines)


def _comments(example: str) -> dict[str, str]:
    """What the example file says of each variable."""
    found = {}
    for block in example.split("\n\n"):
        *comments, last = block.strip().splitlines()
        name, equals, _ = last.removeprefix("# ").partition("=")
        if equals:
            found[name] = " ".join(line.removeprefix("# ") for line in comments)
    return found


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
