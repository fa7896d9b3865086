"""The examples, as the README has them: each runs against the bundled simulator, without a key."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.harness import Bench, assert_files_are_as_recorded

pytestmark = pytest.mark.acceptance

EXAMPLES = Path(__file__).parents[2] / "examples"
TEMPLATE = ("--template", str(EXAMPLES / "template.json"), "--model", "bfl/flux-2-pro")
PNG = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True)
class Example:
    """One command of the README, and what it must give."""

    arguments: tuple[str, ...]
    rows: int
    models: int


EACH = (
    Example((str(EXAMPLES / "prompts.csv"),), rows=24, models=1),
    Example((str(EXAMPLES / "two-models.jsonl"),), rows=8, models=2),
    Example((str(EXAMPLES / "products.csv"), *TEMPLATE), rows=8, models=1),
)


def test_each_example_runs_with_simulate_and_gives_a_picture_a_row(bench: Bench) -> None:
    # Side by side, since each mostly waits for its simulated runs.
    homes = [str(bench.folder / f"home-{number}") for number in range(len(EACH))]
    programs = [
        bench.start("run", *example.arguments, "--simulate", "--json", COMFY_API_KEY="", COMFY_BATCH_HOME=home)
        for example, home in zip(EACH, homes, strict=True)
    ]
    for example, home, program in zip(EACH, homes, programs, strict=True):
        ended = program.wait()
        assert ended.code == 0, ended.err
        check(bench, example, home, ended.document)


def check(bench: Bench, example: Example, home: str, document: dict[str, Any]) -> None:
    """Every row has its own picture, where the database says."""
    rows = example.rows
    assert (document["jobs"]["total"], document["jobs"]["succeeded"]) == (rows, rows), example
    assert document["assets"] == {"expected": rows, "saved": rows, "failed": 0}
    bench.environment["COMFY_BATCH_HOME"] = home
    lines = bench.export()
    assert len({line["model"] for line in lines}) == example.models
    assert_files_are_as_recorded(lines, Path(document["output_dir"]))
    pictures = [Path(asset["path"]).read_bytes() for line in lines for asset in line["assets"]]
    assert len(set(pictures)) == rows
    assert all(picture.startswith(PNG) for picture in pictures)
