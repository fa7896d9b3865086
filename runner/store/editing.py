"""A batch takes on an edited manifest: what stayed keeps its outcome, what is new or changed is sent.

The edited manifest's rows are first written as a batch of their own, which is never sent (`total` is `None`). Then
rows are matched in the database, so that memory stays flat, and one transaction makes the old batch that of the new
manifest. Rows that left it keep their record in a batch beside it.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from sqlalchemy import Connection, bindparam, text

from runner.core.errors import UsageError
from runner.store.batches import BatchRecord, NewBatch
from runner.store.engine import Database

#: Rows looked up at a time.
CHUNK = 500

# Rows with an id of their own match by it. The others match by what is sent, the first with the first, the second with
# the second. A made-up id says where the row stands, which is nothing to go by.
_MATCHED = """
WITH old AS MATERIALIZED (
  SELECT j.id, j.row, CASE WHEN j.custom_id = 'row-' || j.row THEN NULL ELSE j.custom_id END AS given,
    {digest} AS digest
  FROM job j JOIN payload p ON p.job_id = j.id WHERE j.batch_id = :old),
new AS MATERIALIZED (
  SELECT j.id, j.row, CASE WHEN j.custom_id = 'row-' || j.row THEN NULL ELSE j.custom_id END AS given,
    {digest} AS digest
  FROM job j JOIN payload p ON p.job_id = j.id WHERE j.batch_id = :new),
by_id AS MATERIALIZED (
  SELECT old.id AS old_id, new.id AS new_id, old.digest = new.digest AS same
  FROM old JOIN new ON new.given = old.given),
old_rest AS MATERIALIZED (
  SELECT id, given, digest, ROW_NUMBER() OVER (PARTITION BY digest ORDER BY given IS NOT NULL, row) AS nth
  FROM old LEFT JOIN by_id ON by_id.old_id = old.id WHERE by_id.old_id IS NULL),
new_rest AS MATERIALIZED (
  SELECT id, given, digest, ROW_NUMBER() OVER (PARTITION BY digest ORDER BY given IS NOT NULL, row) AS nth
  FROM new LEFT JOIN by_id ON by_id.new_id = new.id WHERE by_id.new_id IS NULL),
matched AS MATERIALIZED (
  SELECT old_id, new_id, same FROM by_id
  UNION ALL
  SELECT o.id, n.id, 1 = 1 FROM old_rest o JOIN new_rest n ON n.digest = o.digest AND n.nth = o.nth
  WHERE o.given IS NULL OR n.given IS NULL)
SELECT CASE WHEN NOT m.same THEN 'changed'
  WHEN oj.row = nj.row AND oj.custom_id = nj.custom_id AND op.columns = np.columns THEN 'same' ELSE 'moved' END,
  m.old_id, m.new_id
FROM matched m JOIN job oj ON oj.id = m.old_id JOIN job nj ON nj.id = m.new_id
  JOIN payload op ON op.job_id = m.old_id JOIN payload np ON np.job_id = m.new_id
UNION ALL SELECT 'new', 0, new.id FROM new LEFT JOIN matched m ON m.new_id = new.id WHERE m.new_id IS NULL
UNION ALL SELECT 'removed', old.id, 0 FROM old LEFT JOIN matched m ON m.old_id = old.id WHERE m.old_id IS NULL
"""
#: What of a row is sent.
_DIGEST = {
    "sqlite": "sent_digest(j.model, p.query, p.body)",
    "postgresql": "sha256(convert_to(j.model || chr(10) || p.query || chr(10), 'UTF8') || p.body)",
}
_TO_PRICE = text("""
SELECT j.model, p.query, p.body FROM job j JOIN payload p ON p.job_id = j.id WHERE j.id IN :ids
""").bindparams(bindparam("ids", expanding=True))
_ARCHIVE = text("""
INSERT INTO batch (id, name, fingerprint, credential_id, state, simulated, manifest, columns, asset_store, output_dir,
  name_template, total, created_at, started_at)
SELECT :archive, :name, :mark, credential_id, 'cancelling', simulated, manifest, columns, asset_store, output_dir,
  name_template, :total, :created_at, started_at FROM batch WHERE id = :old
""")
_SET_ASIDE = text("UPDATE job SET batch_id = :archive WHERE id = :id")
_SET_MEDIA_ASIDE = text("UPDATE asset SET batch_id = :archive WHERE job_id = :id")
# Below zero there is room: two rows that change places would meet otherwise.
_MOVE = text("""
UPDATE job SET row = -(SELECT n.row FROM job n WHERE n.id = :new),
  custom_id = (SELECT n.custom_id FROM job n WHERE n.id = :new) WHERE id = :id
