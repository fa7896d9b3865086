"""The steps of a job against every kind of answer: what is sent, what is kept, and what may have cost money."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import logging
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from runner.assets import AssetSink
from runner.core.addresses import is_loopback
from runner.core.errors import StoreError
from runner.core.types import Charge, JobState, Outcome, Policy, Step, Transition
from runner.core.wire import HttpRequest, NoResponse, Reply
from runner.router.media import MediaClient
from runner.store.engine import Database
from runner.store.jobs import JobStore
from runner.store.records import Claim, NewResult, SavedAsset, Wake
from tasks.pacing import FirstRead
from tasks.steps import STEPS, Runtime
from tests.support.fakes import (
    Clock,
    FakeMediaHost,
    FakeRouter,
    Media,
    Seeded,
    Stores,
    admit,
    answer,
    handle_document,
    job,
    open_stores,
    refusal,
    row_of,
    rows_of,
    seed_batch,
    status_document,
    story,
)
from tests.support.loopback import Host, response, sends

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8
JPEG = b"\xff\xd8\xff\xe0" + bytes(3000)
PAGE = b"<!doctype html><html><title>Sign in</title></html>"
DENIED = b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>'
LINK = "https://media.invalid/cat.png?sig=1"
FRESH = "https://media.invalid/cat.png?sig=2"
DROPPED = NoResponse("the connection broke off before the answer", sent=True)
REFUSED = NoResponse("the Router cannot be reached", sent=False)
ACCEPTED = answer(201, handle_document())
NOT_FOUND = refusal(404, "request_not_found")


def pictures(*links: str) -> Reply:
    return answer(200, {"images": [{"url": link, "content_type": "image/png"} for link in links]})


#: Worth resuming.
LARGE = PNG + bytes(5_000_000 - len(PNG))
TAG = '"5ca1ab1e"'
WHOLE = {"etag": TAG, "content-length": str(len(LARGE))}


class World:
    """One batch, the four steps over a real database and real files, and everything around them scripted."""

    def __init__(
        self,
        database: Database,
        folder: Path,
        router: FakeRouter,
        media: FakeMediaHost | None = None,
        *,
        count: int = 1,
        body: bytes | None = None,
        asset_store: str = "files",
        jobs: Callable[[Database], JobStore] = JobStore,
        policy: Policy | None = None,
        max_asset_bytes: int = 1_000_000,
    ) -> None:
        self.clock = Clock()
        self.router = router
        self.media = media or FakeMediaHost()
        self.folder = folder
        self.stores: Stores = open_stores(database)
        self.seeded: Seeded = seed_batch(self.stores, count, body=body, output_dir=str(folder), asset_store=asset_store)
        self.job = self.seeded.jobs[0]
        self.runtime = Runtime(
            jobs=jobs(database),
            router=router,
            media=self.media,
            owner="worker-1",
            clock=self.clock,
            sleep=self.clock.sleep,
            policy=policy or Policy(),
            claim_seconds=135.0,
            download_claim_seconds=660.0,
            max_asset_bytes=max_asset_bytes,
            first_read=FirstRead(),
            schemas={},
            sinks={},
        )

    def run(self, *, most: int = 200) -> None:
        """Play broker and sweeper until nothing is owed any more: every message, in the order of its time."""
        messages = [(self.clock.now + wake.delay, wake) for wake in admit(self.stores, self.seeded, self.clock.now)]
        for _ in range(most):
            if not messages:
                return
            messages.sort(key=lambda message: message[0])
            due, wake = messages.pop(0)
            self.clock.now = max(self.clock.now, due)
            messages += [(self.clock.now + more.delay, more) for more in self.do(wake.step, wake.job_id)]
        raise AssertionError(f"still at work after {most} steps: {self.story[-10:]}")

    def do(self, step: Step, job_id: int | None = None) -> list[Wake]:
        return STEPS[step](self.runtime, job_id or self.job)

    @property
    def row(self) -> dict[str, Any]:
        return job(self.stores, self.job)

    @property
    def story(self) -> list[str]:
        return [kind for kind, _ in story(self.stores, self.job)]

    @property
    def assets(self) -> list[dict[str, Any]]:
        return rows_of(self.stores.database, "asset", job_id=self.job)

    @property
    def result(self) -> dict[str, Any]:
        return row_of(self.stores.database, "result", job_id=self.job)

    @property
    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted(self.folder.glob("*")) if self.folder.exists()}

    def calls(self, method: str) -> list[HttpRequest]:
        return [request for request in self.router.requests if request.method == method]

    def is_at(self, state: JobState, charge: Charge) -> bool:
        return (self.row["state"], self.row["charge"]) == (state.value, charge.value)


Make = Callable[..., World]


@pytest.fixture
def world(sqlite_database: Database, tmp_path: Path) -> Make:
    """Makes a world whose Router gives the replies; `media` are its links, the rest as `World` has it."""

    def make(*replies: Any, media: dict[str, Media | Sequence[Media]] | None = None, **more: Any) -> World:
        return World(sqlite_database, tmp_path / "out", FakeRouter(*replies), FakeMediaHost(media), **more)

    return make


class TestTheWholeWay:
    def test_a_picture_takes_three_calls_and_stands_on_disk_under_its_rows_name(self, world: Make) -> None:
        w = world(ACCEPTED, pictures(LINK), media={LINK: Media(PNG, headers={"content-type": "image/png"})})
        w.run()
        assert w.is_at(JobState.SUCCEEDED, Charge.BILLED)
        assert w.files == {"cats-000001-1.png": PNG}
        assert [(request.method, request.url) for request in w.router.requests] == [
            ("POST", "https://router.invalid/v2/models/acme/paint/requests"),
            ("GET", handle_document()["response_url"]),
        ]
        assert w.media.requests == [LINK]
        (asset,) = w.assets
        assert (asset["state"], asset["path"]) == ("saved", str(w.folder / "cats-000001-1.png"))
        assert (asset["media_type"], asset["size"], bool(asset["mismatch"])) == ("image/png", len(PNG), False)
        assert w.story == ["accepted", "result", "asset_saved"]

    def test_the_result_is_kept_byte_for_byte(self, world: Make) -> None:
        body = b'{ "images":[{"url":"' + LINK.encode() + b'"}], "seed":1577134800018226901,"n":1.50 }\n'
        w = world(ACCEPTED, answer(200, body), media={LINK: Media(PNG)})
        w.run()
        assert bytes(w.result["body"]) == body
        assert w.result["content_type"] == "application/json"

    def test_many_rows_are_sent_once_each_under_a_key_of_their_own(self, world: Make) -> None:
        def play(request: HttpRequest) -> Reply:
            if request.method == "POST":
                return answer(201, handle_document(request.headers["Idempotency-Key"]))
            return answer(200, {"text": "a poem"})

        w = world(play, count=20)
        w.run()
        keys = [request.headers["Idempotency-Key"] for request in w.calls("POST")]
        assert len(keys) == len(set(keys)) == 20
        assert {row["state"] for row in rows_of(w.stores.database, "job")} == {"succeeded"}
        assert row_of(w.stores.database, "batch")["state"] == "finished"

    def test_waiting_asks_when_the_router_says_and_not_before(self, world: Make) -> None:
        times: list[float] = []

        def waiting(_request: HttpRequest) -> Reply:
            times.append(w.clock.now)
            return answer(202, status_document("IN_PROGRESS"), retry_after="7")

        w = world(ACCEPTED, waiting, waiting, waiting, pictures(LINK), media={LINK: Media(PNG)})
        w.run()
        assert [later - earlier for earlier, later in pairwise(times)] == [7.0, 7.0]
        assert w.row["state"] == "succeeded"

    def test_a_status_that_this_version_does_not_know_means_waiting(self, world: Make) -> None:
        w = world(ACCEPTED, answer(202, status_document("WARMING_UP")), pictures(LINK), media={LINK: Media(PNG)})
        w.run()
        assert w.is_at(JobState.SUCCEEDED, Charge.BILLED)

    def test_links_of_other_origins_in_the_handle_are_not_followed(self, world: Make) -> None:
        stolen = dict.fromkeys(("status_url", "response_url", "cancel_url"), "https://evil.invalid/x")
        w = world(
            answer(201, handle_document() | stolen),
            refusal(500, "internal_error"),
            answer(200, status_document("COMPLETED")),
            pictures(LINK),
            media={LINK: Media(PNG)},
        )
        w.run()
        assert w.row["state"] == "succeeded"
        assert {request.url.split("/v2/")[0] for request in w.router.requests} == {"https://router.invalid"}


class TestSubmitsWithoutAnAnswer:
    def test_three_dropped_connections_then_201_are_four_sends_of_the_same_key_and_bytes(self, world: Make) -> None:
        body = b'{"prompt":"\xc3\xa4",  "n":1.50}'
        w = world(DROPPED, DROPPED, DROPPED, ACCEPTED, pictures(LINK), media={LINK: Media(PNG)}, body=body)
        w.run()
        sends = w.calls("POST")
        assert len(sends) == 4
        assert {(send.url, send.headers["Idempotency-Key"], send.content) for send in sends} == {
            (sends[0].url, f"cb-{w.seeded.batch.id}-1-1", body)
        }
        assert w.is_at(JobState.SUCCEEDED, Charge.BILLED)
        assert len(rows_of(w.stores.database, "job")) == 1

    def test_never_answered_at_all_it_is_held_as_unknown_with_the_same_key(self, world: Make) -> None:
        w = world(lambda _: DROPPED)
        w.run()
        assert len(w.calls("POST")) == Policy().submit_attempts
        assert len({send.headers["Idempotency-Key"] for send in w.calls("POST")}) == 1
        assert w.is_at(JobState.HELD, Charge.POSSIBLE)
        assert (w.row["reason"], w.row["run"]) == ("outcome_unknown", 1)

    @pytest.mark.parametrize("page", [PAGE, b'{"request_id": "r', b""])
    def test_a_page_of_a_proxy_or_cut_json_is_no_answer(self, world: Make, page: bytes) -> None:
        w = world(answer(201, page), answer(200, page), answer(502, page), ACCEPTED, answer(200, {"text": "ok"}))
        w.run()
        assert len(w.calls("POST")) == 4
        assert w.is_at(JobState.SUCCEEDED, Charge.BILLED)

    def test_a_busy_key_waits_as_long_as_it_is_told_and_a_replay_is_no_second_request(self, world: Make) -> None:
        w = world(
            refusal(504, "deadline_exceeded", retry_after="3"),
            refusal(409, "concurrency_limit_exceeded", retry_after="2"),
            answer(201, handle_document(), idempotent_replayed="true"),
            answer(200, {"text": "ok"}),
        )
        w.run()
        assert len({(send.headers["Idempotency-Key"], send.content) for send in w.calls("POST")}) == 1
        assert w.is_at(JobState.SUCCEEDED, Charge.BILLED)
        assert w.story[:3] == ["unknown", "key_busy", "accepted"]

    def test_a_key_of_another_request_is_held_for_the_user(self, world: Make) -> None:
        w = world(refusal(409, "invalid_input", "the key was used with another body"))
        w.run()
        assert w.is_at(JobState.HELD, Charge.POSSIBLE)
        assert (w.row["reason"], len(w.calls("POST"))) == ("key_conflict", 1)
        assert w.row["error_detail"] == "the key was used with another body"

    def test_a_key_past_its_24_hours_is_not_sent_again(self, world: Make) -> None:
        w = world(DROPPED)
        (wake,) = admit(w.stores, w.seeded, w.clock.now)
        w.do(wake.step)
        w.clock.advance(24 * 3600)
        w.run()
        assert len(w.calls("POST")) == 1
        assert w.is_at(JobState.HELD, Charge.POSSIBLE)
        assert w.row["reason"] == "key_expired"

    def test_a_router_that_cannot_be_reached_pauses_the_work_and_costs_nothing(self, world: Make) -> None:
        w = world(lambda _: REFUSED)
        w.run()
        assert len(w.calls("POST")) == Policy().unreachable_attempts
        assert w.is_at(JobState.PENDING, Charge.UNBILLED)
        assert row_of(w.stores.database, "credential")["blocked"] == "unreachable"

    def test_a_send_that_was_lost_is_not_called_unbilled_by_a_later_refusal_to_connect(self, world: Make) -> None:
        w = world(DROPPED, *[REFUSED] * Policy().unreachable_attempts)
        w.run()
        assert w.row["charge"] == "possible"
        assert w.row["first_sent_at"] is not None


class TestRefusedSubmits:
    @pytest.mark.parametrize(
        ("reply", "reason"),
        [
            (refusal(422, "invalid_input", "width must be a multiple of 8"), "width must be a multiple of 8"),
            (refusal(413, "invalid_input", "too large"), "too large"),
            (refusal(404, "model_not_found", "did you mean paint-2?"), "did you mean paint-2?"),
        ],
    )
    def test_a_refusal_for_good_fails_the_job_unbilled_with_its_own_words(
        self, world: Make, reply: Reply, reason: str
    ) -> None:
        w = world(reply)
        w.run()
        assert w.is_at(JobState.FAILED, Charge.UNBILLED)
        assert (w.row["error_detail"], len(w.router.requests)) == (reason, 1)

    @pytest.mark.parametrize(
        ("reply", "whole_credential", "reason"),
        [
            (refusal(402, "insufficient_credits"), False, "insufficient_credits"),
            (refusal(401, "unauthorized"), True, "unauthorized"),
            (refusal(403, "forbidden"), True, "forbidden"),
            (refusal(403, "not_enabled", "your workspace has no access yet"), True, "not_enabled"),
        ],
    )
    def test_a_fault_of_the_account_stops_after_one_call_and_nothing_fails(
        self, world: Make, reply: Reply, whole_credential: bool, reason: str
    ) -> None:
        w = world(reply, count=30)
        w.run()
        assert len(w.router.requests) == 1
        assert {row["charge"] for row in rows_of(w.stores.database, "job")} == {"unbilled"}
        assert {row["state"] for row in rows_of(w.stores.database, "job")} <= {"pending", "submitting"}
        stopped = row_of(w.stores.database, "credential")["blocked"] if whole_credential else None
        assert (stopped or row_of(w.stores.database, "batch")["pause_reason"]) == reason

    def test_after_a_full_backlog_the_same_key_goes_out_later(self, world: Make) -> None:
        w = world(refusal(429, "queue_backlog_full", retry_after="4"), ACCEPTED, answer(200, {"text": "ok"}))
        w.run()
        assert w.row["state"] == "pending"
        w.clock.advance(4)
        w.run()
        assert w.is_at(JobState.SUCCEEDED, Charge.BILLED)
        assert len({send.headers["Idempotency-Key"] for send in w.calls("POST")}) == 1


class TestReadsThatFail:
    def test_a_request_that_stays_unknown_is_held_as_lost_and_never_sent_anew(self, world: Make) -> None:
        w = world(ACCEPTED, *[NOT_FOUND] * Policy().not_found_attempts)
        w.run()
        assert w.is_at(JobState.HELD, Charge.POSSIBLE)
        assert (w.row["reason"], w.row["request_id"]) == ("request_lost", "req-1")
        assert len(w.calls("POST")) == 1
        assert w.router.unused == 0

    def test_a_request_that_is_unknown_for_a_moment_is_collected(self, world: Make) -> None:
        w = world(ACCEPTED, NOT_FOUND, NOT_FOUND, pictures(LINK), media={LINK: Media(PNG)})
        w.run()
        assert w.is_at(JobState.SUCCEEDED, Charge.BILLED)

    def test_a_result_read_that_fails_by_itself_is_repeated(self, world: Make) -> None:
        w = world(
            ACCEPTED,
            refusal(500, "internal_error"),
            answer(200, status_document("COMPLETED")),
            pictures(LINK),
            media={LINK: Media(PNG)},
        )
        w.run()
        assert w.is_at(JobState.SUCCEEDED, Charge.BILLED)
        assert w.story == ["accepted", "read_failed", "run_succeeded", "result", "asset_saved"]
        assert w.router.requests[2].url == handle_document()["status_url"]

    def test_a_result_read_that_fails_while_the_run_goes_on_means_waiting(self, world: Make) -> None:
        w = world(
            ACCEPTED, refusal(500, "internal_error"), answer(200, status_document("IN_PROGRESS")), answer(200, {"a": 1})
        )
        w.run()
        assert w.is_at(JobState.SUCCEEDED, Charge.BILLED)

    def test_a_result_that_can_never_be_read_is_held_after_so_many_tries(self, world: Make) -> None:
        def play(request: HttpRequest) -> Reply:
            if request.method == "POST":
                return ACCEPTED
            if request.url.endswith("/status"):
                return answer(200, status_document("COMPLETED"))
            return refusal(500, "internal_error")

        w = world(play)
        w.run()
        assert w.is_at(JobState.HELD, Charge.POSSIBLE)
        assert w.row["reason"] == "unreadable"
        reads = [request for request in w.calls("GET") if not request.url.endswith("/status")]
        assert len(reads) == Policy().read_attempts
        assert len(w.calls("POST")) == 1

    def test_a_page_instead_of_the_result_is_never_taken_for_it(self, world: Make) -> None:
        page = answer(200, PAGE, content_type="text/html")
        w = world(ACCEPTED, page, answer(200, b'{"images": [{"u'), pictures(LINK), media={LINK: Media(PNG)})
        w.run()
        assert w.story == ["accepted", "unknown", "unknown", "result", "asset_saved"]
        assert w.files == {"cats-000001-1.png": PNG}

    def test_a_result_past_its_retention_is_expired_with_the_charge_possible(self, world: Make) -> None:
        w = world(ACCEPTED, answer(410, {"detail": "gone"}))
        w.run()
        assert w.is_at(JobState.EXPIRED, Charge.POSSIBLE)
        assert len(w.calls("POST")) == 1


class TestRunsThatFail:
    @pytest.mark.parametrize(
        ("flag", "charge"), [("yes", Charge.BILLED), ("no", Charge.UNBILLED), ("unknown", Charge.POSSIBLE)]
    )
    def test_a_policy_refusal_is_charged_as_the_catalog_says_and_sent_once_ever(
        self, world: Make, flag: str, charge: Charge
    ) -> None:
        w = world(
            ACCEPTED,
            refusal(400, "content_policy_violation", "the prompt was refused"),
            answer(200, status_document("COMPLETED", error_type="content_policy_violation")),
        )
        w.stores.batches.remember_model("acme/paint", flag, None, None, w.clock.now)
        w.run()
        for _ in range(2):
            w.stores.batches.resume(w.seeded.batch.id, w.clock.now, Policy())
            w.run()
        assert w.is_at(JobState.FAILED, charge)
        assert (w.row["error_type"], w.row["reason"]) == ("content_policy_violation", "run_failed")
        # The status names the bucket only; the reason stands in the answer of the result read.
        assert w.row["error_detail"] == "the prompt was refused"
        assert len(w.calls("POST")) == 1

    def test_a_run_that_never_started_is_not_billed(self, world: Make) -> None:
        w = world(
            ACCEPTED,
            refusal(504, "queue_timeout"),
            answer(200, status_document("COMPLETED", error_type="queue_timeout")),
        )
        w.run()
        assert w.is_at(JobState.FAILED, Charge.UNBILLED)

    def test_a_cancelled_run_is_cancelled(self, world: Make) -> None:
        w = world(
            ACCEPTED, refusal(409, "cancelled"), answer(200, status_document("COMPLETED", error_type="cancelled"))
        )
        w.run()
        assert w.is_at(JobState.CANCELLED, Charge.POSSIBLE)

    def test_a_kind_of_failure_that_is_new_is_kept_verbatim(self, world: Make) -> None:
        w = world(
            ACCEPTED,
            refusal(500, "moon_phase_wrong", "try at full moon"),
            answer(200, status_document("COMPLETED", error_type="moon_phase_wrong")),
        )
        w.run()
        assert w.is_at(JobState.FAILED, Charge.POSSIBLE)
        assert (w.row["error_type"], w.row["error_detail"]) == ("moon_phase_wrong", "try at full moon")


class TestDeadLinks:
    DEAD = Media(DENIED, status=403, headers={"content-type": "application/xml"})

    def test_a_dead_link_is_read_again_and_the_fresh_one_saved(self, world: Make) -> None:
        w = world(ACCEPTED, pictures(LINK), pictures(FRESH), media={LINK: self.DEAD, FRESH: Media(PNG)})
        w.run()
        assert w.is_at(JobState.SUCCEEDED, Charge.BILLED)
        assert w.files == {"cats-000001-1.png": PNG}
        assert w.media.requests == [LINK, FRESH]
        assert len(w.calls("POST")) == 1

    def test_a_link_that_is_dead_again_loses_the_file_and_not_the_result(self, world: Make) -> None:
        w = world(ACCEPTED, pictures(LINK), pictures(LINK), media={LINK: self.DEAD})
        w.run()
        assert w.is_at(JobState.SUCCEEDED, Charge.BILLED)
        (asset,) = w.assets
        assert (asset["state"], asset["path"]) == ("failed", None)
        assert "403" in asset["error"]
        assert (w.row["request_id"], len(w.calls("POST")), len(w.calls("GET"))) == ("req-1", 1, 2)
        assert w.files == {}
        assert bytes(w.result["body"])

    def test_what_was_lost_is_fetched_by_a_resume_while_the_router_keeps_the_result(self, world: Make) -> None:
        media = {LINK: [*[self.DEAD] * 2, Media(PNG)]}
        w = world(ACCEPTED, pictures(LINK), pictures(LINK), pictures(LINK), media=media)
        w.run()
        assert w.assets[0]["state"] == "failed"
        assert w.stores.batches.resume(w.seeded.batch.id, w.clock.now, Policy()) == 1
        w.run()
        assert w.is_at(JobState.SUCCEEDED, Charge.BILLED)
        assert (w.assets[0]["state"], len(w.calls("POST"))) == ("saved", 1)
        assert w.files == {"cats-000001-1.png": PNG}

    def test_a_day_later_it_stays_lost_and_nothing_is_asked(self, world: Make) -> None:
        w = world(ACCEPTED, pictures(LINK), pictures(LINK), media={LINK: self.DEAD})
        w.run()
        w.clock.advance(24 * 3600.0)
        assert w.stores.batches.resume(w.seeded.batch.id, w.clock.now, Policy()) == 0
        assert w.is_at(JobState.SUCCEEDED, Charge.BILLED)
        assert w.router.unused == 0

    def test_when_the_result_is_gone_as_well_the_rest_is_lost(self, world: Make) -> None:
        w = world(ACCEPTED, pictures(LINK), answer(410, {"detail": "gone"}), media={LINK: self.DEAD})
        w.run()
        assert w.is_at(JobState.SUCCEEDED, Charge.BILLED)
        assert w.assets[0]["state"] == "failed"

    def test_of_two_files_the_good_one_is_saved_once(self, world: Make) -> None:
        good = "https://media.invalid/good.png"
        w = world(
            ACCEPTED,
            pictures(good, LINK),
            pictures(good, FRESH),
            media={
                good: Media(PNG),
                LINK: self.DEAD,
                FRESH: self.DEAD,
            },
        )
        w.run()
        assert [asset["state"] for asset in w.assets] == ["saved", "failed"]
        assert w.media.requests.count(good) == 1
        assert w.row["state"] == "succeeded"

    def test_an_error_of_the_lost_file_never_shows_its_link(self, world: Make) -> None:
        w = world(ACCEPTED, pictures(LINK), pictures(LINK), media={LINK: self.DEAD})
        w.run()
        told = json.dumps([w.assets[0]["error"], w.row["error_detail"]])
        told += "".join(row["data"] or "" for row in rows_of(w.stores.database, "event"))
        assert "sig=" not in told


class TestWhatIsNoMedia:
    def test_a_web_page_under_a_pictures_link_is_asked_for_again_and_nothing_saved(self, world: Make) -> None:
        page = Media(PAGE, headers={"content-type": "text/html"})
        w = world(ACCEPTED, pictures(LINK), pictures(FRESH), media={LINK: page, FRESH: page})
        w.run()
        assert w.media.requests == [LINK, FRESH]
        assert w.files == {}
        assert w.assets[0]["state"] == "failed"
        assert "text/html" in w.assets[0]["error"]
        assert w.is_at(JobState.SUCCEEDED, Charge.BILLED)

    def test_a_picture_without_a_type_gets_its_extension_from_its_bytes(self, world: Make) -> None:
        link = "https://media.invalid/blob"
        w = world(
            ACCEPTED,
            pictures(link),
            media={link: Media(PNG, headers={"content-type": "application/octet-stream"})},
        )
        w.run()
        assert list(w.files) == ["cats-000001-1.png"]
        assert not w.assets[0]["mismatch"]

    def test_a_jpeg_that_calls_itself_png_is_named_by_its_bytes_and_the_mismatch_noted(self, world: Make) -> None:
        w = world(ACCEPTED, pictures(LINK), media={LINK: Media(JPEG, headers={"content-type": "image/png"})})
        w.run()
        assert w.files == {"cats-000001-1.jpg": JPEG}
        assert (w.assets[0]["media_type"], bool(w.assets[0]["mismatch"])) == ("image/jpeg", True)

    def test_a_file_beyond_the_limit_is_given_up_and_the_result_stays(self, world: Make) -> None:
        w = world(ACCEPTED, pictures(LINK), media={LINK: Media(PNG)}, max_asset_bytes=100)
        w.run()
        assert w.is_at(JobState.SUCCEEDED, Charge.BILLED)
        assert (w.assets[0]["state"], w.files) == ("failed", {})
        assert w.media.requests == [LINK]

    def test_a_link_that_nobody_can_fetch_is_said_to_be_lost(self, world: Make) -> None:
        class Unfetchable(FakeMediaHost):
            def download(self, url: str, headers: object = None) -> Any:
                raise ValueError("the link is neither https nor http")

        w = world(ACCEPTED, answer(200, {"video": {"uri": "gs://bucket/film.mp4", "mime_type": "video/mp4"}}))
        w.runtime = replace(w.runtime, media=Unfetchable())
        w.run()
        assert w.is_at(JobState.SUCCEEDED, Charge.BILLED)
        assert [asset["state"] for asset in w.assets] == ["failed"]


class TestBrokenDownloads:
    @pytest.mark.parametrize(
        "first",
        [
            Media(PNG[:400], headers={"content-length": str(len(PNG))}),
            Media(PNG[:400], breaks=True),
            Media(b""),
            Media(status=503, headers={"retry-after": "2"}),
            Media(status=429),
        ],
        ids=["cut", "broken off", "empty", "busy", "limited"],
    )
    def test_the_same_link_is_tried_again_and_the_whole_file_saved(self, world: Make, first: Media) -> None:
        w = world(ACCEPTED, pictures(LINK), media={LINK: [first, first, Media(PNG)]})
        w.run()
        assert w.files == {"cats-000001-1.png": PNG}
        assert w.media.requests == [LINK] * 3
        assert (len(w.calls("POST")), len(w.calls("GET"))) == (1, 1)

    @pytest.mark.parametrize("broken", [Media(PNG[:400], breaks=True), Media(b"")], ids=["broken off", "empty"])
    def test_one_that_never_comes_whole_leaves_no_part_behind(self, world: Make, broken: Media) -> None:
        w = world(ACCEPTED, pictures(LINK), pictures(FRESH), media={LINK: broken, FRESH: broken})
        w.run()
        assert w.is_at(JobState.SUCCEEDED, Charge.BILLED)
        assert w.media.requests.count(LINK) == Policy().asset_attempts
        assert FRESH in w.media.requests
        assert w.assets[0]["state"] == "failed"
        assert w.files == {}

    def large(self, world: Make, *media: Media) -> World:
        w = world(ACCEPTED, pictures(LINK), media={LINK: media}, max_asset_bytes=2 * len(LARGE))
        w.run()
        return w

    def test_a_large_file_goes_on_where_it_broke_off(self, world: Make) -> None:
        rest = {"etag": TAG, "content-range": f"bytes 1000000-{len(LARGE) - 1}/{len(LARGE)}"}
        w = self.large(
            world,
            Media(LARGE[:1_000_000], headers=WHOLE, breaks=True),
            Media(LARGE[1_000_000:], 206, headers=rest),
        )
        assert w.files == {"cats-000001-1.png": LARGE}
        assert w.media.headers == [{}, {"Range": "bytes=1000000-", "If-Range": TAG}]
        assert w.assets[0]["sha256"] == hashlib.sha256(LARGE).hexdigest()

    @pytest.mark.parametrize(
        "second",
        [
            Media(LARGE[1_000_000:], 206, headers={"etag": TAG, "content-range": "bytes 0-999999/5000000"}),
            Media(LARGE[1_000_000:], 206, headers={"etag": '"other"'}),
            Media(b"", 416),
        ],
        ids=["another offset", "another file", "no such range"],
    )
    def test_without_proof_it_is_fetched_anew(self, world: Make, second: Media) -> None:
        w = self.large(world, Media(LARGE[:1_000_000], headers=WHOLE, breaks=True), second, Media(LARGE, headers=WHOLE))
        assert w.files == {"cats-000001-1.png": LARGE}
        assert w.media.headers[2] == {}

    def test_a_host_that_sends_the_whole_file_again_is_taken_at_its_word(self, world: Make) -> None:
        w = self.large(
            world, Media(LARGE[:1_000_000], headers=WHOLE, breaks=True), Media(LARGE, headers={**WHOLE, "etag": '"2"'})
        )
        assert w.files == {"cats-000001-1.png": LARGE}

    def test_what_was_begun_of_a_file_that_is_given_up_does_not_remain(self, world: Make) -> None:
        broken = Media(LARGE[:1_000_000], headers=WHOLE, breaks=True)
        media = {LINK: broken, FRESH: broken}
        w = world(ACCEPTED, pictures(LINK), pictures(FRESH), media=media, max_asset_bytes=2 * len(LARGE))
        w.run()
        assert w.assets[0]["state"] == "failed"
        assert list(w.folder.iterdir()) == []

    def test_a_compressed_transfer_is_not_measured_by_its_packed_length(self, world: Make) -> None:
        headers = {"content-length": "17", "content-encoding": "gzip"}
        w = world(ACCEPTED, pictures(LINK), media={LINK: Media(PNG, headers=headers)})
        w.run()
        assert w.files == {"cats-000001-1.png": PNG}

    def test_after_a_crash_in_mid_download_the_file_is_fetched_again_and_billed_once(self, world: Make) -> None:
        w = world(ACCEPTED, pictures(LINK), media={LINK: Media(PNG)})
        for step in (Step.SUBMIT, Step.COLLECT):
            admit(w.stores, w.seeded, w.clock.now)
            w.clock.advance(1)
            w.do(step)
        # Another process claims, writes half a file, and dies.
        assert w.stores.jobs.claim(w.job, Step.FETCH, owner="dead", now=w.clock.now, lease=660)
        w.folder.mkdir(parents=True)
        (w.folder / ".cats-000001-1.part").write_bytes(PNG[:100])
        assert w.do(Step.FETCH) == []
        w.clock.advance(661)
        w.do(Step.FETCH)
        assert w.files == {"cats-000001-1.png": PNG}
        assert w.is_at(JobState.SUCCEEDED, Charge.BILLED)
        assert len(w.calls("POST")) == 1


class TestRealHosts:
    """The same steps over a real connection, for what no scripted host can get wrong."""

    @pytest.fixture
    def fetching(self, world: Make) -> Iterator[Make]:
        with closing(MediaClient(timeout=5, allowed=is_loopback)) as media:

            def make(link: str, **more: Any) -> World:
                w = world(ACCEPTED, pictures(link), **more)
                w.runtime = replace(w.runtime, media=media)
                return w

            yield make

    def breaks_off_once(self, host: Host) -> None:
        """The host sends a part of the large file, and then whatever it is asked for."""
        tag = f"ETag: {TAG}\r\n"

        def goes_on(connection: socket.socket) -> None:
            (begun,) = map(int, re.findall(rb"\r\nRange: bytes=(\d+)-\r\n", host.requests[-1]))
            place = f"{tag}Content-Range: bytes {begun}-{len(LARGE) - 1}/{len(LARGE)}\r\n"
            connection.sendall(response(LARGE[begun:], status="206 Partial Content", headers=place))

        host.answers = [sends(response(LARGE[:1_000_000], length=len(LARGE), headers=tag)), goes_on]

    def test_a_large_file_goes_on_where_it_broke_off_also_in_another_process(
        self, fetching: Make, loopback_host: Host
    ) -> None:
        self.breaks_off_once(loopback_host)
        w = fetching(f"{loopback_host.url}/film", max_asset_bytes=len(LARGE))
        w.runtime = replace(w.runtime, sinks=ForgetsSinks())
        w.run()
        assert w.files == {"cats-000001-1.png": LARGE}
        assert w.assets[0]["sha256"] == hashlib.sha256(LARGE).hexdigest()
        first, second = loopback_host.requests
        assert b"Range:" not in first
        assert f"\r\nIf-Range: {TAG}\r\n".encode() in second

    def test_the_limit_holds_over_what_was_there_and_what_comes(self, fetching: Make, loopback_host: Host) -> None:
        self.breaks_off_once(loopback_host)
        w = fetching(f"{loopback_host.url}/film", max_asset_bytes=len(LARGE) - 1)
        w.run()
        assert (w.assets[0]["state"], w.files) == ("failed", {})
        assert "bytes allowed" in w.assets[0]["error"]
        assert len(loopback_host.requests) == 2

    def test_compressed_on_its_way_it_is_unpacked_once(self, fetching: Make, loopback_host: Host) -> None:
        packed = gzip.compress(PNG)
        loopback_host.answers = [
            sends(response(packed[:100], length=len(packed), headers="Content-Encoding: gzip\r\n")),
            sends(response(packed, headers="Content-Encoding: gzip\r\n")),
        ]
        w = fetching(f"{loopback_host.url}/cat")
        w.run()
        assert w.files == {"cats-000001-1.png": PNG}
        assert w.story[-2:] == ["asset_interrupted", "asset_saved"]

    def test_a_link_goes_out_as_it_is_and_its_query_into_no_log_message_or_error(
        self, fetching: Make, loopback_host: Host, other_host: Host, caplog: pytest.LogCaptureFixture
    ) -> None:
        for name in (None, "httpx", "httpcore"):
            caplog.set_level(logging.DEBUG, name)
        there = "/b%2Fc%40d.png?sig=secret-two%2B"
        location = f"Location: {other_host.url}{there}\r\nSet-Cookie: session=1\r\n"
        loopback_host.answers = [sends(response(status="302 Found", headers=location))]
        other_host.answers = [sends(response(PNG[:300], length=len(PNG))), sends(response(PNG))]
        here = "/a%2Fb%40c.png?sig=secret-one%3D"
        w = fetching(f"{loopback_host.url}{here}")
        w.run()
        assert w.files == {"cats-000001-1.png": PNG}
        assert [request.split()[1].decode() for request in loopback_host.requests] == [here] * 2
        assert [request.split()[1].decode() for request in other_host.requests] == [there] * 2
        for request in (*loopback_host.requests, *other_host.requests):
            assert not re.search(rb"(?i)\r\n(x-api-key|authorization|cookie|referer):", request)
        events = rows_of(w.stores.database, "event", job_id=w.job)
        assert "asset_interrupted" in {event["kind"] for event in events}
        assert "secret-" not in f"{caplog.text}{events}{w.row}"


class ForgetsSinks(dict[str, AssetSink]):
    """As a process that has just begun has none."""

    def __contains__(self, key: object) -> bool:
        return False


class TestMediaInTheResultItself:
    @pytest.mark.parametrize(
        "document",
        [
            {"data": [{"b64_json": base64.b64encode(PNG).decode()}]},
            {"images": [{"url": "data:image/png;base64," + base64.b64encode(PNG).decode()}]},
            {"predictions": [{"bytesBase64Encoded": base64.b64encode(PNG).decode(), "mimeType": "image/png"}]},
        ],
        ids=["base64", "data URI", "base64 with its type"],
    )
    def test_it_is_decoded_to_a_file_without_another_call(self, world: Make, document: object) -> None:
        w = world(ACCEPTED, answer(200, document))
        w.run()
        assert w.files == {"cats-000001-1.png": PNG}
        assert w.media.requests == []
        assert w.is_at(JobState.SUCCEEDED, Charge.BILLED)

    def test_a_body_that_is_the_file_is_saved_as_it_came(self, world: Make) -> None:
        w = world(ACCEPTED, answer(200, JPEG, content_type="image/jpeg"))
        w.run()
        assert w.files == {"cats-000001-1.jpg": JPEG}
        assert bytes(w.result["body"]) == JPEG

    def test_with_the_database_as_its_place_no_file_is_written(self, world: Make) -> None:
        w = world(ACCEPTED, pictures(LINK), media={LINK: Media(PNG)}, asset_store="database")
        w.run()
        (asset,) = w.assets
        assert (asset["state"], asset["path"], w.files) == ("saved", None, {})
        content = row_of(w.stores.database, "asset_content", asset_id=asset["id"])
        assert bytes(content["body"]) == PNG


class TestResultsWithoutMedia:
    def test_a_text_models_answer_is_kept_as_a_document(self, world: Make) -> None:
        document = {"choices": [{"message": {"content": "a poem, see https://poems.invalid/1.png"}}]}
        w = world(ACCEPTED, answer(200, document))
        w.run()
        assert w.is_at(JobState.SUCCEEDED, Charge.BILLED)
        assert w.files == {"cats-000001-0.json": json.dumps(document).encode()}
        assert w.result["path"] == str(w.folder / "cats-000001-0.json")
        assert w.result["remark"] is None
        assert (w.assets, w.media.requests) == ([], [])

    def test_a_moderated_result_says_why_there_is_nothing(self, world: Make) -> None:
        w = world(ACCEPTED, answer(200, {"candidates": [], "promptFeedback": {"blockReason": "SAFETY"}}))
        w.run()
        assert w.is_at(JobState.SUCCEEDED, Charge.BILLED)
        assert w.result["remark"] == "blockReason: SAFETY"

    def test_links_that_merely_echo_the_input_are_not_fetched(self, world: Make) -> None:
        body = json.dumps({"prompt": "x", "image_url": LINK}).encode()
        w = world(
            ACCEPTED,
            answer(200, {"input": {"image_url": LINK}, "image": {"url": FRESH}}),
            body=body,
            media={
                FRESH: Media(PNG),
            },
        )
        w.run()
        assert w.media.requests == [FRESH]


class TestSecondDeliveries:
    def test_a_message_that_comes_again_makes_no_exchange_and_changes_nothing(self, world: Make) -> None:
        w = world(ACCEPTED, pictures(LINK), media={LINK: Media(PNG)})
        admit(w.stores, w.seeded, w.clock.now)
        for step in (Step.SUBMIT, Step.COLLECT, Step.FETCH):
            w.clock.advance(1)
            w.do(step)
            before = w.row, w.story, len(w.router.requests), len(w.media.requests)
            assert w.do(step) == []
            assert (w.row, w.story, len(w.router.requests), len(w.media.requests)) == before
        assert w.row["state"] == "succeeded"

    def test_one_that_comes_while_the_first_is_at_work_ends_at_once(self, world: Make) -> None:
        inner: list[list[Wake]] = []

        def slow(_request: HttpRequest) -> Reply:
            inner.append(w.do(Step.SUBMIT))
            return ACCEPTED

        w = world(slow, answer(200, {"text": "ok"}))
        w.run()
        assert inner == [[]]
        assert len(w.calls("POST")) == 1

    def test_one_that_comes_too_early_is_sent_back_with_the_wait(self, world: Make) -> None:
        w = world(ACCEPTED)
        admit(w.stores, w.seeded, w.clock.now)
        (wake,) = w.do(Step.SUBMIT)
        (early,) = w.do(Step.COLLECT)
        assert (early.step, early.delay) == (Step.COLLECT, wake.delay)
        assert len(w.router.requests) == 1

    def test_a_step_that_the_job_is_not_at_does_nothing(self, world: Make) -> None:
        w = world(ACCEPTED)
        admit(w.stores, w.seeded, w.clock.now)
        assert [w.do(step) for step in (Step.COLLECT, Step.STATUS, Step.FETCH)] == [[], [], []]
        assert w.router.requests == []


class TestADatabaseThatFails:
    class Stumbling(JobStore):
        """Refuses to write the first `faults` times."""

        faults = 3

        def apply(
            self,
            claim: Claim,
            outcome: Outcome,
            transition: Transition,
            now: float,
            *,
            result: NewResult | None = None,
            asset: SavedAsset | None = None,
        ) -> list[Wake] | None:
            if self.faults:
                self.faults -= 1
                raise StoreError("the database does not work: disk I/O error")
            return super().apply(claim, outcome, transition, now, result=result, asset=asset)

    class Broken(Stumbling):
        faults = 1000

    def test_an_answer_in_hand_is_written_once_it_works_again_without_another_call(self, world: Make) -> None:
        w = world(ACCEPTED, jobs=self.Stumbling)
        admit(w.stores, w.seeded, w.clock.now)
        before = w.clock.now
        (wake,) = w.do(Step.SUBMIT)
        assert wake.step is Step.COLLECT
        assert 0 < w.clock.now - before < 10
        assert (w.row["request_id"], len(w.router.requests)) == ("req-1", 1)

    def test_if_it_never_does_the_same_key_and_bytes_go_out_after_the_claim(self, world: Make) -> None:
        w = world(ACCEPTED, ACCEPTED, answer(200, {"text": "ok"}), jobs=self.Broken)
        admit(w.stores, w.seeded, w.clock.now)
        with pytest.raises(StoreError):
            w.do(Step.SUBMIT)
        assert w.clock.now - w.row["first_sent_at"] < w.runtime.claim_seconds
        w.runtime = replace(w.runtime, jobs=w.stores.jobs)
        w.clock.advance(w.runtime.claim_seconds)
        w.run()
        sends = w.calls("POST")
        assert len(sends) == 2
        assert (sends[0].headers, sends[0].content) == (sends[1].headers, sends[1].content)
        assert w.is_at(JobState.SUCCEEDED, Charge.BILLED)


class TestADiskThatFails:
    """A file stands where the folder must be, as a full or read-only disk would refuse it."""

    def block(self, w: World) -> None:
        w.folder.write_text("in the way")

    def test_it_pauses_the_work_and_the_link_is_not_given_up(self, world: Make) -> None:
        w = world(ACCEPTED, pictures(LINK), media={LINK: Media(PNG)})
        self.block(w)
        w.run()
        assert (w.row["state"], w.row["charge"]) == ("downloading", "billed")
        assert w.assets[0]["state"] == "expected"
        assert row_of(w.stores.database, "batch")["pause_reason"] == "storage"
        assert "cannot write" in row_of(w.stores.database, "batch")["pause_detail"]

    def test_once_it_is_mended_resume_saves_the_file_without_another_call(self, world: Make) -> None:
        w = world(ACCEPTED, pictures(LINK), media={LINK: Media(PNG)})
        self.block(w)
        w.run()
        w.folder.unlink()
        w.stores.batches.unblock(w.seeded.credential)
        w.stores.batches.resume(w.seeded.batch.id, w.clock.now, Policy())
        w.run()
        assert w.files == {"cats-000001-1.png": PNG}
        assert w.is_at(JobState.SUCCEEDED, Charge.BILLED)
        assert len(w.router.requests) == 2

    def test_a_document_that_cannot_be_written_leaves_the_request_to_be_read_again(self, world: Make) -> None:
        w = world(ACCEPTED, answer(200, {"text": "ok"}), answer(200, {"text": "ok"}))
        self.block(w)
        w.run()
        assert (w.row["state"], w.row["step"]) == ("queued", "collect")
        assert row_of(w.stores.database, "batch")["pause_reason"] == "storage"
        w.folder.unlink()
        w.stores.batches.unblock(w.seeded.credential)
        w.stores.batches.resume(w.seeded.batch.id, w.clock.now, Policy())
        w.run()
        assert w.is_at(JobState.SUCCEEDED, Charge.BILLED)
        assert len(w.calls("POST")) == 1


class TestPacing:
    def test_the_first_reads_of_a_slow_model_move_to_when_its_results_are_there(self) -> None:
        first_read = FirstRead()
        guess = first_read.delay("acme/slow")
        for _ in range(30):
            first_read.learn("acme/slow", 10.0, at_first=False)
        assert guess < 1
        assert 8.0 <= first_read.delay("acme/slow") <= 10.0
        assert first_read.delay("acme/quick") == guess

    def test_a_first_read_that_finds_the_result_makes_the_next_a_little_earlier(self) -> None:
        first_read = FirstRead()
        guess = first_read.delay("acme/quick")
        first_read.learn("acme/quick", guess, at_first=True)
        assert 0.9 * guess < first_read.delay("acme/quick") < guess

    @pytest.mark.parametrize("planned", [-5.0, 0.0, 1e9])
    @pytest.mark.parametrize("at_first", [True, False])
    def test_what_is_learnt_has_bounds(self, planned: float, at_first: bool) -> None:
        first_read = FirstRead()
        for _ in range(200):
            first_read.learn("m", planned, at_first=at_first)
        assert 0.05 <= first_read.delay("m") <= 30.0
