"""The window: how much is in flight at once, and how it follows what the account can bear."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import text

from runner.core.types import IN_FLIGHT, JobState, MediaSource, Outcome, OutcomeKind, Step
from runner.store.engine import Database
from runner.store.records import Claim, SavedAsset
from tests.support.fakes import (
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
    submit_and_accept,
    succeed,
    take,
)

BACKLOG_FULL = Outcome(OutcomeKind.BACKLOG_FULL, http_status=429, retry_after=5.0)


@pytest.fixture
def stores(database: Database) -> Stores:
    return open_stores(database)


def credential(stores: Stores) -> dict[str, Any]:
    return row_of(stores.database, "credential")


def in_flight(stores: Stores) -> int:
    return sum(JobState(row["state"]) in IN_FLIGHT for row in rows_of(stores.database, "job"))


def submitting(stores: Stores, seeded: Seeded) -> list[int]:
    return [row["row"] for row in rows_of(stores.database, "job", batch_id=seeded.batch.id, state="submitting")]


def test_the_window_is_filled_in_the_manifests_order_and_no_further(stores: Stores) -> None:
    seeded = seed_batch(stores, 10, window=4)
    wakes = admit(stores, seeded)
    assert [(wake.row, wake.step, wake.delay) for wake in wakes] == [(row, Step.SUBMIT, 0.0) for row in (1, 2, 3, 4)]
    assert admit(stores, seeded) == []
    assert submitting(stores, seeded) == [1, 2, 3, 4]


def test_the_older_batch_comes_first_and_the_younger_fills_what_is_left(stores: Stores) -> None:
    younger = seed_batch(stores, 5, name="younger", window=4, now=START + 1)
    older = seed_batch(stores, 3, name="older", window=4, now=START)
    admit(stores, older, START + 2)
    assert (submitting(stores, older), submitting(stores, younger)) == ([1, 2, 3], [1])


def test_each_credential_has_a_window_of_its_own(stores: Stores) -> None:
    mine = seed_batch(stores, 5, window=2)
    other = seed_batch(stores, 5, name="dogs", window=3, credential="another")
    admit(stores, mine)
    admit(stores, other)
    assert (submitting(stores, mine), submitting(stores, other)) == ([1, 2], [1, 2, 3])


@pytest.mark.parametrize("leave", [succeed, fail])
def test_a_job_that_leaves_lets_the_next_one_in_at_once(stores: Stores, leave: Any) -> None:
    seeded = seed_batch(stores, 5, window=2)
    admit(stores, seeded)
    wakes = leave(stores, seeded.jobs[0])
    assert [(wake.job_id, wake.step) for wake in wakes] == [(seeded.jobs[2], Step.SUBMIT)]


def test_downloading_takes_no_place(stores: Stores) -> None:
    seeded = seed_batch(stores, 3, window=1)
    admit(stores, seeded)
    submit_and_accept(stores, seeded.jobs[0])
    outcome, result = plain_result([MediaSource("/url", "https://media.invalid/a.png")])
    wakes = do(stores, seeded.jobs[0], Step.COLLECT, outcome, result=result)
    assert [(wake.job_id, wake.step) for wake in wakes] == [
        (seeded.jobs[0], Step.FETCH),
        (seeded.jobs[1], Step.SUBMIT),
    ]


FULL_DISK = Outcome(OutcomeKind.STORAGE_FAILED, detail="no space left on the device")


def collect_all_that_come_in(stores: Stores, seeded: Seeded) -> list[int]:
    """Send and collect as long as somebody is let in, and download nothing; returns whom."""
    collected: list[int] = []
    wakes = admit(stores, seeded)
    while wakes:
        job_id = wakes.pop(0).job_id
        submit_and_accept(stores, job_id)
        outcome, result = plain_result((MediaSource("/url", "https://media.invalid/a.png"),))
        woken = do(stores, job_id, Step.COLLECT, outcome, result=result)
        wakes += [wake for wake in woken if wake.step is Step.SUBMIT]
        collected.append(job_id)
    assert admit(stores, seeded) == []
    return collected


def test_no_more_is_paid_for_while_two_windows_worth_of_links_wait_to_be_fetched(stores: Stores) -> None:
    seeded = seed_batch(stores, 12, window=4)
    collected = collect_all_that_come_in(stores, seeded)
    assert len(collected) == 8
    claim = take(stores, collected[0], Step.FETCH)
    saved = SavedAsset(claim.assets[0].id, path="a.png", media_type="image/png", size=1, sha256="0")
    woken = settle(stores, claim, Outcome(OutcomeKind.ASSET_SAVED), asset=saved)
    assert [(wake.row, wake.step) for wake in woken or []] == [(9, Step.SUBMIT)]


def test_downloads_that_nobody_is_to_fetch_keep_nobody_out(stores: Stores) -> None:
    stopped, other = seed_batch(stores, 8, window=4), seed_batch(stores, 1, name="dogs", window=4)
    collected = collect_all_that_come_in(stores, stopped)
    assert len(collected) == 8
    for job_id in collected:
        do(stores, job_id, Step.FETCH, FULL_DISK)
    assert [wake.job_id for wake in admit(stores, other)] == list(other.jobs)


def test_a_held_job_takes_no_place(stores: Stores) -> None:
    seeded = seed_batch(stores, 2, window=1)
    admit(stores, seeded)
    wakes = do(stores, seeded.jobs[0], Step.SUBMIT, Outcome(OutcomeKind.KEY_CONFLICT, http_status=409))
    assert job(stores, seeded.jobs[0])["state"] == "held"
    assert [wake.job_id for wake in wakes] == [seeded.jobs[1]]


def test_eight_threads_never_have_more_in_flight_than_the_window(stores: Stores) -> None:
    seeded = seed_batch(stores, 60, window=4)
    todo = [wake.job_id for wake in admit(stores, seeded)]
    lock = threading.Lock()
    most = 0
    done: list[int] = []

    def work() -> None:
        nonlocal most
        while True:
            with lock:
                if not todo:
                    return
                job_id = todo.pop()
            for step, more in ((Step.SUBMIT, False), (Step.COLLECT, True)):
                claim = stores.jobs.claim(job_id, step, owner="w", now=START, lease=60)
                assert isinstance(claim, Claim)
                outcome, result = plain_result()
                wakes = (
                    settle(stores, claim, outcome, result=result) if more else settle(stores, claim, accepted("req"))
                )
                assert wakes is not None
                with lock:
                    most = max(most, in_flight(stores))
                    todo.extend(wake.job_id for wake in wakes if wake.step is Step.SUBMIT)
            done.append(job_id)

    # A thread that finds nothing to do leaves, so the work is offered until none is left.
    while todo:
        with ThreadPoolExecutor(8) as pool:
            for future in [pool.submit(work) for _ in range(8)]:
                future.result(60)
    assert sorted(done) == list(seeded.jobs)
    assert 1 <= most <= 4
    assert states(stores, seeded) == {JobState.SUCCEEDED: 60}


def test_a_full_backlog_shrinks_the_window_and_the_job_waits_outside(stores: Stores) -> None:
    seeded = seed_batch(stores, 20, window=8)
    admit(stores, seeded)
    do(stores, seeded.jobs[0], Step.SUBMIT, BACKLOG_FULL)
    assert credential(stores)["window_size"] == pytest.approx(7 * 0.75)
    kept = job(stores, seeded.jobs[0])
    assert (kept["state"], kept["charge"], kept["due_at"]) == ("pending", "unbilled", START + 5)
    # Seven are in flight where five may be: nobody comes in before three have left.
    assert succeed(stores, seeded.jobs[1]) == []
    assert succeed(stores, seeded.jobs[2]) == []
    assert [wake.job_id for wake in succeed(stores, seeded.jobs[3])] == [seeded.jobs[8]]


def test_refusals_of_the_same_moment_shrink_it_once(stores: Stores) -> None:
    seeded = seed_batch(stores, 20, window=8)
    admit(stores, seeded)
    for number, job_id in enumerate(seeded.jobs[:4]):
        do(stores, job_id, Step.SUBMIT, BACKLOG_FULL, START + 0.1 * number)
    assert credential(stores)["window_size"] == pytest.approx(7 * 0.75)


def test_the_window_never_shrinks_below_one(stores: Stores) -> None:
    seeded = seed_batch(stores, 1, window=1)
    for number in range(4):
        now = START + 100 * number
        admit(stores, seeded, now)
        do(stores, seeded.jobs[0], Step.SUBMIT, BACKLOG_FULL, now)
    assert credential(stores)["window_size"] == 1.0


def test_successes_grow_it_back_to_its_largest_and_no_further(stores: Stores) -> None:
    seeded = seed_batch(stores, 40, window=4)
    admit(stores, seeded)
    do(stores, seeded.jobs[3], Step.SUBMIT, BACKLOG_FULL)
    small = credential(stores)["window_size"]
    sizes = []
    now = START + 60
    for _ in range(12):
        admit(stores, seeded, now)
        succeed(stores, rows_of(stores.database, "job", state="submitting")[0]["id"], now)
        sizes.append(credential(stores)["window_size"])
    assert small < sizes[0] < sizes[1]
    assert sizes == sorted(sizes)
    assert sizes[-1] == 4.0


def test_a_larger_limit_opens_the_window_and_a_smaller_one_closes_it(stores: Stores) -> None:
    stores.batches.credential("fingerprint", "https://router.invalid", 8)
    assert credential(stores)["window_size"] == 8
    stores.batches.credential("fingerprint", "https://router.invalid", 16)
    assert (credential(stores)["window_size"], credential(stores)["window_max"]) == (16, 16)
    stores.batches.credential("fingerprint", "https://router.invalid", 2)
    assert (credential(stores)["window_size"], credential(stores)["window_max"]) == (2, 2)


def test_a_new_process_does_not_undo_a_shrunk_window(stores: Stores) -> None:
    seeded = seed_batch(stores, 20, window=8)
    admit(stores, seeded)
    do(stores, seeded.jobs[0], Step.SUBMIT, BACKLOG_FULL)
    stores.batches.credential("fingerprint", "https://router.invalid", 8)
    assert credential(stores)["window_size"] == pytest.approx(7 * 0.75)


def test_a_cool_down_lets_nobody_in_while_it_lasts(stores: Stores) -> None:
    seeded = seed_batch(stores, 3, window=1)
    admit(stores, seeded)
    submit_and_accept(stores, seeded.jobs[0])
    limited = Outcome(OutcomeKind.RATE_LIMITED, http_status=429, retry_after=30.0)
    do(stores, seeded.jobs[0], Step.COLLECT, limited)
    with stores.database.write("test") as connection:
        connection.execute(text("UPDATE credential SET window_size = 3"))
    assert admit(stores, seeded, START + 29) == []
    assert [wake.job_id for wake in admit(stores, seeded, START + 30.1)][:2] == list(seeded.jobs[1:])


def test_the_longer_of_two_cool_downs_holds(stores: Stores) -> None:
    seeded = seed_batch(stores, 2)
    admit(stores, seeded)
    for job_id in seeded.jobs:
        submit_and_accept(stores, job_id)
    claims = [stores.jobs.claim(job_id, Step.COLLECT, owner="w", now=START, lease=60) for job_id in seeded.jobs]
    for claim, seconds in zip(claims, (30.0, 3.0), strict=True):
        assert isinstance(claim, Claim)
        settle(stores, claim, Outcome(OutcomeKind.RATE_LIMITED, http_status=429, retry_after=seconds))
    assert credential(stores)["cool_down_until"] == START + 30


def test_a_paused_batch_lets_nobody_in(stores: Stores) -> None:
    seeded = seed_batch(stores, 5, window=2)
    admit(stores, seeded)
    wakes = do(stores, seeded.jobs[0], Step.SUBMIT, Outcome(OutcomeKind.INSUFFICIENT_CREDITS, http_status=402))
    assert wakes == []
    assert admit(stores, seeded, START + 1) == []
    assert states(stores, seeded) == {JobState.PENDING: 5}


def test_a_blocked_credential_lets_nobody_in(stores: Stores) -> None:
    seeded = seed_batch(stores, 5, window=2)
    admit(stores, seeded)
    assert do(stores, seeded.jobs[0], Step.SUBMIT, Outcome(OutcomeKind.UNAUTHORIZED, http_status=401)) == []
    assert admit(stores, seeded, START + 1) == []
    stores.batches.unblock(seeded.credential)
    assert [wake.job_id for wake in admit(stores, seeded, START + 1)] == [seeded.jobs[0]]


def test_many_sweepers_at_once_do_not_overfill_the_window(stores: Stores) -> None:
    seeded = seed_batch(stores, 50, window=7)
    with ThreadPoolExecutor(8) as pool:
        woken = [wake.job_id for wakes in pool.map(lambda _: admit(stores, seeded), range(16)) for wake in wakes]
    assert sorted(woken) == list(seeded.jobs[:7])
    assert in_flight(stores) == 7


def test_a_command_that_was_told_nothing_of_the_window_keeps_it(stores: Stores) -> None:
    stores.batches.credential("fingerprint", "https://router.invalid", 8)
    stores.batches.credential("fingerprint", "https://router.invalid", 100, keeps_window=True)
    found = row_of(stores.database, "credential")
    assert (found["window_max"], found["window_size"]) == (8, 8.0)
