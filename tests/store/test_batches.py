"""Batches: written before anything is sent, found again, resumed, retried, and finished with their last job."""

from __future__ import annotations

import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text

from runner.core.errors import NotFound, UsageError
from runner.core.types import BatchState, JobState, MediaSource, Outcome, OutcomeKind, Step
from runner.store.batches import BatchRecord, NewBatch, NewJob, idempotency_key
from runner.store.engine import Database
from runner.store.records import SavedAsset
from tests.support.fakes import (
    POLICY,
    START,
    Seeded,
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
    states,
    story,
    submit_and_accept,
    succeed,
    take,
)

HOUR = 3600.0


@pytest.fixture
def stores(database: Database) -> Stores:
    return open_stores(database)


def batch(stores: Stores, seeded: Seeded) -> BatchRecord:
    return stores.batches.find(seeded.batch.id)


def keys(stores: Stores) -> list[str]:
    return [row["idempotency_key"] for row in rows_of(stores.database, "job")]


def hold(stores: Stores, job_id: int, now: float = START) -> None:
    """Sends without an answer, until the runner gives up."""
    for number in range(POLICY.submit_attempts):
        do(stores, job_id, Step.SUBMIT, Outcome(OutcomeKind.UNKNOWN), now + 100 * number)
    assert job(stores, job_id)["state"] == "held"


class TestWriting:
    def test_every_row_stands_with_its_exact_bytes(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 1, body=b'{"prompt":"\xc3\xa4\xf0\x9f\x90\x88","n":1.50}')
        assert stores.jobs.body(seeded.jobs[0]) == b'{"prompt":"\xc3\xa4\xf0\x9f\x90\x88","n":1.50}'

    def test_rows_are_written_in_chunks_and_progress_is_told(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 0, complete=False)
        rows = (NewJob(row, f"row-{row}", "acme/paint", b"{}", "{}") for row in range(1, 4502))
        assert list(stores.batches.write_rows(seeded.batch, rows, START)) == [2000, 4000, 4501]
        assert len(set(keys(stores))) == 4501

    def test_keys_are_unique_across_batches_and_within_the_contracts_length(self, stores: Stores) -> None:
        seed_batch(stores, 50)
        seed_batch(stores, 50, name="dogs")
        assert len(set(keys(stores))) == 100
        assert max(len(key) for key in keys(stores)) <= 255

    def test_a_key_is_the_same_whenever_it_is_asked_for_and_another_for_each_run(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 2)
        assert keys(stores) == [idempotency_key(seeded.batch.id, row, 1) for row in (1, 2)]
        assert idempotency_key("b", 1, 2) not in {idempotency_key("b", 1, 1), idempotency_key("b", 12, 1)}

    def test_a_name_is_given_once(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 1)
        twin = NewBatch("f" * 32, "cats", "other", seeded.credential, False, "cats.csv", "files", "out")
        with pytest.raises(UsageError, match="cats") as caught:
            stores.batches.create(twin, START)
        assert "--name" in (caught.value.advice or "")

    def test_a_credential_is_made_once_and_told_apart_by_its_fingerprint(self, stores: Stores) -> None:
        first = stores.batches.credential("one", "https://router.invalid", 4)
        assert stores.batches.credential("one", "https://router.invalid", 4) == first
        assert stores.batches.credential("two", "https://router.invalid", 4) != first


class TestAnIncompleteBatch:
    def test_nothing_of_it_is_ever_sent(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 3, complete=False)
        assert admit(stores, seeded) == []
        stores.batches.resume(seeded.batch.id, START + 1, POLICY)
        assert admit(stores, seeded, START + 100) == []
        assert states(stores, seeded) == {JobState.PENDING: 3}

    def test_it_can_be_discarded_with_all_its_rows(self, stores: Stores) -> None:
        kept = seed_batch(stores, 2, name="kept")
        seeded = seed_batch(stores, 3, complete=False)
        stores.batches.discard(seeded.batch.id)
        assert stores.batches.by_name("cats") is None
        assert states(stores, kept) == {JobState.PENDING: 2}
        assert len(rows_of(stores.database, "payload")) == 2

    def test_a_complete_one_cannot_be_discarded(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 3)
        stores.batches.discard(seeded.batch.id)
        assert states(stores, seeded) == {JobState.PENDING: 3}
        assert len(rows_of(stores.database, "payload")) == 3

    def test_its_rows_can_be_written_anew(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 3, complete=False)
        stores.batches.discard_rows(seeded.batch.id)
        rows = [NewJob(1, "row-1", "acme/paint", b"{}", "{}")]
        assert list(stores.batches.write_rows(seeded.batch, rows, START)) == [1]
        stores.batches.complete(seeded.batch.id, 1, "[]", START)
        assert len(admit(stores, seeded)) == 1


