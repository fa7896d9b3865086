"""`make bench`: ours beside a plain script over the official SDK, against the bundled simulator, in one run."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from urllib.request import urlopen

#: Rows of the runs that show what starting costs.
START_ROWS = 20
#: Seconds after which a measured command is taken for hung.
LIMIT = 600


@dataclass(frozen=True)
class Measured:
    """One finished command: whole-process figures, and what the simulator counted of it."""

    wall: float
    cpu: float
    peak_mib: float
    calls: dict[str, int]
    runs: int

    @property
    def calls_per_row(self) -> float:
        """All calls, the catalog's two a model among them."""
        return sum(self.calls.values()) / max(self.runs, 1)


@contextmanager
def simulator(duration: float, concurrency: int) -> Iterator[str]:
    """A simulator in a process of its own."""
    command = [sys.executable, "-m", "runner", "simulator", "--port", "0"]
    command += ["--duration", str(duration), "--concurrency", str(concurrency)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        yield line.split(" at ")[1].split(";")[0]
    finally:
        process.terminate()
        process.wait(10)


def measure(command: list[str], base_url: str, folder: Path, **environment: str) -> Measured:
    """Run `command` to its end."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("COMFY_")}
    variables |= {"COMFY_API_KEY": "benchmark", "COMFY_ROUTER_BASE_URL": base_url, **environment}
    began = time.monotonic()
    process = subprocess.Popen(command, env=variables, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    deadline = time.monotonic() + LIMIT
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        if time.monotonic() > deadline:
            process.kill()
            raise SystemExit(f"{command} did not end")
        time.sleep(0.02)
    wall = time.monotonic() - began
    if status:
        assert process.stderr is not None
        raise SystemExit(f"{command} failed: {process.stderr.read().decode()[-2000:]}")
    with urlopen(f"{base_url}/_simulator/ledger?summary=1") as answer:
        ledger = json.load(answer)
    cpu = usage.ru_utime + usage.ru_stime
    return Measured(wall, cpu, usage.ru_maxrss / 1024, ledger["calls"], ledger["runs"])


def manifest(folder: Path, rows: int) -> Path:
    """A manifest of `rows` rows."""
    path = folder / f"rows-{rows}.csv"
    lines = "".join(f"benchmark row {row}\n" for row in range(1, rows + 1))
    path.write_text("prompt\n" + lines)
    return path


def ours(rows: int, in_flight: int, base_url: str, folder: Path) -> Measured:
    """The whole of `comfy-batch run`, from its start to its summary."""
    command = [sys.executable, "-m", "runner", "run", str(manifest(folder, rows)), "--model", "bfl/flux-2-pro"]
    command += ["--max-in-flight", str(in_flight)]
    return measure(command, base_url, folder, COMFY_BATCH_HOME=str(folder / "home"), PYTHONPATH=str(Path.cwd()))


def peer(rows: int, in_flight: int, base_url: str, folder: Path) -> Measured:
    """The whole of the script."""
    command = [sys.executable, "-m", "benchmarks.peer", str(rows), str(in_flight), str(folder)]
    return measure(command, base_url, folder, PYTHONPATH=str(Path.cwd()))


def pair(rows: int, in_flight: int, server_in_flight: int, duration: float) -> tuple[Measured, Measured]:
    """Both against a fresh simulator each."""
    measured = []
    for run in (ours, peer):
        with tempfile.TemporaryDirectory() as folder, simulator(duration, server_in_flight) as base_url:
            measured.append(run(rows, in_flight, base_url, Path(folder)))
    return measured[0], measured[1]


def show(name: str, rows: int, measured: Measured) -> None:
    """One line of figures."""
    print(
        f"  {name:<12} {measured.cpu / rows * 1000:6.1f} ms CPU a row  {rows / measured.wall:6.1f} rows/s"
        f"  {measured.calls_per_row:4.2f} calls a row  {measured.wall:6.1f} s  {measured.peak_mib:5.0f} MiB"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("--rows", type=int, default=1000, help="rows answered at once (default 1000)")
    parser.add_argument("--rounds", type=int, default=3, help="pairs of runs; the median counts (default 3)")
    parser.add_argument("--only", choices=("cpu", "makespan"))
    chosen = parser.parse_args()
    if chosen.only != "makespan":
        print(f"{chosen.rows} rows answered at once, 32 in flight, whole processes:", flush=True)
        starts = pair(START_ROWS, 32, 1000, 0.0)
        print(f"  start of each: {starts[0].cpu:.1f} s and {starts[1].cpu:.1f} s of CPU (runs of {START_ROWS} rows)")
        whole, beyond = [], []
        for _ in range(chosen.rounds):
            mine, theirs = pair(chosen.rows, 32, 1000, 0.0)
            show("comfy-batch", chosen.rows, mine)
            show("SDK script", chosen.rows, theirs)
            whole.append(mine.cpu / theirs.cpu)
            beyond.append((mine.cpu - starts[0].cpu) / (theirs.cpu - starts[1].cpu))
            print(f"  ratio of CPU {whole[-1]:.2f}; without the start {beyond[-1]:.2f}", flush=True)
        print(f"  median ratio of CPU: {median(whole):.2f}; without the start {median(beyond):.2f} (expected: 0.60)\n")
    if chosen.only != "cpu":
        print("400 rows of 4 s, 40 at a time at the Router; ideal 40.0 s:", flush=True)
        mine, theirs = pair(400, 100, 40, 4.0)
        for name, measured in (("comfy-batch", mine), ("SDK script", theirs)):
            show(name, 400, measured)
            print(f"  {'':<12} {measured.wall / 40:.2f} of the ideal", flush=True)


if __name__ == "__main__":
    main()
