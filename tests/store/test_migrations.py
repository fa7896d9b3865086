"""The tables that a new database gets, and how an old one becomes new."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

from runner.core.errors import SettingsError, StoreError
from runner.core.expiry import RETENTION
from runner.core.types import AssetState, BatchState, Charge, JobState, Step
from runner.store import tables
from runner.store.engine import Database, ping
from runner.store.migrate import HEAD, alembic_config, migrate
from runner.store.queries import Queries
from tests.support.fakes import START, Stores, do, job, open_stores, plain_result, succeed

#: A batch in mid-run, as the first release left it.
_OF_THE_FIRST_RELEASE = (
    "INSERT INTO credential (id, fingerprint, router, window_size, window_max) VALUES (1, 'f', 'https://r', 8, 8)",
    """INSERT INTO batch (id, name, fingerprint, credential_id, state, simulated, manifest, columns, asset_store,
         output_dir, total, created_at, started_at)
       VALUES ('b', 'cats', 'm', 1, 'active', FALSE, 'cats.csv', '[]', 'files', '/out', 3, :now, :now)""",
    """INSERT INTO job (id, batch_id, credential_id, row, custom_id, model, state, step, charge, run, idempotency_key,
         attempts, recollects, due_at, wake_at, request_id, first_sent_at, submitted_at)
       VALUES (1, 'b', 1, 1, 'one', 'm/x', 'queued', 'collect', 'possible', 1, 'k1', 0, 0, :now, :now, 'r1', :now, :now)
    """,
    """INSERT INTO job (id, batch_id, credential_id, row, custom_id, model, state, charge, run, idempotency_key,
         attempts, recollects, due_at)
       VALUES (2, 'b', 1, 2, 'two', 'm/x', 'pending', 'unbilled', 1, 'k2', 0, 0, :now)""",
    """INSERT INTO job (id, batch_id, credential_id, row, custom_id, model, state, charge, run, idempotency_key,
         attempts, recollects, due_at, finished_at)
       VALUES (3, 'b', 1, 3, 'three', 'm/x', 'succeeded', 'billed', 1, 'k3', 0, 0, :now, :now)""",
    "INSERT INTO payload (job_id, body, columns) VALUES (1, :body, '{}'), (2, :body, '{}'), (3, :body, '{}')",
    """INSERT INTO asset (job_id, number, pointer, secondary, state, attempts, mismatch, path)
       VALUES (3, 1, '/image', FALSE, 'saved', 1, FALSE, '/out/three.png')""",
)


def test_a_fresh_database_has_exactly_the_tables_that_the_program_uses(empty_database: Database) -> None:
    migrate(empty_database)
    with empty_database.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, tables.Batch.metadata) == []


def test_a_database_of_the_first_release_keeps_its_jobs_and_goes_on(empty_database: Database) -> None:
    with empty_database.write("test") as connection:
        config = alembic_config()
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        for statement in _OF_THE_FIRST_RELEASE:
            connection.execute(text(statement), {"now": START, "body": b"{}"})
    migrate(empty_database)
    stores = open_stores(empty_database)
    (batch,) = stores.batches.all()
    assert (batch.name, batch.total) == ("cats", 3)
    summary = Queries(empty_database).summary(batch)
    assert (summary.counts[JobState.SUCCEEDED], summary.charges[Charge.BILLED]) == (1, 1)
    assert summary.assets[AssetState.SAVED] == 1
    assert job(stores, 1)["deadline"] == START + RETENTION
    assert job(stores, 2)["deadline"] is None
    woken = stores.upkeep.sweep(1, START + 100)
    assert [(wake.row, wake.step) for wake in woken] == [(1, Step.COLLECT), (2, Step.SUBMIT)]
    succeed_from_there(stores)
    assert stores.batches.find("cats").state is BatchState.FINISHED


def succeed_from_there(stores: Stores) -> None:
    outcome, result = plain_result()
    do(stores, 1, Step.COLLECT, outcome, START + 100, result=result)
    succeed(stores, 2, START + 100)


def test_migrating_twice_changes_nothing(empty_database: Database) -> None:
    migrate(empty_database)
    with empty_database.write("test") as connection:
        connection.execute(text("INSERT INTO lease (name, holder, until) VALUES ('a', 'b', 1)"))
    migrate(empty_database)
    with empty_database.read() as connection:
        assert connection.execute(text("SELECT count(*) FROM lease")).scalar_one() == 1
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all() == [HEAD]


def test_the_revision_that_a_start_expects_is_the_newest_file() -> None:
    assert ScriptDirectory.from_config(alembic_config()).get_heads() == [HEAD]


def test_a_database_of_a_later_version_is_refused_with_advice(empty_database: Database) -> None:
    migrate(empty_database)
    with empty_database.write("test") as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = 'from-the-future'"))
    with pytest.raises(StoreError, match="later version") as caught:
        migrate(empty_database)
    assert caught.value.advice


def test_a_migration_that_is_refused_leaves_nothing_behind(empty_database: Database) -> None:
    # A table that is in the way makes the first revision fail in its middle.
    with empty_database.write("test") as connection:
        connection.execute(text("CREATE TABLE asset (id INTEGER)"))
    with pytest.raises(Exception, match="exists"):
        migrate(empty_database)
    with empty_database.read() as connection:
        assert inspect(connection).get_table_names() == ["asset"]


def test_a_database_that_does_not_work_is_named_without_its_password() -> None:
    database = Database("postgresql://user:hunter2@127.0.0.1:1/none")
    with pytest.raises(StoreError) as caught:
        ping(database)
    database.close()
    assert "127.0.0.1" in caught.value.message
    assert "hunter2" not in caught.value.message


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    path.write_text("not a database, but a text of some length " * 100)
    database = Database(f"sqlite:///{path}")
    with pytest.raises(StoreError, match=r"notes\.db"):
        migrate(database)
    database.close()


@pytest.mark.parametrize("url", ["mysql://localhost/x", "no url at all"])
def test_a_database_of_another_kind_is_refused_naming_the_setting(url: str) -> None:
    with pytest.raises(SettingsError, match="COMFY_BATCH_DATABASE_URL"):
        Database(url)
