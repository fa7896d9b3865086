"""`python -m tests.chaos`: 500 rows, four workers killed all the time, a broker emptied and restarted, a Router that
answers one call in five wrongly; then a table of what was promised and what came of it. Exit status 1 if a promise
broke, 2 if a server is missing here."""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from random import Random

from rich.console import Console

from tests.acceptance.harness import API_KEY, Bench
from tests.chaos.chaos import Chaos
from tests.chaos.report import Report, report
from tests.chaos.servers import Missing, broker, database


def play(folder: Path, rows: int, seed: int, console: Console) -> Report:
    """One run in the folder, and what came of it. Raises `Missing`, and `AssertionError` when it has no end."""
    environment = {
        "PATH": os.defpath,
        "HOME": str(folder),
        "COMFY_API_KEY": API_KEY,
        "COMFY_BATCH_HOME": str(folder / "home"),
    }
    with broker() as redis, database() as postgres, closing(Bench(folder, environment)) as bench:
        chaos = Chaos(bench, redis, postgres, rows, Random(seed), console.log)
        chaos.play()
        return report(bench, postgres, chaos.router, rows, chaos.told)


def main() -> int:
    """Parse, run, tell; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--rows", type=int, default=500, help="rows of the batch")
    parser.add_argument("--seed", type=int, help="chooses who is killed when, and which calls fail")
    chosen = parser.parse_args()
    seed = secrets.randbelow(1_000_000) if chosen.seed is None else chosen.seed
    console = Console()
    console.log(f"seed {seed}")
    folder = Path(tempfile.mkdtemp(prefix="cb-chaos-"))
    try:
        found = play(folder, chosen.rows, seed, console)
    except Missing as missing:
        console.print(f"not run: {missing}", markup=False)
        return 2
    except AssertionError as failure:
        console.print(f"{failure}\nWhat the programs said is in {folder}", markup=False)
        return 1
    console.print(found.table())
    broken = found.broken()
    for words in broken:
        console.print(f"broken: {words}", markup=False)
    console.print(f"What the programs said is in {folder}" if broken else f"Every promise held (seed {seed}).")
    if not broken:
        shutil.rmtree(folder)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