class TestFinding:
    def test_by_name_by_id_and_the_last_one(self, stores: Stores) -> None:
        cats = seed_batch(stores, 1, now=START)
        dogs = seed_batch(stores, 1, name="dogs", now=START + 1)
        assert stores.batches.find("cats").id == cats.batch.id
        assert stores.batches.find(cats.batch.id).name == "cats"
        assert stores.batches.find("last").id == dogs.batch.id
        assert [record.name for record in stores.batches.all()] == ["dogs", "cats"]
        assert stores.batches.names_like("ca") == {"cats"}

    def test_the_same_manifest_is_recognised(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 1)
        found = stores.batches.by_fingerprint("manifest of cats")
        assert found is not None
        assert (found.id, found.total, found.credential_fingerprint) == (seeded.batch.id, 1, "fingerprint")
        assert stores.batches.by_fingerprint("another") is None

    @pytest.mark.parametrize("reference", ["last", "nobody", "' OR '1'='1"])
    def test_what_does_not_exist_is_said_with_a_next_step(self, stores: Stores, reference: str) -> None:
        with pytest.raises(NotFound) as caught:
            stores.batches.find(reference)
        assert (caught.value.advice or "").startswith("comfy-batch")


class TestPauses:
    def test_missing_credit_pauses_the_batch_and_resume_lifts_it(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 3)
        admit(stores, seeded)
        refused = Outcome(OutcomeKind.INSUFFICIENT_CREDITS, http_status=402, detail="balance is 0")
        do(stores, seeded.jobs[0], Step.SUBMIT, refused)
        stopped = batch(stores, seeded)
        assert stopped.state is BatchState.PAUSED
        assert (stopped.pause_reason, stopped.pause_detail) == ("insufficient_credits", "balance is 0")
        stores.batches.resume(seeded.batch.id, START + 1, POLICY)
        going = batch(stores, seeded)
        assert (going.state, going.pause_reason, going.pause_detail) == (BatchState.ACTIVE, None, None)
        assert {wake.job_id for wake in admit(stores, seeded, START + 1)} == set(seeded.jobs)
        assert keys(stores) == [idempotency_key(seeded.batch.id, row, 1) for row in (1, 2, 3)]

    def test_a_refused_key_stops_every_batch_of_the_credential(self, stores: Stores) -> None:
        cats, dogs = seed_batch(stores, 1), seed_batch(stores, 1, name="dogs")
        admit(stores, cats)
        do(stores, cats.jobs[0], Step.SUBMIT, Outcome(OutcomeKind.UNAUTHORIZED, http_status=401, detail="no such key"))
        for seeded in (cats, dogs):
            stopped = batch(stores, seeded)
            assert (stopped.state, stopped.pause_reason) == (BatchState.PAUSED, "unauthorized")
            assert stopped.pause_detail == "no such key"
        stores.batches.unblock(cats.credential)
        assert batch(stores, dogs).state is BatchState.ACTIVE

    def test_lifting_a_block_wakes_what_met_it_in_every_batch_of_the_credential(self, stores: Stores) -> None:
        cats, dogs = seed_batch(stores, 1), seed_batch(stores, 1, name="dogs")
        admit(stores, cats)
        for seeded in (cats, dogs):
            submit_and_accept(stores, seeded.jobs[0])
        claims = [take(stores, seeded.jobs[0], Step.COLLECT) for seeded in (cats, dogs)]
        for claim in claims:
            settle(stores, claim, Outcome(OutcomeKind.UNAUTHORIZED, http_status=401))
        stores.batches.unblock(cats.credential)
        stores.batches.resume(cats.batch.id, START + 1, POLICY)
        # Both batches say that they are at work, so both must be.
        assert batch(stores, dogs).state is BatchState.ACTIVE
        woken = {wake.job_id for wake in admit(stores, cats, START + 100)}
        assert woken == {cats.jobs[0], dogs.jobs[0]}


