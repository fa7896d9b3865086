"""What is written when something came of a claim: all of it, in one transaction, or nothing."""

from __future__ import annotations

import json
from hashlib import sha256

import pytest

from runner.core.types import Document, MediaSource, Outcome, OutcomeKind, Step
from runner.store.engine import Database
from runner.store.jobs import LONGEST_COUNTDOWN
from runner.store.records import AssetRecord, Claim, NewResult, SavedAsset, Wake
from tests.support.fakes import (
    POLICY,
    START,
    Stores,
    accepted,
    admit,
    do,
    fail,
    job,
    open_stores,
    plain_result,
    row_of,
    rows_of,
    seed_batch,
    settle,
    story,
    submit_and_accept,
    take,
)

EVERY_BYTE = bytes(range(256)) * 3 + b"\x00\r\n\xff"
PICTURE = MediaSource("/images/0/url", "https://media.invalid/a.png?sig=1", declared_type="image/png")
PREVIEW = MediaSource("/preview", None, secondary=True)
WAITING = Outcome(OutcomeKind.NOT_READY, http_status=202, status="IN_QUEUE", queue_position=2)


@pytest.fixture
def stores(database: Database) -> Stores:
    return open_stores(database)


@pytest.fixture
def job_id(stores: Stores) -> int:
    """A job that the Router has accepted."""
    seeded = seed_batch(stores, 1)
    admit(stores, seeded)
    submit_and_accept(stores, seeded.jobs[0])
    return seeded.jobs[0]


def assets(stores: Stores, job_id: int) -> list[tuple[int, str, str | None]]:
    return [(row["number"], row["state"], row["url"]) for row in rows_of(stores.database, "asset", job_id=job_id)]


def unsettled(stores: Stores, job_id: int) -> tuple[AssetRecord, ...]:
    """The media files that a task would be given to fetch; the claim is let go of again."""
    claim = stores.jobs.claim(job_id, Step.FETCH, owner="looking", now=START + 1000, lease=60)
    assert isinstance(claim, Claim)
    stores.upkeep.gone("looking", START)
    return claim.assets


def arrive(stores: Stores, job_id: int, *media: MediaSource, now: float = START) -> list[Wake]:
    outcome, result = plain_result(media)
    return do(stores, job_id, Step.COLLECT, outcome, now, result=result)


class TestAcceptance:
    def test_the_handle_is_kept_as_it_was_given(self, stores: Stores, job_id: int) -> None:
        kept = job(stores, job_id)
        urls = accepted(f"req-{job_id}").handle
        assert urls is not None
        assert (kept["state"], kept["step"], kept["charge"]) == ("queued", "collect", "possible")
        assert (kept["request_id"], kept["submitted_at"]) == (f"req-{job_id}", START)
        assert kept["status_url"] == urls.status_url
        assert kept["response_url"] == urls.response_url
        assert kept["cancel_url"] == urls.cancel_url

    def test_the_claim_is_given_back(self, stores: Stores, job_id: int) -> None:
        kept = job(stores, job_id)
        assert (kept["claim_token"], kept["claim_owner"], kept["claim_until"]) == (None, None, None)

    def test_the_message_for_the_next_step_comes_back(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 1)
        admit(stores, seeded)
        assert do(stores, seeded.jobs[0], Step.SUBMIT, accepted()) == [Wake(seeded.jobs[0], Step.COLLECT, "cats", 1)]


class TestALostClaim:
    def test_nothing_is_written_and_nobody_is_woken(self, stores: Stores, job_id: int) -> None:
        late = take(stores, job_id, Step.COLLECT, START)
        take(stores, job_id, Step.COLLECT, START + 61)
        before = job(stores, job_id), story(stores, job_id)
        outcome, result = plain_result([PICTURE])
        assert settle(stores, late, outcome, START + 62, result=result) is None
        assert (job(stores, job_id), story(stores, job_id)) == before
        assert rows_of(stores.database, "result") == []
        assert rows_of(stores.database, "asset") == []

    def test_the_same_claim_is_applied_once(self, stores: Stores, job_id: int) -> None:
        claim = take(stores, job_id, Step.COLLECT)
        outcome, result = plain_result()
        assert settle(stores, claim, outcome, result=result) is not None
        assert settle(stores, claim, outcome, result=result) is None
        assert [kind for kind, _ in story(stores, job_id)].count("result") == 1


