"""One batch on either engine, killed at a point and begun again, and what came of it."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from celery import Celery
from sqlalchemy import inspect, text

from runner.core.types import Step
from runner.simulator.config import SimulatorConfig
from runner.simulator.server import SimulatorServer
from runner.store.engine import Database
from tests.acceptance.harness import API_KEY, Ended, Router, until
from tests.crash.boundaries import Crossing
from tests.crash.ends import End, look
from tests.crash.programs import Nursery, Program
from tests.crash.watchers import read_trace

#: One row for each way that a job can go: a picture in the document, a text, a run that fails, a picture behind a link
#: that must be asked for twice, and two files of which one can be there without the other. Seeds make equal pictures.
ROWS: tuple[Mapping[str, Any], ...] = (
    {"id": "inline", "model": "fal/h3-max", "prompt": "a paper boat", "seed": 2},
    {
        "id": "text",
        "model": "anthropic/claude-sonnet-5",
        "body": {"max_tokens": 64, "messages": [{"role": "user", "content": "one word"}]},
    },
    {"id": "failing", "model": "bfl/flux-2-pro", "prompt": "a tower [fail:provider_error]", "seed": 3},
    {"id": "slow", "model": "bfl/flux-2-pro", "prompt": "a bridge [slow:1]", "seed": 4},
    {"id": "two", "model": "fal/fal-gpt-image-2", "body": {"prompt": "two cats", "seed": 5, "num_images": 2}},
)
#: A row that takes longer than it may. It keeps every batch waiting, so that it is only where it is needed.
LATE: Mapping[str, Any] = {"id": "late", "model": "bfl/flux-2-pro", "prompt": "a hill [slow:300]", "seed": 6}
MANIFEST = "rows.jsonl"
#: Fewer than there are rows, so that jobs are let in as others leave.
IN_FLIGHT = "3"
#: How long a request may take, in seconds: longer than the slow row, whatever else goes on.
LIMIT = "2"
#: As they are named by default.
NAMES = "{batch}-{row}-{custom_id}-{index}.{ext}"
LIMITS = ("--max-in-flight", IN_FLIGHT, "--cancel-after", LIMIT, "--max-cost", "100")
OPTIONS = (MANIFEST, *LIMITS, "--name-template", NAMES, "--yes")
_FINISHED = text("SELECT finished_at FROM batch")
_CLAIMED_READS = text("SELECT count(*) FROM job WHERE claim_token IS NOT NULL AND step IN ('collect', 'status')")


@dataclass(frozen=True, slots=True)
class Case:
    """A death: of which command, at which crossing of which boundary."""

    command: str
    boundary: str
    detail: str
    crossing: int = 1

    @property
    def engine(self) -> str:
        """`embedded` or `broker`."""
        return "embedded" if self.command == "run" else "broker"

    @property
    def late(self) -> bool:
        """Whether the boundary is crossed for a late row only."""
        return self.detail == Step.CANCEL

    def __str__(self) -> str:
        parts = (self.command, self.boundary, self.detail, f"{self.crossing}" if self.crossing > 1 else "")
        return "-".join(part.replace(" ", "_") for part in parts if part)


@dataclass(frozen=True, slots=True)
class Story:
    """Deaths of another kind, told by a function that starts programs in a bed and asserts what comes of it."""

    engine: str
    tell: Callable[..., None]
    arguments: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "-".join(part.replace(" ", "_") for part in (self.engine, *self.arguments))


@dataclass
class Bed:
    """Where one case takes place: a folder, a database, a broker if need be, a Router of its own."""

    nursery: Nursery
    folder: Path
    database_url: str
    broker_url: str | None = None
    _held: ExitStack = field(default_factory=ExitStack)
    _programs: list[Program] = field(default_factory=list)

    def __enter__(self) -> Bed:
        server = self._held.enter_context(SimulatorServer(SimulatorConfig(duration=0)))
        # Opened once, since some of the waiting is done by asking it.
        self.database = self._held.enter_context(closing(Database(self.database_url)))
        self.router = Router(server.base_url)
        self.write(MANIFEST, ROWS)
        return self

    def __exit__(self, *_: object) -> None:
        for program in self._programs:
            program.close()
        self._held.close()

    def write(self, name: str, rows: tuple[Mapping[str, Any], ...], *, after: str = "") -> None:
        """A manifest in the folder, with what else shall stand in it."""
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (self.folder / name).write_text(lines + after, encoding="utf-8")

    def start(self, *arguments: str, kill: Case | None = None, record: Path | None = None) -> Program:
        """Start the command, watched or not."""
        number = len(self._programs)
        order: dict[str, Any] = {
            "arguments": arguments,
            "environment": self._environment(),
            "folder": str(self.folder),
            "out": str(self.folder / f"{number}.out"),
            "err": str(self.folder / f"{number}.err"),
        }
        if kill is not None:
            order["kill"] = (kill.boundary, kill.detail, kill.crossing)
        if record is not None:
            order["record"] = str(record)
        program = self.nursery.start(order)
        self._programs.append(program)
        return program

    def _environment(self) -> dict[str, str]:
        environment = {
            "PATH": os.defpath,
            "HOME": str(self.folder),
            "COMFY_API_KEY": API_KEY,
            "COMFY_ROUTER_BASE_URL": self.router.base_url,
            "COMFY_BATCH_HOME": str(self.folder / "home"),
            "COMFY_BATCH_DATABASE_URL": self.database_url,
            # All cases that go on at a time would share one core.
            "COMFY_BATCH_ONE_CORE": "false",
        }
        return environment | ({"COMFY_BATCH_BROKER_URL": self.broker_url} if self.broker_url else {})

    def is_finished(self) -> bool:
        """Whether the batch has come to its end."""
        with self.database.read() as connection:
            return connection.execute(_FINISHED).scalar_one_or_none() is not None

    def work(self, *, kill: Case | None = None, record: Path | None = None) -> Ended:
        """A worker that is told to stop once the batch is finished, unless it dies before."""
        idle = self.is_finished()
        worker = self.start("worker", kill=kill, record=record)
        if idle:
            # It must be there to hear that it shall stop.
            until(lambda: self._is_heard() or not worker.running, "the worker answers")
        worker.wait_while(lambda: not self.is_finished())
        worker.send(signal.SIGTERM)
        return worker.wait()

    def _is_heard(self) -> bool:
        with Celery("probe", broker=self.broker_url, set_as_current=False) as probe:
            return bool(probe.control.ping(timeout=1, limit=1))

    def do(self, command: str, *, kill: Case | None = None, record: Path | None = None) -> Ended:
        """`run`, `submit` or `worker`, from its start to its end."""
        if command == "worker":
            return self.work(kill=kill, record=record)
        return self.start(command, *OPTIONS, kill=kill, record=record).wait()


def rows_of(late: bool) -> tuple[Mapping[str, Any], ...]:
    """The manifest, with the late row or without."""
    return (*ROWS, LATE) if late else ROWS


def commands_of(engine: str) -> tuple[str, ...]:
    """What a batch takes from its manifest to its end."""
    return ("run",) if engine == "embedded" else ("submit", "worker")


def play_clean(bed: Bed, engine: str, *, late: bool) -> tuple[End, dict[str, list[Crossing]]]:
    """A batch that nothing happens to, and what each command crossed."""
    bed.write(MANIFEST, rows_of(late))
    traces = {}
    began = time.time()
    for command in commands_of(engine):
        record = bed.folder / f"{command}.trace"
        ended = bed.do(command, record=record)
        traces[command] = read_trace(record)
    return look(bed.database, bed.router, ended, began), traces


def play(bed: Bed, case: Case) -> End:
    """The case's command is killed and begun again; the others go on as if nothing had happened."""
    bed.write(MANIFEST, rows_of(case.late))
    began, lost_reads = time.time(), 0
    for command in commands_of(case.engine):
        if command == case.command:
            died = bed.do(command, kill=case)
            # How often some boundaries are crossed depends on how long things take: a later time may not come.
            assert died.code == -signal.SIGKILL or case.crossing > 1, f"it ended with {died.code}: {died.err}"
            lost_reads = _lost_reads(bed)
            began = time.time()
        ended = bed.do(command)
    end = look(bed.database, bed.router, ended, began)
    end.killed, end.lost_reads = died.code == -signal.SIGKILL, lost_reads
    return end


def _lost_reads(bed: Bed) -> int:
    with bed.database.read() as connection:
        if not inspect(connection).has_table("job"):
            return 0
        return int(connection.execute(_CLAIMED_READS).scalar_one())
