"""Brokers and databases that die, freeze, fill up or forget, under workers that go on."""

from __future__ import annotations

import signal
import sqlite3
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from runner.store.engine import Database
from tests.acceptance.harness import (
    Bench,
    Program,
    Router,
    assert_files_are_as_recorded,
    csv_of,
    until,
)
from tests.support.databases import PrivatePostgres
from tests.support.redis import RedisServer

pytestmark = [pytest.mark.acceptance, pytest.mark.service]


def begin(
    bench: Bench, broker: str, rows: int, *, duration: float = 0.2, **changes: str
) -> tuple[Router, list[Program]]:
    """Workers on the broker, and a batch for them."""
    bench.environment |= {"COMFY_BATCH_BROKER_URL": broker, **changes}
    router = bench.router(duration=duration)
    programs = [bench.start("worker", "--concurrency", "8") for _ in range(2)]
    submitted = bench.do("submit", bench.write("cats.csv", csv_of(rows)), "--max-in-flight", "16")
    assert submitted.code == 0, submitted.err
    return router, programs


def assert_ends_well(bench: Bench, router: Router, rows: int, worker: Program | None = None) -> None:
    """The batch ends without help, everything there and paid once."""
    until(lambda: bench.status()["state"] == "finished", "the batch ends", worker, seconds=90)
    router.assert_paid_once(rows)
    status = bench.status()
    assert status["jobs"]["succeeded"] == rows
    assert_files_are_as_recorded(bench.export(), Path(status["output_dir"]))


class TestBrokers:
    def test_restarted_twice_and_emptied_the_batch_finishes_without_help(
        self, bench: Bench, own_redis: RedisServer
    ) -> None:
        router, workers = begin(bench, own_redis.url, 80)
        router.until_calls("media", 15, workers[0])
        own_redis.restart()
        router.until_calls("media", 20, workers[0])
        own_redis.restart()
        router.until_calls("media", 45, workers[0])
        with own_redis.client() as client:
            client.flushall()
        assert_ends_well(bench, router, 80, workers[0])
        assert all(worker.running for worker in workers)

    @pytest.mark.chaos
    def test_one_that_refuses_writes_for_a_while_costs_time_only(self, bench: Bench, own_redis: RedisServer) -> None:
        router, workers = begin(bench, own_redis.url, 150)
        router.until_calls("media", 8, workers[0])
        with own_redis.client() as client:
            client.config_set("maxmemory-policy", "noeviction")
            client.config_set("maxmemory", "1")
            until(lambda: "messages" in workers[0].err or "messages" in workers[1].err, "a message is refused")
            client.config_set("maxmemory", "0")
        assert_ends_well(bench, router, 150, workers[0])

    @pytest.mark.chaos
    def test_a_frozen_one_goes_on_where_it_was(self, bench: Bench, own_redis: RedisServer) -> None:
        router, workers = begin(bench, own_redis.url, 40)
        router.until_calls("media", 8, workers[0])
        own_redis.freeze()
        frozen = time.monotonic()
        # Longer than a call to it may take.
        until(lambda: time.monotonic() - frozen > 12, "some seconds are over")
        own_redis.thaw()
        assert_ends_well(bench, router, 40, workers[0])

    @pytest.mark.chaos
    def test_with_acknowledgements_a_killed_workers_jobs_do_not_wait_for_them(
        self, bench: Bench, own_redis: RedisServer
    ) -> None:
        router, workers = begin(
            bench,
            own_redis.url,
            40,
            COMFY_BATCH_VISIBILITY_TIMEOUT="3600",
            COMFY_BATCH_DOWNLOAD_TIMEOUT="60",
        )
        router.until_calls("media", 8, workers[0])
        workers[0].kill()
        assert_ends_well(bench, router, 40, workers[1])

    def test_rabbitmq_is_another_broker_by_its_address(self, bench: Bench, rabbitmq_url: str) -> None:
        router, workers = begin(bench, rabbitmq_url, 30)
        router.until_calls("media", 8, workers[0])
        workers[0].kill()
        again = bench.start("worker")
        assert_ends_well(bench, router, 30, again)

    def test_without_a_worker_on_it_run_does_the_work_itself(self, bench: Bench, own_redis: RedisServer) -> None:
        bench.environment["COMFY_BATCH_BROKER_URL"] = own_redis.url
        router = bench.router()
        ran = bench.do("run", bench.write("cats.csv", csv_of(6)))
        assert ran.code == 0, ran.err
        assert "Warning" not in ran.err
        assert "Traceback" not in ran.err
        router.assert_paid_once(6)