class TestAResult:
    def test_its_bytes_are_kept_exactly(self, stores: Stores, job_id: int) -> None:
        document = Document(EVERY_BYTE, "image/x-unheard-of; q=1")
        outcome = Outcome(OutcomeKind.RESULT, http_status=200, document=document, assets=0)
        do(stores, job_id, Step.COLLECT, outcome, result=NewResult(document, (), "/out/a.bin", "finishReason: SAFETY"))
        assert stores.jobs.result_document(job_id) == document
        kept = row_of(stores.database, "result", job_id=job_id)
        assert (kept["size"], kept["sha256"]) == (len(EVERY_BYTE), sha256(EVERY_BYTE).hexdigest())
        assert (kept["path"], kept["remark"]) == ("/out/a.bin", "finishReason: SAFETY")
        assert kept["request_id"] == f"req-{job_id}"

    def test_without_media_the_job_ends_billed(self, stores: Stores, job_id: int) -> None:
        arrive(stores, job_id, now=START + 9)
        kept = job(stores, job_id)
        assert (kept["state"], kept["charge"], kept["finished_at"]) == ("succeeded", "billed", START + 9)
        assert (kept["step"], kept["wake_at"]) == (None, None)

    def test_with_media_each_is_expected_in_the_outputs_order(self, stores: Stores, job_id: int) -> None:
        assert arrive(stores, job_id, PICTURE, PREVIEW) == [Wake(job_id, Step.FETCH, "cats", 1)]
        waiting = unsettled(stores, job_id)
        assert [(asset.number, asset.source) for asset in waiting] == [(1, PICTURE), (2, PREVIEW)]

    def test_cost_headers_are_kept_with_it(self, stores: Stores, job_id: int) -> None:
        document = Document(b"{}", "application/json")
        outcome = Outcome(OutcomeKind.RESULT, document=document, notes={"x-comfy-credits-used": "4.2"})
        do(stores, job_id, Step.COLLECT, outcome, result=NewResult(document, ()))
        assert json.loads(row_of(stores.database, "result")["notes"]) == {"x-comfy-credits-used": "4.2"}


class TestMedia:
    def test_a_saved_file_is_recorded_and_the_job_ends_with_the_last(self, stores: Stores, job_id: int) -> None:
        arrive(stores, job_id, PICTURE, PREVIEW)
        first, second = unsettled(stores, job_id)
        saved = SavedAsset(first.id, "/out/a.jpg", "image/jpeg", 5, "ab" * 32, mismatch=True)
        do(stores, job_id, Step.FETCH, Outcome(OutcomeKind.ASSET_SAVED, assets_left=1), START + 1, asset=saved)
        kept = row_of(stores.database, "asset", id=first.id)
        assert (kept["state"], kept["path"], kept["media_type"]) == ("saved", "/out/a.jpg", "image/jpeg")
        assert (kept["size"], bool(kept["mismatch"]), kept["saved_at"]) == (5, True, START + 1)
        assert job(stores, job_id)["state"] == "downloading"
        do(stores, job_id, Step.FETCH, Outcome(OutcomeKind.ASSET_SAVED), START + 2, asset=SavedAsset(second.id))
        assert job(stores, job_id)["state"] == "succeeded"

    def test_bytes_kept_in_the_database_are_exact(self, stores: Stores, job_id: int) -> None:
        arrive(stores, job_id, PICTURE)
        (asset,) = unsettled(stores, job_id)
        saved = SavedAsset(asset.id, None, "image/png", len(EVERY_BYTE), "ab" * 32, content=EVERY_BYTE)
        do(stores, job_id, Step.FETCH, Outcome(OutcomeKind.ASSET_SAVED), asset=saved)
        assert bytes(row_of(stores.database, "asset_content", asset_id=asset.id)["body"]) == EVERY_BYTE

    def test_an_interrupted_file_goes_behind_those_less_often_tried(self, stores: Stores, job_id: int) -> None:
        arrive(stores, job_id, PICTURE, PREVIEW)
        first = unsettled(stores, job_id)[0]
        broken = Outcome(OutcomeKind.ASSET_INTERRUPTED, assets_left=1, detail="the download failed")
        do(stores, job_id, Step.FETCH, broken, asset=SavedAsset(first.id, error="the download failed"))
        waiting = unsettled(stores, job_id)
        assert [(asset.number, asset.attempts) for asset in waiting] == [(2, 0), (1, 1)]

    def test_fresh_links_replace_those_still_expected_and_touch_nothing_saved(
        self, stores: Stores, job_id: int
    ) -> None:
        other = MediaSource("/images/1/url", "https://media.invalid/b.png?sig=1")
        arrive(stores, job_id, PICTURE, other)
        first, second = unsettled(stores, job_id)
        saved = SavedAsset(first.id, "/out/a.png", "image/png", 5, "ab" * 32)
        do(stores, job_id, Step.FETCH, Outcome(OutcomeKind.ASSET_SAVED, assets_left=1), asset=saved)
        do(stores, job_id, Step.FETCH, Outcome(OutcomeKind.ASSET_LINK_DEAD), asset=SavedAsset(second.id))
        fresh = [
            MediaSource("/images/0/url", "https://media.invalid/a.png?sig=2"),
            MediaSource("/images/1/url", "https://media.invalid/b.png?sig=2"),
        ]
        arrive(stores, job_id, *fresh)
        assert assets(stores, job_id) == [(1, "saved", PICTURE.url), (2, "expected", fresh[1].url)]
        assert row_of(stores.database, "asset", id=first.id)["path"] == "/out/a.png"
        assert job(stores, job_id)["recollects"] == 1

    def test_when_no_fresh_link_can_be_had_the_old_one_is_tried_once_more_and_the_result_stays(
        self, stores: Stores, job_id: int
    ) -> None:
        arrive(stores, job_id, PICTURE)
        (asset,) = unsettled(stores, job_id)
        do(stores, job_id, Step.FETCH, Outcome(OutcomeKind.ASSET_LINK_DEAD), asset=SavedAsset(asset.id))
        do(stores, job_id, Step.COLLECT, Outcome(OutcomeKind.GONE, http_status=410))
        do(stores, job_id, Step.FETCH, Outcome(OutcomeKind.ASSET_LINK_DEAD), asset=SavedAsset(asset.id))
        kept = job(stores, job_id)
        assert (kept["state"], kept["charge"]) == ("succeeded", "billed")
        assert assets(stores, job_id) == [(1, "failed", PICTURE.url)]
        assert len(rows_of(stores.database, "result", job_id=job_id)) == 1


