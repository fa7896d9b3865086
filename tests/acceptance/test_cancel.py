"""Giving up a batch, and time limits: what ends, what it costs, and what is said of it."""

from __future__ import annotations

import pytest

from tests.acceptance.harness import Bench, csv_of, until

pytestmark = pytest.mark.acceptance


def test_cancel_ends_waiting_rows_unbilled_and_asks_for_running_ones(bench: Bench) -> None:
    router = bench.router(duration=120.0)
    begun = bench.do("run", bench.write("cats.csv", csv_of(6)), "--max-in-flight", "2", "--wait", "2")
    assert begun.code == 3, begun.err
    assert router.runs() == 2

    asked = bench.do("cancel", "cats")
    assert asked.code == 2
    assert "4 waiting rows end unsent. 2 requests at the Router may still be billed. Cancel cats?" in asked.err
    assert "--yes" in asked.err
    assert bench.status()["state"] == "active"

    cancelled = bench.do("cancel", "cats", "--yes", "--json")
    assert cancelled.code == 1, cancelled.err
    assert "2 requests at the Router are asked to stop; each may still be billed." in cancelled.err
    document = cancelled.document
    assert (document["state"], document["jobs"]["cancelled"]) == ("finished", 6)
    assert document["charges"] == {"unbilled": 4, "possible": 2, "billed": 0}
    assert (router.runs(), router.calls("cancel")) == (2, 2)
    router.assert_courteous()

    again = bench.do("cancel", "cats", "--yes")
    assert again.code == 0
    assert "nothing to cancel" in again.err
    assert router.calls("cancel") == 2


@pytest.mark.chaos
def test_a_batch_that_is_being_cancelled_is_cancelled_to_its_end_by_the_next_run(bench: Bench) -> None:
    router = bench.simulator("--duration", "120")
    run = bench.start("run", bench.write("cats.csv", csv_of(4)), "--max-in-flight", "2")
    router.until_calls("submit", 2, run)
    until(lambda: bench.status()["jobs"]["in_flight"] == 2, "both are sent", run)
    run.kill()
    cancelling = bench.start("cancel", "cats", "--yes")
    until(lambda: bench.status()["state"] != "active", "it begins to cancel")
    cancelling.close()
    finished = bench.do("run", "cats.csv")
    assert finished.code == 1, finished.err
    assert bench.status()["jobs"]["cancelled"] == 4
    assert router.runs() == 2


def test_a_paused_batch_sends_nothing_more_until_it_is_resumed(bench: Bench) -> None:
    router = bench.router(duration=1.0)
    run = bench.start("run", bench.write("cats.csv", csv_of(8)), "--max-in-flight", "2")
    router.until_calls("submit", 2, run)
    paused = bench.do("pause", "cats")
    assert paused.code == 0, paused.err
    assert "cats is paused" in paused.out
    assert "comfy-batch resume cats" in paused.err
    ended = run.wait()
    assert ended.code == 3
    assert "paused by you" in ended.err
    sent = router.runs()
    assert sent < 8
    assert bench.status()["jobs"]["succeeded"] == sent
    resumed = bench.do("resume", "cats")
    assert resumed.code == 0, resumed.err
    router.assert_paid_once(8)


@pytest.mark.chaos
def test_a_request_that_takes_longer_than_its_limit_is_cancelled_and_the_others_are_not(bench: Bench) -> None:
    router = bench.router(duration=0.2)
    manifest = bench.write("cats.csv", csv_of(3, "a cat, number {row}") + 'slow,"a cat [slow:300]",bfl/flux-2-pro\n')
    ran = bench.do("run", manifest, "--cancel-after", "2", "--json")
    assert ran.code == 1, ran.err
    assert (ran.document["jobs"]["succeeded"], ran.document["jobs"]["cancelled"]) == (3, 1)
    assert router.calls("cancel") == 1
    assert "cancelled" in bench.do("show", "slow").out
