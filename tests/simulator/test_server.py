"""The simulator as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx

PROGRAM = """
import pathlib, sys
from runner.simulator.config import SimulatorConfig
from runner.simulator.server import serve

config = SimulatorConfig(duration=0.0, journal=pathlib.Path(sys.argv[1]), port=int(sys.argv[2]))
serve(config, lambda base_url: print(base_url, flush=True))
"""


def start(journal: Path, port: int) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(journal), str(port)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def submit(base_url: str) -> httpx.Response:
    return httpx.post(
        f"{base_url}/v2/models/bfl/flux-2-pro/requests",
        json={"prompt": "a cat"},
        headers={"X-API-Key": "comfyui-test", "Idempotency-Key": "one"},
    )


def end(process: subprocess.Popen[str], how: signal.Signals) -> int:
    assert process.stdout is not None
    with process.stdout:
        os.kill(process.pid, how)
        return process.wait(timeout=20)


def test_killed_simulator_remembers_and_an_interrupted_one_ends_quietly(tmp_path: Path) -> None:
    journal = tmp_path / "deep" / "simulator.jsonl"
    process, base_url = start(journal, 0)
    first = submit(base_url).json()
    end(process, signal.SIGKILL)

    process, again = start(journal, int(base_url.rpartition(":")[2]))
    assert again == base_url
    second = submit(base_url)
    assert second.headers["idempotent-replayed"] == "true"
    assert second.json()["request_id"] == first["request_id"]
    ledger = httpx.get(f"{base_url}/_simulator/ledger").json()
    assert (ledger["billed"], ledger["by_key"]["one"]["sends"]) == (1, 2)
    assert end(process, signal.SIGINT) == 0
