"""Messages in any number: a broker never holds more than the window lets through, and repeats change nothing."""

from __future__ import annotations

from contextlib import closing

import pytest
from sqlalchemy import text

from config.settings import Settings
from runner.core.types import Step
from runner.store.engine import Database
from runner.store.records import Wake
from tasks.app import build_client
from tests.acceptance.harness import Bench, csv_of, until
from tests.support.redis import RedisServer

pytestmark = [pytest.mark.acceptance, pytest.mark.service]

_OWED = text("SELECT id, step, row FROM job WHERE step IS NOT NULL")


def test_however_long_a_batch_goes_on_the_broker_holds_a_few_messages_for_each_place_of_the_window(
    bench: Bench, own_redis: RedisServer
) -> None:
    window, rows = 20, 2000
    bench.environment |= {"COMFY_BATCH_BROKER_URL": own_redis.url, "COMFY_BATCH_MAX_IN_FLIGHT": str(window)}
    router = bench.router()
    submitted = bench.do("submit", bench.write("cats.csv", csv_of(rows)))
    assert submitted.code == 0, submitted.err
    with own_redis.client() as client:

        def held() -> int:
            return sum(int(client.llen(queue)) for queue in ("comfy-submit", "comfy-collect"))

        samples = [held()]
        assert samples == [window]
        worker = bench.start("worker", "--concurrency", "4")

        def enough() -> bool:
            samples.append(held())
            return router.calls("media") >= 10 * window

        until(enough, "ten windows' worth of rows are done", worker)
    # Beside those in the window as many may be fetched, and on a slow machine some are sent twice.
    assert max(samples) <= 4 * window, samples
    assert bench.status()["jobs"]["pending"] > rows / 2
    router.assert_courteous()


def test_with_every_message_sent_again_and_again_each_row_has_one_submit_and_one_download(
    bench: Bench, own_redis: RedisServer
) -> None:
    rows = 24
    bench.environment |= {"COMFY_BATCH_BROKER_URL": own_redis.url, "COMFY_BATCH_MAX_IN_FLIGHT": "8"}
    router = bench.router(duration=0.3)
    submitted = bench.do("submit", bench.write("cats.csv", csv_of(rows)))
    assert submitted.code == 0, submitted.err
    # No other settings count for who only publishes.
    publisher = build_client(Settings(broker_url=own_redis.url)).publisher
    sent = 0
    with closing(Database(f"sqlite:///{bench.environment['COMFY_BATCH_HOME']}/comfy-batch.db")) as database:

        def repeat() -> bool:
            nonlocal sent
            with database.read() as connection:
                owed = connection.execute(_OWED).all()
            wakes = [Wake(job, Step(step), "cats", row) for job, step, row in owed]
            sent += publisher.publish(wakes * 2)
            return bool(bench.status()["state"] == "finished")

        workers = [bench.start("worker", "--concurrency", "8") for _ in range(2)]
        until(repeat, "the batch ends", workers[0])

    assert sent > 6 * rows
    router.assert_paid_once(rows)
    assert {account["sends"] for account in router.ledger()["by_key"].values()} == {1}
    assert router.calls("media") == rows
    assert bench.status()["jobs"]["succeeded"] == rows