""")
_TELL_COLUMNS = text(
    "UPDATE payload SET columns = (SELECT columns FROM payload WHERE job_id = :new) WHERE job_id = :id"
)
_PUT_DOWN = text("UPDATE job SET row = -row WHERE batch_id = :old AND row < 0")
_TAKE_IN = text("UPDATE job SET batch_id = :old WHERE id = :id")
_ADOPT = text("""
UPDATE batch SET fingerprint = :fingerprint, manifest = :manifest, columns = :columns, total = :total, alike = 0,
  alike_as = NULL, created_at = :now WHERE id = :old AND fingerprint = :known
""")


@dataclass
class Changes:
    """What an edited manifest makes of a batch, row by row; ids are those of jobs."""

    unchanged: int = 0
    changed: int = 0
    removed: int = 0
    new: int = 0
    #: Unchanged rows that stand elsewhere now, or have other columns beside what is sent: old id, new id by turns.
    moved: array[int] = field(default_factory=lambda: array("q"))
    #: Rows to be sent, new and changed.
    added: array[int] = field(default_factory=lambda: array("q"))
    #: Rows that leave the batch, removed or changed.
    left: array[int] = field(default_factory=lambda: array("q"))

    @property
    def total(self) -> int:
        """Rows of the edited manifest."""
        return self.unchanged + self.changed + self.new

    def note(self, kind: str, old: int, new: int) -> None:
        """One row more."""
        if kind in {"same", "moved"}:
            self.unchanged += 1
        else:
            setattr(self, kind, getattr(self, kind) + 1)
        if kind == "moved":
            self.moved.extend((old, new))
        if kind in {"new", "changed"}:
            self.added.append(new)
        if kind in {"removed", "changed"}:
            self.left.append(old)


class EditStore:
    """Transactions of a manifest that was edited."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def compare(self, old_id: str, new_id: str) -> Changes:
        """How the rows of two batches differ; of each row it tells only numbers apart."""
        changes = Changes()
        with self._database.read() as connection:
            dialect = connection.dialect.name
            if dialect == "sqlite":
                driver: Any = connection.connection.driver_connection
                driver.create_function("sent_digest", 3, _sent_digest, deterministic=True)
            statement = text(_MATCHED.format(digest=_DIGEST[dialect]))
            for kind, old, new in connection.execution_options(yield_per=10_000).execute(
                statement, {"old": old_id, "new": new_id}
            ):
                changes.note(kind, old, new)
        return changes

    def to_price(self, changes: Changes) -> Iterator[tuple[str, str, bytes]]:
        """Model, query parameters and body of every row that would be sent."""
        rest = iter(changes.added)
        while ids := list(islice(rest, CHUNK)):
            with self._database.read() as connection:
                yield from (tuple(row) for row in connection.execute(_TO_PRICE, {"ids": ids}))

    def adopt(
        self,
        old: BatchRecord,
        new: NewBatch,
        columns: str,
        changes: Changes,
        archive: tuple[str, str],
        now: float,
    ) -> None:
        """Make the old batch that of the edited manifest, whose rows stand as `new`; durable, as it makes keys count.

        What leaves it goes to a batch of the id and the name in `archive`, which is being cancelled; there is none when
        nothing leaves. The batch counts as created `now`, so that it is the last one. Raises `UsageError` when somebody
        else changed the batch meanwhile.
        """
        archive_id, archive_name = archive
        with self._database.write("adopt manifest", durable=True) as connection:
            adopted = connection.execute(
                _ADOPT,
                {
                    "old": old.id,
                    "known": old.fingerprint,
                    "fingerprint": new.fingerprint,
                    "manifest": new.manifest,
                    "columns": columns,
                    "total": changes.total,
                    "now": now,
                },
            )
            if adopted.rowcount != 1:
                raise UsageError(
                    f"another process changed `{old.name}` meanwhile", advice="type the same command again"
                )
            if changes.left:
                mark = f"edited-{archive_id}"
                values = {"archive": archive_id, "name": archive_name, "mark": mark, "total": len(changes.left)}
                connection.execute(_ARCHIVE, {**values, "old": old.id, "created_at": old.created_at})
                left = [{"id": job, "archive": archive_id} for job in changes.left]
                _each(connection, _SET_ASIDE, left)
                _each(connection, _SET_MEDIA_ASIDE, left)
            moved = zip(changes.moved[::2], changes.moved[1::2], strict=True)
            pairs = [{"id": job, "new": new_job} for job, new_job in moved]
            _each(connection, _MOVE, pairs)
            _each(connection, _TELL_COLUMNS, pairs)
            connection.execute(_PUT_DOWN, {"old": old.id})
            _each(connection, _TAKE_IN, [{"id": job, "old": old.id} for job in changes.added])


def _each(connection: Connection, statement: Any, values: Sequence[Mapping[str, object]]) -> None:
    if values:
        connection.execute(statement, values)


def _sent_digest(model: str, query: str, body: bytes) -> bytes:
    return hashlib.sha256(f"{model}\n{query}\n".encode() + body).digest()
