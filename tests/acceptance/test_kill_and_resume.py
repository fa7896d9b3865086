"""`kill -9` at any moment, and then the same command: all of it is finished, and nothing is paid for twice."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.harness import (
    MODEL,
    Bench,
    Program,
    Router,
    assert_files_are_as_recorded,
    csv_of,
    until,
)

pytestmark = pytest.mark.acceptance


def states(lines: list[dict[str, Any]]) -> dict[str, int]:
    """How many rows of an export are in which state."""
    return dict(Counter(line["state"] for line in lines))


def test_200_rows_killed_twice_are_all_there_and_paid_once_and_a_third_run_sends_nothing(bench: Bench) -> None:
    router = bench.simulator("--duration", "0.25")
    manifest = bench.write("prompts.csv", csv_of(200))
    for wanted in (67, 134):
        runner = bench.start("run", manifest)
        router.until_calls("media", wanted, runner)
        runner.kill()

    ended = bench.do("run", manifest)

    assert ended.code == 0, ended.err
    assert "200 of 200 succeeded" in ended.out
    assert "Nothing to send" not in ended.out
    router.assert_paid_once(200)
    told = bench.do("export", "prompts", "--format", "jsonl")
    assert told.code == 0, told.err
    lines = [json.loads(line) for line in told.out.splitlines()]
    assert states(lines) == {"succeeded": 200}
    assert [line["row"] for line in lines] == list(range(1, 201))
    assert_files_are_as_recorded(lines, bench.folder / "home" / "output")

    before = router.ledger()
    again = bench.do("run", manifest)

    assert again.code == 0, again.err
    assert "Nothing to send" in again.out
    assert router.ledger() == before


def test_equal_rows_are_each_generated_though_the_first_was_finished_before_the_kill(bench: Bench) -> None:
    router = bench.router(duration=1)
    command = ("run", bench.write("cats.csv", "prompt\ncat\ncat\ncat\n"), "--model", MODEL, "--max-in-flight", "1")
    runner = bench.start(*command)
    until(lambda: router.runs() == 2, "the second row is sent", runner)
    until(lambda: bench.status()["jobs"]["succeeded"] == 1, "the first row is finished", runner)
    runner.kill()
    assert router.ledger()["billed"] < 3

    ended = bench.do("run", "cats.csv", "--model", MODEL)

    assert ended.code == 0, ended.err
    router.assert_paid_once(3)
    lines = bench.export()
    assert len({line["idempotency_key"] for line in lines}) == 3
    assert len({asset["path"] for line in lines for asset in line["assets"]}) == 3
    assert_files_are_as_recorded(lines, bench.folder / "home" / "output")


def test_resume_touches_what_was_in_flight_and_retry_what_had_failed(bench: Bench) -> None:
    router = bench.router()
    markers = [""] * 6 + ["[fail:provider_error]"] * 2 + ["[slow:4]"] * 2
    rows = [f"r{row},a lighthouse {marker}" for row, marker in enumerate(markers, 1)]
    runner = bench.start("run", bench.write("ten.csv", "\n".join(["id,prompt", *rows]) + "\n"), "--model", MODEL)
    router.until_calls("media", 6, runner)
    settled = {"succeeded": 6, "failed": 2, "in_flight": 2}
    until(lambda: settled.items() <= bench.status()["jobs"].items(), "six done, two failed, two in flight", runner)
    runner.kill()
    before = router.ledger()
    assert before["running"] == 2

    resumed = bench.do("resume", "ten", "--json")

    assert resumed.code == 1, resumed.err
    jobs = resumed.document["jobs"]
    assert (jobs["total"], jobs["succeeded"], jobs["failed"]) == (10, 8, 2)
    assert sum(count for state, count in jobs.items() if state != "total") == 10
    after = router.ledger()
    assert after["calls"]["submit"] == before["calls"]["submit"] == 10
    assert after["calls"]["media"] == 8
    assert after["by_key"].keys() == before["by_key"].keys()

    retried = bench.do("retry", "ten", "--yes", "--json")

    assert retried.code == 1, retried.err
    assert "2 new paid runs" in retried.err
    jobs = retried.document["jobs"]
    assert (jobs["total"], jobs["succeeded"], jobs["failed"]) == (10, 8, 2)
    accounts = router.ledger()["by_key"]
    assert len(accounts) == 12
    assert {account["runs"] for account in accounts.values()} == {1}
    assert {line["row"] for line in bench.export() if line["idempotency_key"] not in before["by_key"]} == {7, 8}
    router.assert_courteous()


def test_killed_before_the_submit_before_its_commit_and_in_mid_download(bench: Bench) -> None:
    router = bench.router(duration=0.2)
    assert bench.do("submit", bench.write("three.csv", csv_of(3))).code == 0
    assert router.calls("submit") == 0
    keys = {line["idempotency_key"] for line in bench.export()}

    # Before the submit has reached the server.
    router.faults(slow=5)
    runner = bench.start("run", "three.csv")
    router.until_calls("submit", 3, runner)
    runner.kill()
    assert router.runs() == 0

    # Between the server's accept and the commit of its answer, which a frozen process cannot read.
    router.faults(slow=1)
    runner = bench.start("run", "three.csv")
    router.until_calls("submit", 6, runner)
    runner.send(signal.SIGSTOP)
    until(lambda: router.runs() == 3, "three requests accepted")
    runner.kill()
    assert bench.status()["jobs"]["in_flight"] == 3
    assert {line["request_id"] for line in bench.export()} == {None}

    # In mid-download.
    router.faults(slow=0, slow_media=3)
    runner = bench.start("run", "three.csv")
    router.until_calls("media", 3, runner)
    runner.kill()
    assert bench.status()["jobs"]["downloading"] == 3
    assert {account["sends"] for account in router.ledger()["by_key"].values()} == {2}

    router.faults(slow_media=0)
    ended = bench.do("run", "three.csv")

    assert ended.code == 0, ended.err
    assert router.calls("submit") == 9
    assert router.ledger()["by_key"].keys() == keys
    router.assert_paid_once(3)
    lines = bench.export()
    assert states(lines) == {"succeeded": 3}
    assert {line["idempotency_key"] for line in lines} == keys
    assert_files_are_as_recorded(lines, bench.folder / "home" / "output")


class TestInterrupted:
    """Ten rows of which five may be in flight, and Ctrl-C once these five are sent."""

    def begin(self, bench: Bench) -> tuple[Router, Program]:
        """Five requests are known to have been accepted."""
        router = bench.router(duration=2)
        runner = bench.start("run", bench.write("ten.csv", csv_of(10)), "--max-in-flight", "5")
        until(lambda: router.runs() == 5, "five requests accepted", runner)
        return router, runner

    def test_once_sends_no_more_and_says_what_goes_on_and_how_to_resume(self, bench: Bench) -> None:
        router, runner = self.begin(bench)
        runner.send(signal.SIGINT)
        ended = runner.wait(15)

        assert ended.code == 130, ended.err
        assert "5 requests go on at the Router" in ended.err
        assert "comfy-batch resume ten" in ended.err
        assert router.runs() == 5

        assert bench.do("run", "ten.csv").code == 0
        router.assert_paid_once(10)
        assert router.calls("submit") == 10

    def test_twice_leaves_at_once_with_its_state_intact(self, bench: Bench) -> None:
        router, runner = self.begin(bench)
        # From here on the calls under way would keep it.
        router.faults(slow=5)
        router.until_calls("result", router.calls("result") + 1, runner)
        runner.send(signal.SIGINT)
        until(lambda: "Ctrl-C again leaves at once" in runner.err, "it has heard of the first", runner)
        runner.send(signal.SIGINT)

        assert runner.wait(2).code == 130
        router.faults(slow=0)
        assert router.runs() == 5
        jobs = bench.status()["jobs"]
        assert (jobs["total"], jobs["pending"], jobs["in_flight"]) == (10, 5, 5)

        assert bench.do("resume", "ten").code == 0
        router.assert_paid_once(10)


def test_a_wait_that_is_over_leaves_the_requests_which_resume_only_reads(bench: Bench) -> None:
    router = bench.router(duration=2.5)
    waited = bench.do("run", bench.write("slow.csv", csv_of(3)), "--wait", "1", "--json")

    assert waited.code == 3, waited.err
    assert "3 requests go on at the Router" in waited.err
    assert waited.document["state"] == "active"
    assert waited.document["jobs"]["in_flight"] == 3
    assert router.calls("submit") == 3

    resumed = bench.do("resume", "slow")

    assert resumed.code == 0, resumed.err
    assert router.calls("submit") == 3
    router.assert_paid_once(3)


def test_a_refused_prompt_is_submitted_once_and_charged_as_the_catalog_says(bench: Bench) -> None:
    router = bench.router()
    charges = {MODEL: "unbilled", "bfl/flux-2-flex": "billed", "recraft/recraftv3": "possible"}
    rows = [f"{model},something unkind [fail:content_policy_violation]" for model in charges]
    manifest = bench.write("unkind.csv", "\n".join(["model,prompt", *rows]) + "\n")

    first = bench.do("run", manifest)
    second = bench.do("resume", "unkind")
    third = bench.do("resume", "unkind", "--json")

    assert [first.code, second.code, third.code] == [1, 1, 1], first.err + second.err + third.err
    assert "3 failed" in first.out
    assert "content_policy_violation" in first.out
    assert "Nothing to send" in second.out
    assert third.document["jobs"]["failed"] == 3
    assert third.document["charges"] == {"unbilled": 1, "possible": 1, "billed": 1}
    lines = bench.export()
    assert {line["model"]: line["charge"] for line in lines} == charges
    assert {(line["state"], line["error_type"]) for line in lines} == {("failed", "content_policy_violation")}
    assert all(line["error_detail"] for line in lines)
    assert router.calls("submit") == 3
    assert {account["sends"] for account in router.ledger()["by_key"].values()} == {1}


@pytest.mark.chaos
def test_a_worker_told_to_stop_ends_soon_and_leaves_nothing_undone(bench: Bench) -> None:
    router = bench.router()
    rows = csv_of(2) + f"s1,a tower [slow:2.5],{MODEL}\ns2,a tower [slow:2.5],{MODEL}\n"
    assert bench.do("submit", bench.write("four.csv", rows)).code == 0
    worker = bench.start("worker")
    until(lambda: router.calls("media") >= 2 and router.runs() == 4, "two rows are done", worker)
    worker.send(signal.SIGTERM)
    ended = worker.wait(10)

    assert ended.code == 0, ended.err
    assert "Traceback" not in ended.err

    resumed = bench.do("resume", "four", "--json")

    assert resumed.code == 0, resumed.err
    router.assert_paid_once(4)
    assert_files_are_as_recorded(bench.export(), Path(resumed.document["output_dir"]))
