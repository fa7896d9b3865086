"""Redis, workers in processes of their own, and Flower beside them."""

from __future__ import annotations

import json
import re
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from runner.store.engine import Database
from tests.acceptance.harness import (
    API_KEY,
    Bench,
    Program,
    answers,
    assert_files_are_as_recorded,
    csv_of,
    free_port,
    read_json,
    until,
)

pytestmark = [pytest.mark.acceptance, pytest.mark.service]


def test_200_rows_on_redis_and_postgresql_outlive_their_workers_and_are_paid_once(
    bench: Bench, redis_url: str, postgres_database: Database
) -> None:
    bench.environment["COMFY_BATCH_BROKER_URL"] = redis_url
    bench.environment["COMFY_BATCH_DATABASE_URL"] = postgres_database.url.render_as_string(hide_password=False)
    router = bench.simulator("--duration", "0.3")
    first, second = bench.start("worker"), bench.start("worker")
    submitted = bench.do("submit", bench.write("prompts.csv", csv_of(200)), "--json")
    assert submitted.code == 0, submitted.err
    assert submitted.document["jobs"]["total"] == 200

    router.until_calls("media", 67, first)
    first.kill()
    third = bench.start("worker")
    router.until_calls("media", 134, second)
    second.kill()
    third.kill()
    last = [bench.start("worker") for _ in range(2)]
    until(lambda: bench.status()["state"] == "finished", "the batch ends", last[0])

    router.assert_paid_once(200)
    summary = bench.do("status", "prompts", "--json")
    assert summary.code == 0, summary.err
    assert summary.document["jobs"]["succeeded"] == 200
    assert summary.document["assets"] == {"expected": 200, "saved": 200, "failed": 0}
    assert_files_are_as_recorded(bench.export(), Path(summary.document["output_dir"]))
    before = router.ledger()
    again = bench.do("submit", "prompts.csv")
    assert again.code == 0, again.err
    assert router.ledger() == before
    for worker in last:
        worker.send(signal.SIGTERM)
    for worker in last:
        assert worker.wait(10).code == 0


class TestFlower:
    """Two workers on Redis, Flower beside them, and a batch that takes a while: four rows at a time."""

    ROWS = 12
    TASKS = frozenset({"comfy.submit", "comfy.collect", "comfy.fetch"})
    PROMPT = "a confidential lighthouse, number {row}"

    def flower(self, bench: Bench, workers: list[Program]) -> str:
        """Flower's address, once it knows the workers."""
        port = free_port()
        program = bench.start("flower", "--port", str(port))
        url = f"http://127.0.0.1:{port}"
        until(lambda: answers(f"{url}/api/workers"), "Flower answers", program)
        names = {f"worker-{worker.process.pid}@{socket.gethostname()}" for worker in workers}
        until(lambda: names <= read_json(f"{url}/api/workers?refresh=1").keys(), "Flower names the workers", program)
        return url

    def test_it_names_workers_and_tasks_with_states_of_our_own_and_holds_no_key_prompt_or_link(
        self, bench: Bench, redis_url: str
    ) -> None:
        bench.environment["COMFY_BATCH_BROKER_URL"] = redis_url
        router = bench.router(duration=1.5)
        workers = [bench.start("worker") for _ in range(2)]
        url = self.flower(bench, workers)
        manifest = bench.write("secret.csv", csv_of(self.ROWS, self.PROMPT))
        assert bench.do("submit", manifest, "--max-in-flight", "4").code == 0

        documents: list[str] = []
        states: set[str] = set()

        def look() -> bool:
            tasks: dict[str, dict[str, Any]] = read_json(f"{url}/api/tasks?limit=1000")
            documents.append(json.dumps(tasks))
            states.update(str(task["state"]) for task in tasks.values())
            done = {task["name"] for task in tasks.values() if task["state"] == "SUCCESS"}
            return done >= self.TASKS and bench.status()["state"] == "finished"

        until(look, "the batch ends and Flower has seen each kind of task", workers[0])

        router.assert_paid_once(self.ROWS)
        assert states & {"POLLING", "DOWNLOADING"}, states
        # Flower tells the workers to report within five seconds, so that it may have missed the beginning of some.
        named = [task for task in json.loads(documents[-1]).values() if task["name"] is not None]
        for task in named:
            assert re.search(r"'batch': 'secret', 'row': \d+, 'job': \d+", task["kwargs"]), task
            assert task["args"] in {"()", "[]"}, task
        secrets = (API_KEY, "confidential", "lighthouse", "http", *router.ledger()["by_key"])
        for document in documents:
            assert [secret for secret in secrets if secret in document.lower()] == []


def test_status_warns_of_workers_at_work_that_flower_would_not_show(bench: Bench, redis_url: str) -> None:
    bench.router(duration=30.0)
    manifest = bench.write("prompts.csv", csv_of(3))
    bench.environment["COMFY_BATCH_BROKER_URL"] = redis_url
    worker = bench.start("worker")
    assert bench.do("submit", manifest).code == 0
    until(lambda: bench.status()["jobs"]["in_flight"] == 3, "the worker is at work", worker)
    assert "missing" not in bench.do("status", "prompts").out

    # Given another worker that was started without the broker
    other = bench.start("worker", COMFY_BATCH_BROKER_URL="")
    until(lambda: "2 at work" in bench.do("status", "prompts").out, "both are at work", other)
    assert "1 of 2 answer on this broker, and Flower shows no others" in bench.do("status", "prompts").out
    # and without a broker nobody asks what Flower would show
    assert "missing" not in bench.do("status", "prompts", COMFY_BATCH_BROKER_URL="").out
