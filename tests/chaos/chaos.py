"""The run itself: workers are killed and brokers emptied as the batch goes on, until it has ended."""

from __future__ import annotations

import signal
import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from sqlalchemy import text

from runner.store.engine import Database
from tests.acceptance.harness import LOOK, Bench, Program, Router, csv_of, until
from tests.chaos.faults import no_faults, some_faults
from tests.support.redis import RedisServer

MANIFEST = "chaos.csv"
WORKERS = 4
CONCURRENCY = 8
IN_FLIGHT = 48
#: Seconds that a run takes at the Router.
RUN_SECONDS = 2.0
#: Seconds from one kill to the next.
BETWEEN_KILLS = (0.8, 2.2)
#: Seconds after which the rest of the troubles come one after the other, however far the batch is.
TROUBLE = 90.0
#: Seconds from then to the end of the batch, with nothing but its own work to do.
CALM = 60.0
#: How soon a worker that is told to stop has left, in seconds.
LEAVE = 10.0

_DONE = text("SELECT count(*) FROM job WHERE state = 'succeeded'")
_READS_HELD = text("""
SELECT count(*) FROM job WHERE step IN ('collect', 'status', 'cancel') AND claim_owner LIKE :owner
""")


@dataclass
class Told:
    """What was done to a run, and what was measured in it."""

    done: Counter[str] = field(default_factory=Counter)
    #: Reads under way in a process that was killed: the wait that such an answer named cannot be kept.
    lost_reads: int = 0
    #: From the start of new workers, all old ones having been killed, to the first call at the Router.
    recovery: float = 0.0
    seconds: float = 0.0


class Chaos:
    """One run among troubles that `random` chooses."""

    def __init__(
        self,
        bench: Bench,
        broker: RedisServer,
        database: Database,
        rows: int,
        random: Random,
        say: Callable[[str], None],
    ) -> None:
        self._bench = bench
        self._broker = broker
        self._database = database
        self._rows = rows
        self._random = random
        self._say = say
        self._workers: list[Program] = []
        self.told = Told()
        bench.environment["COMFY_BATCH_BROKER_URL"] = broker.url
        bench.environment["COMFY_BATCH_MAX_IN_FLIGHT"] = str(IN_FLIGHT)
        bench.environment["COMFY_BATCH_DATABASE_URL"] = database.url.render_as_string(hide_password=False)
        self.router: Router = bench.simulator("--duration", f"{RUN_SECONDS:g}")

    def play(self) -> None:
        """From the submit to the end of the batch. Raises `AssertionError` when it does not come to its end."""
        began = time.monotonic()
        self.router.faults(**some_faults(self._random))
        self._workers = [self._start() for _ in range(WORKERS)]
        submitted = self._bench.do("submit", self._bench.write(MANIFEST, csv_of(self._rows)))
        assert submitted.code == 0, submitted.err
        troubles = (
            (0.15, self._flush),
            (0.30, self._restart_broker),
            (0.45, self._kill_all),
            (0.65, self._flush),
            (0.90, self._calm_down),
        )
        for share, trouble in troubles:
            self._kill_now_and_then(share, began + TROUBLE)
            trouble()
        until(self._has_ended, "the batch ends", seconds=CALM)
        self.told.seconds = time.monotonic() - began
        self._stop()

    def _has_ended(self) -> bool:
        status = self._bench.status()
        jobs = status["jobs"]
        if jobs["held"] and jobs["held"] + jobs["succeeded"] == jobs["total"]:
            # One row in many thousands meets as many faults in a row as it has tries: the user resumes it.
            assert self._bench.do("submit", MANIFEST).code == 0
            self._note("held rows resumed")
        return bool(status["state"] == "finished")

    def _start(self) -> Program:
        return self._bench.start("worker", "--concurrency", str(CONCURRENCY))

    def _share(self) -> float:
        with self._database.read() as connection:
            return int(connection.execute(_DONE).scalar_one()) / self._rows

    def _kill_now_and_then(self, share: float, deadline: float) -> None:
        """Until so much of the batch is done: one worker after the other is killed, and another started."""
        next_kill = time.monotonic() + self._random.uniform(*BETWEEN_KILLS)
        while self._share() < share and time.monotonic() < deadline:
            if time.monotonic() >= next_kill:
                self._kill(self._random.randrange(WORKERS))
                next_kill = time.monotonic() + self._random.uniform(*BETWEEN_KILLS)
            time.sleep(LOOK)

    def _kill(self, place: int) -> None:
        worker = self._workers[place]
        worker.kill()
        self._count_dead(worker)
        self._workers[place] = self._start()

    def _count_dead(self, worker: Program) -> None:
        self.told.done["workers killed"] += 1
        with self._database.read() as connection:
            owner = {"owner": f"{socket.gethostname()}-{worker.process.pid}-%"}
            self.told.lost_reads += int(connection.execute(_READS_HELD, owner).scalar_one())

    def _flush(self) -> None:
        with self._broker.client() as client:
            client.flushall()
        self._note("broker emptied")

    def _restart_broker(self) -> None:
        self._broker.restart()
        self._note("broker killed and restarted, empty")

    def _kill_all(self) -> None:
        for worker in self._workers:
            worker.kill()
        for worker in self._workers:
            self._count_dead(worker)
        before, began = self._calls(), time.monotonic()
        self._workers = [self._start() for _ in range(WORKERS)]
        until(lambda: self._calls() > before, "the work goes on", self._workers[0])
        self.told.recovery = time.monotonic() - began
        self._note("all workers killed at once")

    def _calls(self) -> int:
        return sum(self.router.ledger(summary=True)["calls"].values())

    def _calm_down(self) -> None:
        self.router.faults(**no_faults())
        self._say(f"{self._share():.0%} done: no more troubles")

    def _note(self, trouble: str) -> None:
        self.told.done[trouble] += 1
        self._say(f"{self._share():.0%} done: {trouble}")

    def _stop(self) -> None:
        for worker in self._workers:
            worker.send(signal.SIGTERM)
        for worker in self._workers:
            ended = worker.wait(LEAVE)
            assert ended.code == 0, ended.err
