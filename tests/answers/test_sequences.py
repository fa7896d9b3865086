"""Answers that come after each other, as people have met them."""

from __future__ import annotations

from collections.abc import Callable

from tests.answers.bench import Bench

Start = Callable[..., Bench]


def test_a_send_that_timed_out_then_a_busy_key_then_the_replay_are_one_run_under_one_key(start: Start) -> None:
    bench = start({"deadline_exceeded": 1, "key_busy": 1})
    bench.submit()
    bench.work()
    events = bench.show()["events"]
    assert [event["event"] for event in events] == ["unknown", "key_busy", "accepted", "result", "asset_saved"]
    assert [event.get("delay") for event in events[:2]] == [3.0, 2.0]
    assert events[2]["notes"]["idempotent-replayed"] == "true"
    (account,) = bench.router.ledger()["by_key"].values()
    assert (account["sends"], account["runs"], account["billed"]) == (3, 1, 1)


def test_a_dead_link_whose_result_has_a_fresh_one_is_saved(start: Start) -> None:
    bench = start({"dead_first_links": True, "relink": True})
    bench.submit()
    bench.work()
    said, summary = bench.status()
    assert (said.code, summary["assets"]) == (0, {"expected": 1, "saved": 1, "failed": 0})
    bench.router.assert_paid_once(1)


def test_a_link_that_stays_dead_is_said_to_be_lost_with_its_request_and_the_row_is_never_sent_anew(
    start: Start,
) -> None:
    bench = start({"dead_links": "always"})
    bench.submit()
    bench.work()
    said, summary = bench.status()
    assert (said.code, summary["assets"]) == (1, {"expected": 1, "saved": 0, "failed": 1})
    assert "1 lost (generated and paid, but the link gave no file)" in said.out
    job = bench.show()
    assert (job["state"], job["charge"], job["assets"][0]["state"]) == ("succeeded", "billed", "failed")
    assert job["request_id"] in bench.cli("show", "last:1").out
    bench.work()
    assert bench.router.ledger(summary=True)["calls"]["submit"] == 1
    bench.router.assert_paid_once(1)


def test_a_result_without_media_succeeds_and_says_why_there_is_nothing(start: Start) -> None:
    bench = start()
    bench.submit("prompt\na cat [moderated]\n")
    bench.work()
    said, summary = bench.status()
    job = bench.show()
    assert (said.code, job["state"], job["charge"], job["assets"]) == (0, "succeeded", "billed", [])
    assert summary["assets"]["expected"] == 0
    assert "oderated" in job["remark"]
    assert job["result_path"] is not None


def test_a_policy_refusal_is_charged_as_the_catalog_says_of_each_model(start: Start) -> None:
    bench = start()
    prompt = "a cat [fail:content_policy_violation]"
    rows = [f"{prompt},{model}" for model in ("bfl/flux-2-pro", "bfl/flux-2-flex", "recraft/recraftv3")]
    bench.submit("\n".join(["prompt,model", *rows, ""]))
    bench.work()
    assert [bench.show(row)["charge"] for row in (1, 2, 3)] == ["unbilled", "billed", "possible"]
    assert bench.status()[1]["charges"] == {"unbilled": 1, "possible": 1, "billed": 1}


def test_ten_refusals_alike_leave_the_rest_pending(start: Start) -> None:
    bench = start({"invalid_input": "always"})
    bench.submit("prompt\n" + "a cat\n" * 40, "--max-in-flight", "1")
    bench.work()
    summary = bench.status()[1]
    assert (summary["pause_reason"], summary["jobs"]["failed"], summary["jobs"]["pending"]) == ("failing_alike", 10, 30)
    assert summary["charges"]["unbilled"] == 40