class TestFinishing:
    def test_a_batch_ends_with_its_last_job(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 2)
        admit(stores, seeded)
        assert batch(stores, seeded).started_at == START
        succeed(stores, seeded.jobs[0], START + 1)
        assert batch(stores, seeded).state is BatchState.ACTIVE
        fail(stores, seeded.jobs[1], START + 2)
        ended = batch(stores, seeded)
        assert (ended.state, ended.finished_at) == (BatchState.FINISHED, START + 2)

    def test_not_while_media_are_still_to_come(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 1)
        admit(stores, seeded)
        submit_and_accept(stores, seeded.jobs[0])
        outcome, result = plain_result([MediaSource("/url", "https://media.invalid/a.png")])
        do(stores, seeded.jobs[0], Step.COLLECT, outcome, result=result)
        assert batch(stores, seeded).state is BatchState.ACTIVE
        asset = row_of(stores.database, "asset", job_id=seeded.jobs[0])
        do(stores, seeded.jobs[0], Step.FETCH, Outcome(OutcomeKind.ASSET_SAVED), asset=SavedAsset(asset["id"]))
        assert batch(stores, seeded).state is BatchState.FINISHED

    def test_not_while_a_job_is_held(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 2)
        admit(stores, seeded)
        hold(stores, seeded.jobs[0])
        succeed(stores, seeded.jobs[1])
        admit(stores, seeded, START + HOUR)
        assert batch(stores, seeded).state is BatchState.ACTIVE

    def test_a_batch_without_rows_ends_at_the_first_sweep(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 0)
        admit(stores, seeded)
        assert batch(stores, seeded).state is BatchState.FINISHED

    def test_when_the_last_two_jobs_end_together_the_batch_ends_at_the_next_sweep_at_latest(
        self, stores: Stores
    ) -> None:
        seeded = seed_batch(stores, 24)
        admit(stores, seeded)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda job_id: fail(stores, job_id), seeded.jobs))
        admit(stores, seeded, START + 1)
        assert batch(stores, seeded).state is BatchState.FINISHED