def test_due_polls_go_on_within_ten_seconds_after_all_workers_were_killed(bench: Bench, own_redis: RedisServer) -> None:
    router, workers = begin(bench, own_redis.url, 24, duration=2.0)
    router.until_calls("submit", 16, workers[0])
    for worker in workers:
        worker.kill()
    before, began = router.calls("result"), time.monotonic()
    again = bench.start("worker")
    router.until_calls("result", before + 1, again)
    taken = time.monotonic() - began
    assert taken < 10, f"it took {taken:.1f} s"
    assert_ends_well(bench, router, 24, again)


class TestDatabases:
    @pytest.mark.chaos
    def test_a_foreign_writer_that_holds_sqlite_for_seconds_delays_and_loses_nothing(self, bench: Bench) -> None:
        router = bench.router(duration=0.2)
        run = bench.start("run", bench.write("cats.csv", csv_of(40)), "--max-in-flight", "8")
        router.until_calls("media", 5, run)
        path = Path(bench.environment["COMFY_BATCH_HOME"]) / "comfy-batch.db"
        with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as foreign:
            for _ in range(2):
                foreign.execute("BEGIN IMMEDIATE")
                held = time.monotonic()
                until(lambda held=held: time.monotonic() - held > 4, "some seconds are over")  # type: ignore[misc]
                foreign.execute("COMMIT")
        ended = run.wait()
        assert ended.code == 0, ended.err
        router.assert_paid_once(40)

    def test_postgresql_restarted_in_mid_run_loses_nothing(
        self, bench: Bench, own_postgres: PrivatePostgres, own_redis: RedisServer
    ) -> None:
        bench.environment["COMFY_BATCH_DATABASE_URL"] = own_postgres.url.render_as_string(hide_password=False)
        router, workers = begin(bench, own_redis.url, 40)
        router.until_calls("media", 8, workers[0])
        own_postgres.kill()
        own_postgres.start_again()
        assert_ends_well(bench, router, 40, workers[0])

    @pytest.mark.parametrize(
        ("command", "kind"),
        [
            pytest.param("run", "postgresql", marks=pytest.mark.service),
            ("resume", "sqlite"),
            pytest.param("run", "sqlite", marks=pytest.mark.chaos),
            pytest.param("resume", "postgresql", marks=[pytest.mark.service, pytest.mark.chaos]),
        ],
    )
    def test_two_of_the_same_command_at_once_pay_once(
        self, bench: Bench, request: pytest.FixtureRequest, kind: str, command: str
    ) -> None:
        if kind == "postgresql":
            database = request.getfixturevalue("postgres_database")
            assert isinstance(database, Database)
            bench.environment["COMFY_BATCH_DATABASE_URL"] = database.url.render_as_string(hide_password=False)
        router = bench.router()
        manifest = bench.write("cats.csv", csv_of(200))
        arguments = ("run", manifest)
        if command == "resume":
            assert bench.do("run", manifest, "--wait", "0").code == 3
            arguments = ("resume", "cats")
        with ThreadPoolExecutor(2) as pool:
            ends = list(pool.map(lambda _: bench.start(*arguments, "--max-in-flight", "32").wait(), range(2)))
        assert [end.code for end in ends] == [0, 0], [end.err for end in ends]
        router.assert_paid_once(200)

    @pytest.mark.chaos
    @pytest.mark.parametrize("full", ["database", "media"])
    def test_a_full_disk_stops_the_work_with_advice_and_room_lets_it_finish(self, bench: Bench, full: str) -> None:
        router = bench.router()
        manifest = bench.write("cats.csv", csv_of(60))
        limited = [sys.executable, "-c", _LIMITED[full]]
        if full == "database":
            # So that only the record grows beyond what a file may have.
            bench.environment["COMFY_BATCH_ASSET_STORE"] = "database"
        ended = bench.start("run", manifest, program=limited).wait()
        assert ended.code == 3, ended.err
        assert "Traceback" not in ended.err
        assert "Next:" in ended.err
        folder = Path(bench.environment["COMFY_BATCH_HOME"]) / "output"
        assert not list(folder.rglob("*.part"))
        again = bench.do("run", manifest)
        assert again.code == 0, again.err
        router.assert_paid_once(60)


