"""Jobs that wait for the user's word, rows that all fail alike, calls a second, and what `status` warns of."""

from __future__ import annotations

import signal
import time
from contextlib import closing
from datetime import datetime

import pytest

from config.settings import Settings
from runner.core.types import Outcome, OutcomeKind, Policy, Step
from runner.store.engine import Database
from runner.store.migrate import migrate
from tests.acceptance.harness import API_KEY, MODEL, Bench, Router
from tests.support.fakes import Stores, accepted, admit, do, open_stores, rows_of, seed_batch

pytestmark = pytest.mark.acceptance


def stores_of(bench: Bench) -> Stores:
    """The stores of the bench's database, made if need be."""
    database = Database(f"sqlite:///{bench.environment['COMFY_BATCH_HOME']}/comfy-batch.db")
    migrate(database)
    return open_stores(database)


def begun(bench: Bench, router: Router, count: int, *, days_ago: float = 0.0) -> tuple[Stores, list[int], float]:
    """A batch under the bench's own credential, as a `run` of so long ago left it: admitted, nothing sent."""
    stores = stores_of(bench)
    settings = Settings(api_key=API_KEY, router_base_url=router.base_url)
    now = time.time() - days_ago * 86400
    seeded = seed_batch(
        stores,
        count,
        name="cats",
        now=now,
        credential=settings.credential_fingerprint,
        router=router.base_url,
        output_dir=str(bench.folder / "out"),
        model=MODEL,
    )
    admit(stores, seeded, now)
    return stores, list(seeded.jobs), now


def hold_unanswered(stores: Stores, job_id: int, now: float) -> None:
    """As often as the policy allows, no answer comes to the submit."""
    for attempt in range(Policy().submit_attempts):
        do(stores, job_id, Step.SUBMIT, Outcome(OutcomeKind.UNKNOWN, detail="no answer in time"), now + 100 * attempt)


def test_a_held_job_says_why_what_it_may_have_cost_and_what_decides_and_resume_sends_the_same_key(bench: Bench) -> None:
    router = bench.router()
    stores, jobs, now = begun(bench, router, 1, days_ago=0.1)
    with closing(stores.database):
        hold_unanswered(stores, jobs[0], now)
        (before,) = rows_of(stores.database, "job")
    status = bench.do("status", "cats")
    assert status.code == 3
    assert (
        "1 job: no answer came to the submit; one run may have been paid for; resume sends the same key" in status.out
    )
    assert "0 billed, 1 possible" in status.out
    assert "comfy-batch resume cats takes back what is safe" in status.err
    show = bench.do("show", "cats:1")
    assert "no answer came to the submit" in show.out
    assert "resume cats sends the same key again" in show.out

    asked = bench.do("retry", "cats", "--state", "held")
    assert asked.code == 2
    assert "1 of these jobs may have been paid for already. Start 1 new paid run of cats?" in asked.err
    assert "--yes" in asked.err
    assert router.runs() == 0

    resumed = bench.do("resume", "cats")
    assert resumed.code == 0, resumed.err
    assert list(router.ledger()["by_key"]) == [before["idempotency_key"]]
    router.assert_paid_once(1)


def test_a_day_later_it_stays_held_since_sending_it_could_pay_twice(bench: Bench) -> None:
    router = bench.router()
    stores, jobs, now = begun(bench, router, 1, days_ago=25 / 24)
    with closing(stores.database):
        hold_unanswered(stores, jobs[0], now)
    resumed = bench.do("resume", "cats")
    assert resumed.code == 3
    assert "comfy-batch retry cats --state held pays for new runs, and asks before" in resumed.err
    assert router.runs() == 0
    other = bench.do("resume", "cats", COMFY_API_KEY="another-key-0123456789")
    assert other.code == 3
    assert "begun under another API key" in other.err
    assert router.calls("submit") == 0
    # The user's word: a new key, and the one new run.
    again = bench.do("retry", "cats", "--state", "held", "--yes")
    assert again.code == 0, again.err
    assert [key[-2:] for key in router.ledger()["by_key"]] == ["-2"]


def test_a_submit_that_was_never_answered_before_the_machine_was_off_for_a_day_is_held(bench: Bench) -> None:
    router = bench.router()
    stores, jobs, now = begun(bench, router, 1, days_ago=25 / 24)
    with closing(stores.database):
        stores.jobs.claim(jobs[0], Step.SUBMIT, owner="gone", now=now, lease=60.0)
    resumed = bench.do("resume", "cats")
    assert resumed.code == 3
    assert "the key is older than 24 hours" in resumed.out
    assert router.runs() == 0


def test_what_ends_soon_and_is_not_collected_is_warned_of(bench: Bench) -> None:
    router = bench.router()
    stores, jobs, now = begun(bench, router, 2, days_ago=23.5 / 24)
    with closing(stores.database):
        do(stores, jobs[0], Step.SUBMIT, accepted("req-1"), now)
        stores.batches.resume(rows_of(stores.database, "batch")[0]["id"], now, Policy())
    status = bench.do("status", "cats")
    assert "expiring 1 result or link not collected ends in 30 min: resume before" in status.out
    assert "2 steps have been due for up to 23 h 30 min: no worker takes them" in status.out


def test_rows_that_are_all_refused_alike_pause_the_batch_and_the_rest_stays_pending(bench: Bench) -> None:
    router = bench.router()
    router.faults(invalid_input="always")
    manifest = bench.write("wide.csv", "prompt,model\n" + f"a cat,{MODEL}\n" * 60)
    ran = bench.do("run", manifest, "--json", "--max-in-flight", "4")
    assert ran.code == 3, ran.err
    document = ran.document
    assert (document["state"], document["pause_reason"]) == ("paused", "failing_alike")
    assert 10 <= document["jobs"]["failed"] <= 14
    # One that was let in and not sent may still have its place.
    assert document["jobs"]["pending"] + document["jobs"]["in_flight"] == 60 - document["jobs"]["failed"]
    said = bench.do("status", "wide")
    assert "10 submits in a row were refused with invalid_input" in said.err
    assert "comfy-batch resume wide" in said.err
    assert router.ledger()["billed"] == 0


def test_calls_a_second_hold_for_two_workers_together(bench: Bench, redis_url: str) -> None:
    bench.environment |= {"COMFY_BATCH_BROKER_URL": redis_url, "COMFY_BATCH_REQUESTS_PER_SECOND": "20"}
    router = bench.router()
    workers = [bench.start("worker") for _ in range(2)]
    lines = "".join(f"cat {row},{MODEL}\n" for row in range(30))
    ran = bench.do("run", bench.write("cats.csv", f"prompt,model\n{lines}"), "--json")
    assert ran.code == 0, ran.err
    times = [datetime.fromisoformat(ran.document[name]) for name in ("started_at", "finished_at")]
    seconds = (times[1] - times[0]).total_seconds()
    ledger = router.ledger(summary=True)["calls"]
    calls = sum(ledger[kind] for kind in ("submit", "result", "status"))
    assert calls >= 60
    # The last call of a row is a download, which is not counted; two lookups of the catalog came before.
    assert seconds >= (calls - 1) / 20 - 0.2
    for worker in workers:
        worker.send(signal.SIGTERM)
