"""Beds for cases, some at a time: most of a case is waiting, which a dozen can do together."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Self

import psycopg
import redis
from sqlalchemy.engine import URL, make_url
from sqlmodel import SQLModel

from tests.crash.boundaries import Crossing
from tests.crash.cases import Bed, Case, Story, play, play_clean
from tests.crash.ends import End
from tests.crash.programs import Nursery
from tests.support.redis import VARIABLE as GIVEN_REDIS

#: Cases that go on at a time.
LANES = int(os.environ.get("COMFY_BATCH_TEST_CRASH_LANES", "12"))
#: How long a case may take, with all others that go on, in seconds.
PATIENCE = 180.0


@dataclass(frozen=True)
class Clean:
    """What a batch comes to that nothing happens to."""

    end: End
    traces: dict[str, list[Crossing]]


@dataclass(frozen=True)
class Lane:
    """A database and a broker for one case at a time."""

    database_url: str
    broker_url: str


class Embedded:
    """Beds with everything in one process, on SQLite."""

    engine = "embedded"

    def __init__(self, nursery: Nursery, folder: Path, template: Path) -> None:
        self._nursery = nursery
        self._folder = folder
        self._template = template

    @contextmanager
    def bed(self, *, with_tables: bool = True) -> Iterator[Bed]:
        """A bed of its own; without tables it is as on the day of the installation."""
        folder = new_folder(self._folder)
        if with_tables:
            shutil.copyfile(self._template, folder / "jobs.db")
        with Bed(self._nursery, folder, f"sqlite:///{folder / 'jobs.db'}") as bed:
            yield bed


class OnBroker:
    """Beds with a worker on Redis and PostgreSQL.

    Lanes are emptied for the next case: that is quicker than new ones.
    """

    engine = "broker"

    def __init__(self, nursery: Nursery, folder: Path, server: URL, template: str, redis_url: str) -> None:
        self._nursery = nursery
        self._folder = folder
        self._server = server
        self._template = template
        self._lanes: SimpleQueue[Lane] = SimpleQueue()
        self._held = ExitStack()
        # A server that was given has only the one database that it was given for.
        brokers = [redis_url] if os.environ.get(GIVEN_REDIS) else _databases_of(redis_url)
        for broker in brokers:
            self._lanes.put(Lane(self._held.enter_context(self._database(template)), broker))

    def close(self) -> None:
        """Remove the lanes' databases."""
        self._held.close()

    @contextmanager
    def bed(self, *, with_tables: bool = True) -> Iterator[Bed]:
        """A bed of its own; without tables it is as on the day of the installation."""
        lane = self._lanes.get()
        try:
            _empty(lane)
            with ExitStack() as stack:
                url = lane.database_url if with_tables else stack.enter_context(self._database("template1"))
                yield stack.enter_context(Bed(self._nursery, new_folder(self._folder), url, lane.broker_url))
        finally:
            self._lanes.put(lane)

    @contextmanager
    def _database(self, template: str) -> Iterator[str]:
        name = f"comfy_batch_crash_{secrets.token_hex(8)}"
        address = self._server.set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"'.encode())
        try:
            yield self._server.set(database=name).render_as_string(hide_password=False)
        finally:
            with psycopg.connect(address, autocommit=True) as connection:
                connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


def _databases_of(redis_url: str) -> list[str]:
    return [f"{redis_url.rpartition('/')[0]}/{number}" for number in range(LANES)]


def _empty(lane: Lane) -> None:
    with redis.Redis.from_url(lane.broker_url) as client:
        client.flushdb()
    address = make_url(lane.database_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(address) as connection:
        for table in reversed(SQLModel.metadata.sorted_tables):
            connection.execute(f'DELETE FROM "{table.name}"'.encode())


def new_folder(parent: Path) -> Path:
    """A folder that nobody has."""
    folder = parent / secrets.token_hex(4)
    folder.mkdir()
    return folder


class Ward:
    """Plays cases and stories on one engine, several at a time, and keeps what came of them."""

    def __init__(self, beds: Embedded | OnBroker) -> None:
        self._beds = beds
        self._ends: dict[Case, Future[End]] = {}
        self._told: dict[Story, Future[None]] = {}

    def __enter__(self) -> Self:
        self._lanes = ThreadPoolExecutor(LANES, thread_name_prefix="lane")
        self._clean = {late: self._lanes.submit(self._play_clean, late) for late in (False, True)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lanes.shutdown(cancel_futures=True)

    def begin(self, chosen: Iterable[Case | Story]) -> None:
        """Let these be played as soon as there is room."""
        for one in chosen:
            if isinstance(one, Story):
                if one not in self._told:
                    self._told[one] = self._lanes.submit(self._tell, one)
            elif one not in self._ends:
                self._ends[one] = self._lanes.submit(self._play, one)

    def clean(self, *, late: bool = False) -> Clean:
        """The batch that nothing happens to, with the late row or without."""
        return self._clean[late].result(PATIENCE)

    def end_of(self, case: Case) -> End:
        """What came of a case."""
        self.begin([case])
        return self._ends[case].result(self._patience())

    def hear(self, story: Story) -> None:
        """Raises what the story's own assertions raise."""
        self.begin([story])
        self._told[story].result(self._patience())

    def _patience(self) -> float:
        return PATIENCE + 5 * (len(self._ends) + len(self._told))

    def _play(self, case: Case) -> End:
        with self._beds.bed(with_tables=case.detail != "create tables") as bed:
            return play(bed, case)

    def _tell(self, story: Story) -> None:
        with self._beds.bed() as bed:
            story.tell(bed, self.clean().end, *story.arguments)

    def _play_clean(self, late: bool) -> Clean:
        with self._beds.bed(with_tables=False) as bed:
            return Clean(*play_clean(bed, self._beds.engine, late=late))
