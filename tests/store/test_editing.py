"""An edited manifest meets the batch of its name: matched by id, or by content and occurrence, never by position."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from runner.core.errors import UsageError
from runner.core.types import JobState, OutcomeKind
from runner.store.batches import BatchRecord, NewBatch, NewJob
from runner.store.editing import Changes, EditStore
from runner.store.engine import Database
from tests.support.fakes import POLICY, START, Seeded, Stores, admit, open_stores, rows_of, succeed

MODEL = "acme/paint"


@dataclass(frozen=True)
class Line:
    """A row of a manifest: an id or none, what is sent, and what is not."""

    id: str | None
    sent: str
    note: str = ""


def manifest(text_: str) -> list[Line]:
    """`fox=a` is a row with an id, `=a` one without; `/x` after it is a note."""
    lines = []
    for word in text_.split():
        id_, _, rest = word.partition("=")
        sent, _, note = rest.partition("/")
        lines.append(Line(id_ or None, sent, note))
    return lines


def write(stores: Stores, name: str, lines: Sequence[Line], *, complete: bool) -> Seeded:
    credential = stores.batches.credential("fingerprint", "https://router.invalid", 64)
    batch = NewBatch(
        name.encode().hex().ljust(32, "0")[:32], name, f"of {name}", credential, False, f"{name}.csv", "files", "out"
    )
    stores.batches.create(batch, START)
    rows = [
        NewJob(n, line.id or f"row-{n}", MODEL, line.sent.encode(), json.dumps({"id": line.id, "note": line.note}))
        for n, line in enumerate(lines, 1)
    ]
    list(stores.batches.write_rows(batch, rows, START))
    if complete:
        stores.batches.complete(batch.id, len(rows), '["id"]', START)
    with stores.database.read() as connection:
        found = connection.execute(text("SELECT id FROM job WHERE batch_id = :id ORDER BY row"), {"id": batch.id})
        return Seeded(batch, credential, tuple(found.scalars()))


class Edit:
    """A batch of one manifest, and what another makes of it."""

    def __init__(self, database: Database, before: str | Sequence[Line], after: str | Sequence[Line]) -> None:
        self.stores = open_stores(database)
        self.edits = EditStore(database)
        self.before = write(self.stores, "cats", manifest(before) if isinstance(before, str) else before, complete=True)
        self.after = write(
            self.stores, "cats~new", manifest(after) if isinstance(after, str) else after, complete=False
        )
        self.changes: Changes = self.edits.compare(self.before.batch.id, self.after.batch.id)

    @property
    def batch(self) -> BatchRecord:
        return self.stores.batches.find("cats")

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """New, changed, removed, unchanged."""
        found = self.changes
        return found.new, found.changed, found.removed, found.unchanged

    def adopt(self) -> None:
        self.edits.adopt(self.batch, self.after.batch, '["id","note"]', self.changes, ("archive", "cats@1"), START)
        self.stores.batches.discard(self.after.batch.id)

    def rows(self, batch_id: str) -> list[tuple[int, str, str]]:
        """Row, id and what is sent, in order."""
        with self.stores.database.read() as connection:
            found = connection.execute(
                text("""
                SELECT j.row, j.custom_id, p.body FROM job j JOIN payload p ON p.job_id = j.id
                WHERE j.batch_id = :id ORDER BY j.row
                """),
                {"id": batch_id},
            )
            return [(row, custom_id, bytes(body).decode()) for row, custom_id, body in found]


class TestMatching:
    @pytest.mark.parametrize(
        ("before", "after", "counts"),
        [
            pytest.param("a=1 b=2", "a=1 b=2", (0, 0, 0, 2), id="the same"),
            pytest.param("a=1 b=2", "b=2 a=1", (0, 0, 0, 2), id="reordered"),
            pytest.param("a=1 b=2", "x=9 a=1 b=2", (1, 0, 0, 2), id="inserted above"),
            pytest.param("a=1 b=2", "a=1 b=3", (0, 1, 0, 1), id="changed"),
            pytest.param("a=1 b=2", "a=1", (0, 0, 1, 1), id="removed"),
            pytest.param("a=1 b=2", "a=1 c=2", (1, 0, 1, 1), id="another id is another row, whatever it sends"),
            pytest.param("=1 =2", "=2 =1", (0, 0, 0, 2), id="without ids by content"),
            pytest.param("=1 =1", "=1 =1 =1", (1, 0, 0, 2), id="once more the same is a new row"),
            pytest.param("=1 =1 =1", "=1 =1", (0, 0, 1, 2), id="once less the same is a removed one"),
            pytest.param("=1 =2", "=1 =3", (1, 0, 1, 1), id="without ids a change is a new row"),
            pytest.param("=1 =2", "a=1 b=2", (0, 0, 0, 2), id="ids given later"),
            pytest.param("a=1 b=2", "=1 =2", (0, 0, 0, 2), id="ids taken away"),
            pytest.param("x=1 =1", "y=1", (0, 0, 1, 1), id="a row without id goes first to one with another"),
            pytest.param("a=1/x", "a=1/y", (0, 0, 0, 1), id="what is not sent is no change"),
            pytest.param("row-2=1 b=2", "b=2 row-2=1", (0, 0, 0, 2), id="an id that looks made up"),
        ],
    )
    def test_rows_are_told_apart(
        self, database: Database, before: str, after: str, counts: tuple[int, int, int, int]
    ) -> None:
        assert Edit(database, before, after).counts == counts

    def test_only_what_would_be_sent_is_priced(self, sqlite_database: Database) -> None:
        edit = Edit(sqlite_database, "a=1 b=2 c=3", "a=1 b=9 d=4")
        assert sorted(edit.edits.to_price(edit.changes)) == [(MODEL, "", b"4"), (MODEL, "", b"9")]


class TestAdopting:
    def test_the_batch_has_the_edited_rows_in_their_order_and_what_left_stands_beside_it(
        self, database: Database
    ) -> None:
        edit = Edit(database, "a=1 b=2 c=3 d=4", "d=4 x=9 b=7 a=1/new")
        edit.adopt()
        assert edit.rows(edit.before.batch.id) == [(1, "d", "4"), (2, "x", "9"), (3, "b", "7"), (4, "a", "1")]
        assert edit.rows("archive") == [(2, "b", "2"), (3, "c", "3")]
        batch, archive = edit.batch, edit.stores.batches.find("cats@1")
        assert (batch.total, batch.fingerprint, batch.columns) == (4, "of cats~new", '["id","note"]')
        assert (archive.total, archive.state.value) == (2, "cancelling")
        assert edit.stores.batches.by_name("cats~new") is None

    def test_what_is_unchanged_keeps_its_outcome_its_key_and_its_result(self, database: Database) -> None:
        edit = Edit(database, "a=1 b=2", "x=9 b=2 a=1")
        admit(edit.stores, edit.before)
        succeed(edit.stores, edit.before.jobs[0])
        key = rows_of(database, "job")[0]["idempotency_key"]
        edit.adopt()
        kept = next(row for row in rows_of(database, "job") if row["custom_id"] == "a")
        assert (kept["state"], kept["idempotency_key"], kept["row"]) == ("succeeded", key, 3)
        assert [row["job_id"] for row in rows_of(database, "result")] == [kept["id"]]

    def test_columns_that_are_not_sent_are_those_of_the_edited_manifest(self, database: Database) -> None:
        edit = Edit(database, "a=1/old", "a=1/new")
        edit.adopt()
        (payload,) = rows_of(database, "payload")
        assert json.loads(payload["columns"])["note"] == "new"

    def test_new_rows_of_an_ended_batch_are_sent_and_no_others(self, database: Database) -> None:
        edit = Edit(database, "a=1", "a=1 b=2")
        admit(edit.stores, edit.before)
        succeed(edit.stores, edit.before.jobs[0])
        edit.adopt()
        edit.stores.batches.resume(edit.before.batch.id, START + 1, POLICY)
        (wake,) = edit.stores.upkeep.sweep(edit.before.credential, START + 1)
        assert rows_of(database, "job")[1]["id"] == wake.job_id

    def test_what_left_and_was_not_sent_ends_unsent(self, database: Database) -> None:
        edit = Edit(database, "a=1 b=2", "a=1")
        edit.adopt()
        edit.stores.batches.cancel("archive", "cats@1", START)
        assert [row["state"] for row in rows_of(database, "job")] == ["pending", "cancelled"]
        assert edit.stores.batches.find("cats@1").state.value == "finished"

    def test_nothing_is_set_aside_where_nothing_left(self, database: Database) -> None:
        edit = Edit(database, "a=1", "a=1 b=2")
        edit.adopt()
        assert [batch.name for batch in edit.stores.batches.all()] == ["cats"]

    def test_keys_of_later_runs_never_meet_those_of_rows_that_stood_there_before(self, database: Database) -> None:
        edit = Edit(database, "a=1", "x=9 a=1")
        edit.adopt()
        edit.stores.batches.cancel(edit.before.batch.id, "cats", START)
        moved = edit.stores.batches.move(
            edit.before.batch.id, OutcomeKind.RETRY, (JobState.CANCELLED,), START + 1, POLICY
        )
        keys = [row["idempotency_key"] for row in rows_of(database, "job")]
        assert (moved, len(set(keys))) == (2, 2)
        assert all(key.endswith("-2") for key in keys)

    def test_a_batch_that_somebody_else_changed_meanwhile_is_left_alone(self, database: Database) -> None:
        edit = Edit(database, "a=1", "a=2")
        batch = edit.batch
        edit.adopt()
        other = write(edit.stores, "other", manifest("a=3"), complete=False)
        with pytest.raises(UsageError, match="another process changed `cats`"):
            edit.edits.adopt(batch, other.batch, "[]", edit.changes, ("second", "cats@2"), START)


LINES = st.lists(
    st.builds(Line, st.sampled_from([None, None, "a", "b", "c"]), st.sampled_from("123"), st.sampled_from(["", "x"])),
    max_size=8,
).map(
    # An id stands once in a manifest.
    lambda lines: [
        line for n, line in enumerate(lines) if line.id is None or line.id not in {other.id for other in lines[:n]}
    ]
)


class TestAnyEdit:
    @given(before=LINES, after=LINES)
    @settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_the_batch_becomes_what_the_manifest_says_and_nothing_is_lost(
        self, sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory, before: list[Line], after: list[Line]
    ) -> None:
        path = tmp_path_factory.mktemp("edit") / "jobs.db"
        path.write_bytes(sqlite_template.read_bytes())
        database = Database(f"sqlite:///{path}")
        try:
            edit = Edit(database, before, after)
            edit.adopt()
            wanted = [(n, line.id or f"row-{n}", line.sent) for n, line in enumerate(after, 1)]
            assert edit.rows(edit.before.batch.id) == wanted
            kept = {row["id"] for row in rows_of(database, "job")} & set(edit.before.jobs)
            assert kept == set(edit.before.jobs)
            new, changed, removed, unchanged = edit.counts
            assert (new + changed + unchanged, removed + changed + unchanged) == (len(after), len(before))
            # By content alone no more can match; by id some that would must not.
            most = Counter(line.sent for line in before) & Counter(line.sent for line in after)
            assert unchanged <= most.total()
            if not any(line.id for line in before + after):
                assert unchanged == most.total()
        finally:
            database.close()
