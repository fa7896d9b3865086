"""`python -m tests.simulation`: thousands of seeds, or one of them with all that happens in it."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time

from tests.simulation.database import open_database
from tests.simulation.seeds import chunks, run_seeds
from tests.simulation.simulation import Result, simulate


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _sweep(first: int, count: int, jobs: int) -> int:
    began = time.monotonic()
    failures: list[Result] = []
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for done in pool.imap_unordered(run_seeds, chunks(first, count)):
            failures += done
            for result in done:
                _say(f"seed {result.seed}: {result.failure}\n  python -m tests.simulation --seed {result.seed} --trace")
    seconds = time.monotonic() - began
    _say(f"{count} seeds in {seconds:.1f} s with {jobs} processes; {len(failures)} broke a promise")
    return 1 if failures else 0


def _replay(seed: int, *, traced: bool) -> int:
    with open_database() as database:
        result = simulate(database, seed, traced=traced)
    for line in result.trace:
        _say(line)
    _say(f"seed {seed}: {result.failure or 'every promise held'} after {result.seconds:.0f} simulated seconds")
    return 1 if result.failure else 0


def main() -> int:
    """Parse and run; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seed", type=int, help="run this one only")
    parser.add_argument("--trace", action="store_true", help="say what happens in it")
    chosen = parser.parse_args()
    if chosen.seed is not None:
        return _replay(chosen.seed, traced=chosen.trace)
    return _sweep(chosen.first, chosen.seeds, chosen.jobs)


if __name__ == "__main__":
    sys.exit(main())
