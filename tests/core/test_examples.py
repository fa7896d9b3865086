"""The example manifests are read without a problem."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pytest

from runner.core.manifest import JobSpec, ManifestOptions, Template, read_manifest

EXAMPLES = Path(__file__).parents[2] / "examples"
FIELDS = {"prompt": "string", "width": "integer", "height": "integer", "seed": "integer", "output_format": "string"}


@pytest.mark.parametrize(
    ("name", "kind", "template", "rows"),
    [
        ("prompts.csv", "csv", None, 24),
        ("two-models.jsonl", "jsonl", None, 8),
        ("products.csv", "csv", "template.json", 8),
    ],
)
def test_an_example_reads(name: str, kind: Literal["csv", "jsonl"], template: str | None, rows: int) -> None:
    options = ManifestOptions(
        format=kind,
        model="bfl/flux-2-pro" if template else None,
        template=Template.parse((EXAMPLES / template).read_bytes()) if template else None,
    )
    items = list(read_manifest([(EXAMPLES / name).read_bytes()], options, lambda _model: FIELDS))
    jobs = [item for item in items if isinstance(item, JobSpec)]
    assert len(jobs) == len(items) == rows
    assert all(json.loads(job.body)["prompt"] for job in jobs)
