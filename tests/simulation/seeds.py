"""Many seeds, one after the other on one database, in a process of their own."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

from runner.store.engine import Database
from tests.simulation.database import open_database
from tests.simulation.simulation import Result, simulate
from tests.simulation.workers import Parts

#: Seeds that one process takes at a time.
_CHUNK = 50


def run_seeds(seeds: Sequence[int]) -> list[Result]:
    """The seeds that broke a promise."""
    # Answers that could not be written at once are part of every seed.
    logging.getLogger("comfy_batch").setLevel(logging.ERROR)
    with open_database() as database:
        return [result for seed in seeds if (result := simulate(database, seed)).failure]


def first_failure(database: Database, parts: Parts, where: Mapping[str, object], most: int) -> Result | None:
    """The first of `most` seeds that breaks a promise with these parts, under these circumstances."""
    results = (simulate(database, seed, parts, where) for seed in range(most))
    return next((result for result in results if result.failure), None)


def chunks(first: int, count: int) -> Iterator[range]:
    """The seeds in portions."""
    for start in range(first, first + count, _CHUNK):
        yield range(start, min(start + _CHUNK, first + count))
