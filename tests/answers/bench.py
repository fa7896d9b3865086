"""A batch at a live Router, worked on in this process, at a time that the test holds: waits cost nothing."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from typer.main import get_command

from runner.cli.main import app
from runner.cli.output import err, out
from runner.core.addresses import is_loopback
from runner.core.types import Policy
from runner.router.client import RouterClient
from runner.router.media import MediaClient
from runner.simulator.config import SimulatorConfig
from runner.simulator.faults import FaultPlan, with_faults
from runner.simulator.server import SimulatorServer
from runner.store.engine import Database
from runner.store.jobs import JobStore
from runner.store.upkeep import UpkeepStore
from tasks.pacing import FirstRead
from tasks.steps import STEPS, Runtime
from tests.acceptance.harness import Ended, Router
from tests.support.fakes import Clock

MODEL = "bfl/flux-2-pro"
#: Its schema is not authored, so that nothing of a body is refused ahead.
OPEN_MODEL = "fal/fal-gpt-image-2"
#: Made once: it takes longer than most commands.
_COMMAND = get_command(app)
#: Longer than any wait that the runner plans by itself, in seconds.
A_DAY = 86_400.0
_NEXT = text("""
SELECT MIN(at) FROM (
  SELECT wake_at AS at FROM job WHERE wake_at > :now
  UNION ALL SELECT due_at FROM job WHERE state = 'pending' AND due_at > :now
  UNION ALL SELECT cool_down_until FROM credential WHERE cool_down_until > :now) times
""")


@dataclass
class Bench:
    """One home, one key, one simulated Router."""

    folder: Path
    clock: Clock
    router: Router
    #: From which addresses media are fetched.
    media_from: Callable[[str], bool] = is_loopback

    def write(self, name: str, content: str) -> str:
        """A file in the working folder; returns its name."""
        (self.folder / name).write_text(content, encoding="utf-8")
        return name

    def cli(self, *arguments: str) -> Ended:
        """One command, in this process."""
        plain = io.StringIO()
        with out.capture() as told, err.capture() as warned, contextlib.redirect_stdout(plain):
            code = _COMMAND(list(arguments), standalone_mode=False)
        return Ended(code or 0, told.get() + plain.getvalue(), warned.get())

    def submit(self, content: str = "prompt\na cat\n", *options: str, model: str = MODEL) -> Ended:
        """A batch named `prompts`, ready for a worker."""
        ended = self.cli("submit", self.write("prompts.csv", content), "--model", model, *options)
        # The command went by the clock on the wall.
        self.clock.now = max(self.clock.now, time.time())
        return ended

    def resume(self) -> None:
        """What `resume` does before it works."""
        from runner.cli.context import open_context
        from runner.cli.running import put_to_work

        with open_context() as context:
            put_to_work(context, context.batches.find("last"))

    @contextmanager
    def _runtime(self) -> Iterator[tuple[UpkeepStore, Runtime]]:
        with ExitStack() as stack:
            database = Database(f"sqlite:///{self.folder / 'home' / 'comfy-batch.db'}")
            stack.callback(database.close)
            router = stack.enter_context(contextlib.closing(RouterClient(self.router.base_url, "key-1", timeout=5.0)))
            media = stack.enter_context(contextlib.closing(MediaClient(timeout=5.0, allowed=self.media_from)))
            jobs = JobStore(database, breaker=10)
            yield (
                UpkeepStore(database, jobs),
                Runtime(
                    jobs=jobs,
                    router=router,
                    media=media,
                    owner="worker-1",
                    clock=self.clock,
                    sleep=self.clock.sleep,
                    policy=Policy(),
                    claim_seconds=135.0,
                    download_claim_seconds=660.0,
                    max_asset_bytes=1_000_000,
                    first_read=FirstRead(),
                    schemas={},
                    sinks={},
                ),
            )

    def work(self, seconds: float = A_DAY) -> None:
        """Work as a worker would, until nothing is owed or so much time has passed."""
        until = self.clock.now + seconds
        with self._runtime() as (upkeep, runtime):
            for _ in range(2000):
                wakes = upkeep.sweep(1, self.clock.now)
                for wake in wakes:
                    STEPS[wake.step](runtime, wake.job_id)
                if not wakes:
                    following = self._next()
                    if following is None or following > until:
                        return
                    self.clock.now = following
        raise AssertionError(f"the work does not end: {self.show()['events'][-10:]}")

    def _next(self) -> float | None:
        database = Database(f"sqlite:///{self.folder / 'home' / 'comfy-batch.db'}")
        try:
            with database.read() as connection:
                found: float | None = connection.execute(_NEXT, {"now": self.clock.now}).scalar()
                return found
        finally:
            database.close()

    def status(self) -> tuple[Ended, Any]:
        """What `status` says, and its document."""
        return self.cli("status", "last"), json.loads(self.cli("status", "last", "--json").out)

    def show(self, row: int = 1) -> Any:
        """The document of one row's whole story."""
        (document,) = json.loads(self.cli("show", f"last:{row}", "--json").out)
        return document

    def events(self, row: int = 1) -> list[str]:
        """What happened to a row, in order."""
        return [event["event"] for event in self.show(row)["events"]]


@pytest.fixture
def start(
    tmp_path: Path, sqlite_template: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Any:
    """Start a bench whose Router has some settings."""

    def make(faults: Mapping[str, object] | None = None, **settings: Any) -> Bench:
        clock = Clock(time.time())
        plan = with_faults(FaultPlan(), faults or {})
        server = SimulatorServer(SimulatorConfig(**{"duration": 0.0, **settings}, faults=plan), clock)
        request.addfinalizer(server.stop)
        server.start()
        monkeypatch.chdir(tmp_path)
        (tmp_path / "home").mkdir()
        shutil.copyfile(sqlite_template, tmp_path / "home" / "comfy-batch.db")
        for name, value in _environment(server.base_url, tmp_path).items():
            monkeypatch.setenv(name, value)
        return Bench(tmp_path, clock, Router(server.base_url))

    return make


def _environment(base_url: str, folder: Path) -> Mapping[str, str]:
    return {
        "COMFY_API_KEY": "key-1",
        "COMFY_ROUTER_BASE_URL": base_url,
        "COMFY_BATCH_HOME": str(folder / "home"),
    }