#: The command in a process whose files may not grow beyond a size, as they may not on a full disk.
_LIMITED = {
    what: f"""
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, resource.RLIM_INFINITY))
sys.argv[0] = "comfy-batch"
from runner.cli.main import main
main()
"""
    for what, size in (("database", 400_000), ("media", 4_000))
}


class TestStopping:
    @pytest.mark.parametrize(
        ("number", "slow"),
        [
            pytest.param(signal.SIGINT, "slow", id="SIGINT in a call"),
            pytest.param(signal.SIGTERM, "slow_media", id="SIGTERM in a download", marks=pytest.mark.chaos),
            pytest.param(signal.SIGTERM, "slow", id="SIGTERM in a call", marks=pytest.mark.chaos),
            pytest.param(signal.SIGINT, "slow_media", id="SIGINT in a download", marks=pytest.mark.chaos),
        ],
    )
    def test_run_leaves_within_ten_seconds_whatever_it_waits_for(
        self, bench: Bench, number: signal.Signals, slow: str
    ) -> None:
        router = bench.router()
        manifest = bench.write("cats.csv", csv_of(6))
        assert bench.do("run", manifest, "--wait", "0").code == 3
        router.faults(**{slow: 60.0})
        run = bench.start("run", manifest)
        until(lambda: bool(_claims(bench)), "a call is under way", run)
        run.send(number)
        began = time.monotonic()
        ended = run.wait()
        assert time.monotonic() - began < 10
        assert ended.code == 130, ended.err
        assert "comfy-batch resume cats" in ended.err
        assert _claims(bench) == 0
        router.faults(**{slow: 0.0})
        assert bench.do("run", manifest).code == 0
        router.assert_paid_once(6)

    @pytest.mark.chaos
    def test_a_worker_leaves_within_ten_seconds_of_sigterm(self, bench: Bench, own_redis: RedisServer) -> None:
        bench.environment["COMFY_BATCH_BROKER_URL"] = own_redis.url
        router = bench.router()
        assert bench.do("submit", bench.write("cats.csv", csv_of(6))).code == 0
        router.faults(slow=60.0)
        worker = bench.start("worker")
        until(lambda: bool(_claims(bench)), "a call is under way", worker)
        worker.send(signal.SIGTERM)
        began = time.monotonic()
        assert worker.wait().code == 0
        assert time.monotonic() - began < 10
        assert _claims(bench) == 0
        router.faults(slow=0.0)
        again = bench.start("worker")
        assert_ends_well(bench, router, 6, again)


def _claims(bench: Bench) -> int:
    path = Path(bench.environment["COMFY_BATCH_HOME"]) / "comfy-batch.db"
    with closing(sqlite3.connect(path, timeout=30)) as connection:
        return int(connection.execute("SELECT count(*) FROM job WHERE claim_token IS NOT NULL").fetchone()[0])
