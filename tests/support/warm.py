"""A warm process to start commands from: to import them takes longer than most of them run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash.programs import Nursery


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """The command, imported once."""
    with Nursery() as nursery:
        yield nursery
