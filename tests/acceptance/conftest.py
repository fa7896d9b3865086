"""A bench for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.harness import API_KEY, Bench
from tests.crash.programs import Nursery


@pytest.fixture
def bench(tmp_path: Path, nursery: Nursery) -> Iterator[Bench]:
    """A folder without batches, and an environment that holds nothing but what a user of the Router sets."""
    folder = tmp_path / "work"
    folder.mkdir()
    bench = Bench(
        folder,
        {
            "PATH": os.defpath,
            "HOME": str(tmp_path),
            "COMFY_API_KEY": API_KEY,
            "COMFY_BATCH_HOME": str(folder / "home"),
        },
        nursery=nursery,
    )
    yield bench
    bench.close()