class TestTheStory:
    def test_events_tell_what_happened_in_order(self, stores: Stores, job_id: int) -> None:
        do(stores, job_id, Step.COLLECT, WAITING, START + 1)
        running = Outcome(OutcomeKind.NOT_READY, http_status=202, status="IN_PROGRESS")
        do(stores, job_id, Step.COLLECT, running, START + 5)
        arrive(stores, job_id, now=START + 9)
        assert story(stores, job_id) == [
            ("accepted", "queued"),
            ("not_ready", "queued"),
            ("not_ready", "running"),
            ("result", "succeeded"),
        ]

    def test_polls_that_say_the_same_again_add_nothing(self, stores: Stores, job_id: int) -> None:
        for number in range(5):
            do(stores, job_id, Step.COLLECT, WAITING, START + 10 * number)
        assert story(stores, job_id) == [("accepted", "queued"), ("not_ready", "queued")]

    def test_a_poll_after_trouble_is_told_again(self, stores: Stores, job_id: int) -> None:
        for number, outcome in enumerate([WAITING, Outcome(OutcomeKind.UNKNOWN, http_status=502), WAITING]):
            do(stores, job_id, Step.COLLECT, outcome, START + 100 * number)
        assert [kind for kind, _ in story(stores, job_id)] == ["accepted", "not_ready", "unknown", "not_ready"]

    def test_a_refusal_keeps_its_status_call_bucket_and_detail(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 1)
        admit(stores, seeded)
        fail(stores, seeded.jobs[0])
        event = row_of(stores.database, "event", job_id=seeded.jobs[0])
        told = json.loads(event["data"])
        assert (event["http_status"], event["run"], event["at"]) == (422, 1, START)
        assert (told["error_type"], told["detail"], told["reason"]) == ("invalid_input", "no such size", "refused")
        kept = job(stores, seeded.jobs[0])
        assert (kept["state"], kept["charge"], kept["error_type"]) == ("failed", "unbilled", "invalid_input")


class TestWhatIsOwed:
    def test_a_place_in_the_queue_is_kept_and_travels_with_the_message(self, stores: Stores, job_id: int) -> None:
        (wake,) = do(stores, job_id, Step.COLLECT, WAITING)
        assert wake == Wake(job_id, Step.COLLECT, "cats", 1, delay=POLICY.poll_interval, queue_position=2)
        assert job(stores, job_id)["queue_position"] == 2

    def test_a_very_long_wait_gets_no_message_but_a_time_in_the_database(self, stores: Stores, job_id: int) -> None:
        later = Outcome(OutcomeKind.NOT_READY, status="IN_QUEUE", retry_after=LONGEST_COUNTDOWN + 1)
        assert do(stores, job_id, Step.COLLECT, later) == []
        assert job(stores, job_id)["wake_at"] == START + LONGEST_COUNTDOWN + 1
        assert admit_again(stores, job_id, START + LONGEST_COUNTDOWN) == []
        assert admit_again(stores, job_id, START + LONGEST_COUNTDOWN + 1) == [job_id]

    def test_a_job_that_met_a_pause_is_owed_nothing_until_it_is_lifted(self, stores: Stores, job_id: int) -> None:
        forbidden = Outcome(OutcomeKind.FORBIDDEN, http_status=403, detail="workspace is suspended")
        assert do(stores, job_id, Step.COLLECT, forbidden) == []
        kept = job(stores, job_id)
        assert (kept["state"], kept["step"], kept["wake_at"]) == ("queued", "collect", None)
        credential = row_of(stores.database, "credential")
        assert (credential["blocked"], credential["blocked_detail"]) == ("forbidden", "workspace is suspended")


def admit_again(stores: Stores, job_id: int, now: float) -> list[int]:
    credential = job(stores, job_id)["credential_id"]
    return [wake.job_id for wake in stores.upkeep.sweep(credential, now)]