class TestResume:
    def test_it_takes_back_a_job_whose_key_is_still_good_with_the_same_key(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 1)
        admit(stores, seeded)
        hold(stores, seeded.jobs[0])
        before = job(stores, seeded.jobs[0])
        assert stores.batches.resume(seeded.batch.id, START + HOUR, POLICY) == 1
        after = job(stores, seeded.jobs[0])
        assert (after["state"], after["charge"]) == ("pending", "possible")
        assert (after["idempotency_key"], after["run"]) == (before["idempotency_key"], 1)
        assert after["first_sent_at"] == START
        assert story(stores, seeded.jobs[0])[-1] == ("resume", "pending")

    def test_a_job_whose_key_has_expired_stays_held(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 1)
        admit(stores, seeded)
        hold(stores, seeded.jobs[0])
        assert stores.batches.resume(seeded.batch.id, START + 25 * HOUR, POLICY) == 0
        kept = job(stores, seeded.jobs[0])
        assert (kept["state"], kept["reason"]) == ("held", "outcome_unknown")

    def test_a_key_conflict_stays_held(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 1)
        admit(stores, seeded)
        do(stores, seeded.jobs[0], Step.SUBMIT, Outcome(OutcomeKind.KEY_CONFLICT, http_status=409))
        assert stores.batches.resume(seeded.batch.id, START + 1, POLICY) == 0
        assert job(stores, seeded.jobs[0])["reason"] == "key_conflict"

    def test_a_held_request_is_read_again_and_nothing_is_sent(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 1)
        admit(stores, seeded)
        submit_and_accept(stores, seeded.jobs[0])
        missing = Outcome(OutcomeKind.REQUEST_NOT_FOUND, http_status=404)
        for number in range(POLICY.not_found_attempts):
            do(stores, seeded.jobs[0], Step.COLLECT, missing, START + 100 * number)
        assert job(stores, seeded.jobs[0])["reason"] == "request_lost"
        assert stores.batches.resume(seeded.batch.id, START + HOUR, POLICY) == 1
        assert [(wake.job_id, wake.step) for wake in admit(stores, seeded, START + HOUR)] == [
            (seeded.jobs[0], Step.COLLECT)
        ]

    def test_what_is_in_flight_is_woken_at_once_whatever_became_of_its_message(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 3)
        admit(stores, seeded)
        submit_and_accept(stores, seeded.jobs[0])
        busy = Outcome(OutcomeKind.KEY_BUSY, http_status=409, retry_after=30.0)
        do(stores, seeded.jobs[1], Step.SUBMIT, busy, START)
        stores.batches.resume(seeded.batch.id, START + 1, POLICY)
        assert {wake.job_id for wake in admit(stores, seeded, START + 1)} == {seeded.jobs[0], seeded.jobs[2]}
        # A wait that the Router asked for is kept.
        assert seeded.jobs[1] not in {wake.job_id for wake in admit(stores, seeded, START + 29)}
        assert seeded.jobs[1] in {wake.job_id for wake in admit(stores, seeded, START + 30)}

    def test_twice_does_no_more_than_once(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 2)
        admit(stores, seeded)
        hold(stores, seeded.jobs[0])
        succeed(stores, seeded.jobs[1])
        stores.batches.resume(seeded.batch.id, START + HOUR, POLICY)
        before = rows_of(stores.database, "job")
        assert stores.batches.resume(seeded.batch.id, START + HOUR, POLICY) == 0
        assert rows_of(stores.database, "job") == before

    def test_a_finished_batch_stays_finished(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 2)
        admit(stores, seeded)
        succeed(stores, seeded.jobs[0])
        fail(stores, seeded.jobs[1])
        assert stores.batches.resume(seeded.batch.id, START + HOUR, POLICY) == 0
        assert batch(stores, seeded).state is BatchState.FINISHED
        assert admit(stores, seeded, START + HOUR) == []


class TestRetry:
    @pytest.fixture
    def seeded(self, stores: Stores) -> Seeded:
        """Three rows: one failed after its run, one refused, one succeeded."""
        seeded = seed_batch(stores, 3)
        admit(stores, seeded)
        submit_and_accept(stores, seeded.jobs[0])
        broken = Outcome(OutcomeKind.RUN_FAILED, http_status=200, error_type="provider_error", detail="it broke")
        do(stores, seeded.jobs[0], Step.COLLECT, Outcome(OutcomeKind.READ_FAILED, http_status=502))
        do(stores, seeded.jobs[0], Step.STATUS, broken)
        fail(stores, seeded.jobs[1])
        succeed(stores, seeded.jobs[2])
        return seeded

    def retry(self, stores: Stores, seeded: Seeded, *error_types: str, now: float = START + HOUR) -> int:
        return stores.batches.move(
            seeded.batch.id, OutcomeKind.RETRY, (JobState.FAILED, JobState.HELD), now, POLICY, error_types
        )

    def test_a_retry_is_a_new_key_and_forgets_the_old_request(self, stores: Stores, seeded: Seeded) -> None:
        assert self.retry(stores, seeded) == 2
        kept = job(stores, seeded.jobs[0])
        assert (kept["state"], kept["charge"], kept["run"]) == ("pending", "unbilled", 2)
        assert kept["idempotency_key"] == idempotency_key(seeded.batch.id, 1, 2)
        forgotten = ("request_id", "status_url", "response_url", "cancel_url", "first_sent_at", "submitted_at")
        assert [kept[name] for name in forgotten] == [None] * 6
        assert (kept["reason"], kept["error_type"], kept["error_detail"]) == (None, None, None)
        assert kept["finished_at"] is None

    def test_the_story_keeps_what_was_before(self, stores: Stores, seeded: Seeded) -> None:
        self.retry(stores, seeded)
        assert [kind for kind, _ in story(stores, seeded.jobs[0])] == [
            "accepted",
            "read_failed",
            "run_failed",
            "retry",
        ]
        told = json.loads(rows_of(stores.database, "event", job_id=seeded.jobs[0])[-1]["data"])
        assert told["earlier_request"] == f"req-{seeded.jobs[0]}"
        assert told["earlier_charge"] == "possible"

    def test_what_succeeded_is_left_alone(self, stores: Stores, seeded: Seeded) -> None:
        before = job(stores, seeded.jobs[2])
        self.retry(stores, seeded)
        assert job(stores, seeded.jobs[2]) == before
        assert len(rows_of(stores.database, "result", job_id=seeded.jobs[2])) == 1

    def test_it_can_be_narrowed_to_kinds_of_error(self, stores: Stores, seeded: Seeded) -> None:
        assert self.retry(stores, seeded, "provider_error", "internal_error") == 1
        assert [job(stores, job_id)["run"] for job_id in seeded.jobs] == [2, 1, 1]

    def test_once_more_at_once_finds_nothing_to_retry(self, stores: Stores, seeded: Seeded) -> None:
        assert [self.retry(stores, seeded), self.retry(stores, seeded)] == [2, 0]

    def test_a_reopened_batch_sends_them_again_and_ends_again(self, stores: Stores, seeded: Seeded) -> None:
        assert batch(stores, seeded).state is BatchState.FINISHED
        self.retry(stores, seeded)
        now = START + HOUR
        assert {wake.job_id for wake in admit(stores, seeded, now)} == set(seeded.jobs[:2])
        for job_id in seeded.jobs[:2]:
            succeed(stores, job_id, now)
        assert batch(stores, seeded).state is BatchState.FINISHED
        assert job(stores, seeded.jobs[0])["request_id"] == f"req-{seeded.jobs[0]}"

    def test_a_held_job_gets_a_new_key_when_the_user_says_so(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 1, name="held")
        admit(stores, seeded)
        hold(stores, seeded.jobs[0])
        assert self.retry(stores, seeded) == 1
        admit(stores, seeded, START + HOUR)
        claim = take(stores, seeded.jobs[0], Step.SUBMIT, START + HOUR)
        assert claim.idempotency_key == idempotency_key(seeded.batch.id, 1, 2)
        assert (claim.job.charge, claim.job.first_sent_at) == ("unbilled", START + HOUR)

    def test_media_of_the_earlier_run_are_forgotten(self, stores: Stores) -> None:
        # A result that expired between two reads is the only way to an ended job with media.
        seeded = seed_batch(stores, 1, name="media")
        admit(stores, seeded)
        submit_and_accept(stores, seeded.jobs[0])
        outcome, result = plain_result([MediaSource("/url", "https://media.invalid/a.png")])
        do(stores, seeded.jobs[0], Step.COLLECT, outcome, result=result)
        with stores.database.write("test") as connection:
            connection.execute(text("UPDATE job SET state = 'expired', step = NULL"))
        moved = stores.batches.move(seeded.batch.id, OutcomeKind.RETRY, (JobState.EXPIRED,), START + HOUR, POLICY)
        assert moved == 1
        assert rows_of(stores.database, "asset") == []
        assert rows_of(stores.database, "result") == []

    def test_two_retries_at_once_give_each_job_one_new_key(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 60, name="many")
        admit(stores, seeded)
        for job_id in seeded.jobs:
            fail(stores, job_id)
        with ThreadPoolExecutor(4) as pool:
            moved = list(pool.map(lambda _: self.retry(stores, seeded), range(4)))
        assert sum(moved) == 60
        found = rows_of(stores.database, "job", batch_id=seeded.batch.id)
        assert {row["run"] for row in found} == {2}
        assert [row["idempotency_key"] for row in found] == [
            idempotency_key(seeded.batch.id, row, 2) for row in range(1, 61)
        ]

    def test_a_retry_that_comes_second_does_not_forget_the_request_of_the_first(self, stores: Stores) -> None:
        seeded = seed_batch(stores, 1, name="late")
        admit(stores, seeded)
        fail(stores, seeded.jobs[0])
        assert self.retry(stores, seeded) == 1
        admit(stores, seeded, START + HOUR)
        submit_and_accept(stores, seeded.jobs[0], START + HOUR)
        assert self.retry(stores, seeded) == 0
        assert job(stores, seeded.jobs[0])["request_id"] == f"req-{seeded.jobs[0]}"


class TestTheCatalogsWord:
    def test_it_is_kept_per_model_and_renewed(self, stores: Stores) -> None:
        assert stores.jobs.charges_on_policy_rejection("acme/paint") == "unknown"
        stores.batches.remember_model("acme/paint", "yes", '{"a":1}', "etag-1", START)
        stores.batches.remember_model("acme/paint", "no", None, None, START + 1)
        assert stores.jobs.charges_on_policy_rejection("acme/paint") == "no"
        assert stores.jobs.output_schema_document("acme/paint") is None


class TestWriters:
    def test_many_that_read_and_then_write_lose_nothing(self, stores: Stores) -> None:
        """The update that a plain transaction loses: read a number, add one, write it."""
        seeded = seed_batch(stores, 1)
        lock = " FOR UPDATE" if not stores.database.is_sqlite else ""

        def add(_: int) -> None:
            with stores.database.write("test") as connection:
                row = connection.execute(text(f"SELECT attempts FROM job WHERE id = :id{lock}"), {"id": seeded.jobs[0]})
                values = {"id": seeded.jobs[0], "next": row.scalar_one() + 1}
                connection.execute(text("UPDATE job SET attempts = :next WHERE id = :id"), values)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(add, range(80)))
        assert job(stores, seeded.jobs[0])["attempts"] == 80

    def test_two_processes_on_one_sqlite_file_wait_for_each_other_and_lose_nothing(
        self, sqlite_database: Database
    ) -> None:
        # Two database objects share no lock of ours, like two processes.
        ours, theirs = sqlite_database, Database(str(sqlite_database.url))
        seed_batch(open_stores(ours), 1)

        def add(database: Database) -> None:
            with database.write("test") as connection:
                before = connection.execute(text("SELECT attempts FROM job")).scalar_one()
                connection.execute(text("UPDATE job SET attempts = :next"), {"next": before + 1})

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(add, [ours, theirs] * 60))
        theirs.close()
        assert row_of(ours, "job")["attempts"] == 120

    def test_of_two_processes_on_one_sqlite_file_one_gets_each_job(self, sqlite_database: Database) -> None:
        ours, theirs = open_stores(sqlite_database), open_stores(Database(str(sqlite_database.url)))
        seeded = seed_batch(ours, 100, window=100)
        admit(ours, seeded)

        def claim(offer: tuple[Stores, int]) -> bool:
            stores, job_id = offer
            return stores.jobs.claim(job_id, Step.SUBMIT, owner="w", now=START, lease=60) is not None

        with ThreadPoolExecutor(8) as pool:
            got = list(pool.map(claim, [(stores, job_id) for job_id in seeded.jobs for stores in (ours, theirs)]))
        theirs.database.close()
        assert got.count(True) == 100

    def test_a_block_that_raises_leaves_nothing_behind(self, stores: Stores) -> None:
        seed_batch(stores, 1)

        def spoil() -> None:
            with stores.database.write("test") as connection:
                connection.execute(text("DELETE FROM payload"))
                raise KeyError("on the way")

        with pytest.raises(KeyError):
            spoil()
        assert len(rows_of(stores.database, "payload")) == 1

    def test_a_foreign_writer_is_waited_for(self, sqlite_database: Database) -> None:
        stores = open_stores(sqlite_database)
        seeded = seed_batch(stores, 1)
        admit(stores, seeded)
        other = sqlite3.connect(str(sqlite_database.url.database), isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(do, stores, seeded.jobs[0], Step.SUBMIT, accepted())
            other.execute("UPDATE batch SET pause_detail = 'noted'")
            other.execute("COMMIT")
            other.close()
            assert len(waiting.result(30)) == 1
        assert job(stores, seeded.jobs[0])["state"] == "queued"
        assert row_of(stores.database, "batch")["pause_detail"] == "noted"
