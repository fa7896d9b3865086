"""Starts the real programs, kills them, reads what was billed; whatever it started has ended when the test has."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from runner.cli.output import summary_document
from runner.report.export import jsonl_lines
from runner.simulator.config import SimulatorConfig
from runner.simulator.server import SimulatorServer
from runner.store.batches import BatchStore
from runner.store.engine import Database
from runner.store.queries import Queries

if TYPE_CHECKING:
    from tests.crash.programs import Nursery

#: How long anything may take that is waited for, in seconds.
PATIENCE = 45.0
#: Seconds between two looks.
LOOK = 0.04
API_KEY = "comfyui-acceptance-0123456789abcdef"
MODEL = "bfl/flux-2-pro"

# The tests talk to this machine only, whatever proxy it has been told of.
_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


@dataclass(frozen=True)
class Ended:
    """What a command left."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Standard output as the one JSON document that it must be."""
        return json.loads(self.out)


class Program:
    """One running process in a session of its own."""

    def __init__(self, process: subprocess.Popen[bytes], out: Path, err: Path) -> None:
        self.process = process
        self._out = out
        self._err = err

    @property
    def err(self) -> str:
        """Standard error as far as it is written."""
        return self._err.read_text(encoding="utf-8", errors="replace")

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        self.process.send_signal(number)

    def wait(self, seconds: float = PATIENCE) -> Ended:
        """Wait for its end; one that takes longer is killed and fails the test."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._end()
            raise AssertionError(f"{self.process.args!r} did not end in {seconds:.0f} s: {self.err}") from None
        return Ended(code, self._out.read_text(encoding="utf-8", errors="replace"), self.err)

    def kill(self) -> None:
        """`kill -9` of the whole process group, which must have been at work until now."""
        self._end()
        assert self.process.returncode == -signal.SIGKILL, (
            f"it had ended before with {self.process.returncode}: {self.err}"
        )

    def close(self) -> None:
        """End it, if it has not ended."""
        if self.running:
            self._end()

    def _end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)


@dataclass(frozen=True)
class Router:
    """A simulator's own routes."""

    base_url: str

    def ledger(self, *, summary: bool = False) -> dict[str, Any]:
        """What was asked, run and billed."""
        document: dict[str, Any] = read_json(f"{self.base_url}/_simulator/ledger{'?summary=1' if summary else ''}")
        return document

    def calls(self, kind: str) -> int:
        """How many calls of a kind it has had."""
        return int(self.ledger(summary=True)["calls"][kind])

    def runs(self) -> int:
        """How many requests it has accepted."""
        return int(self.ledger(summary=True)["runs"])

    def until_calls(self, kind: str, wanted: int, program: Program) -> None:
        """Wait until it has had so many calls of a kind."""
        until(lambda: self.calls(kind) >= wanted, f"{wanted} calls of {kind}", program)

    def faults(self, **faults: object) -> None:
        """Set faults; those that are not named stay as they are."""
        request = urllib.request.Request(f"{self.base_url}/_simulator/faults", json.dumps(faults).encode())
        with _open(request, timeout=10) as answer:
            assert answer.status == 200

    def assert_paid_once(self, rows: int) -> None:
        """Every row has one key, one run and one charge, and the Router was treated as the contract asks."""
        ledger = self.ledger()
        wrong = {
            key: account for key, account in ledger["by_key"].items() if (account["runs"], account["billed"]) != (1, 1)
        }
        assert wrong == {}
        assert (len(ledger["by_key"]), ledger["runs"], ledger["billed"]) == (rows, rows, rows)
        self.assert_courteous()

    def assert_courteous(self) -> None:
        """No read came before its time, and no media host has seen the API key."""
        ledger = self.ledger(summary=True)
        assert (ledger["early_polls"], ledger["credentials_leaked"]) == (0, 0)


@dataclass
class Bench:
    """A working folder, the environment of its commands, and every process started in it."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    programs: list[Program] = field(default_factory=list)
    #: Commands that were done in the nursery.
    count: int = 0
    held: ExitStack = field(default_factory=ExitStack)
    #: Where commands are started that a test waits for; without one they start cold, as a shell would start them.
    nursery: Nursery | None = None

    def write(self, name: str, content: str | bytes) -> str:
        """A file in the working folder; returns its name."""
        data = content.encode() if isinstance(content, str) else content
        (self.folder / name).write_bytes(data)
        return name

    def start(self, *arguments: str, program: list[str] | None = None, stdin: bytes = b"", **changes: str) -> Program:
        """Start `comfy-batch` with these arguments; `changes` are environment variables, an empty one is unset."""
        number = len(self.programs)
        out, err = self.folder / f"{number}.out", self.folder / f"{number}.err"
        source = self.folder / f"{number}.in"
        source.write_bytes(stdin)
        environment = {name: value for name, value in (self.environment | changes).items() if value}
        command = [*(program or [sys.executable, "-m", "runner"]), *arguments]
        with source.open("rb") as given, out.open("wb") as told, err.open("wb") as said:
            process = self._popen(command, environment, given, told, said)
        started = Program(process, out, err)
        self.programs.append(started)
        return started

    def _popen(
        self, command: list[str], environment: dict[str, str], given: IO[bytes], told: IO[bytes], said: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment,
            stdin=given,
            stdout=told,
            stderr=said,
            start_new_session=True,
        )

    def do(self, *arguments: str, stdin: bytes = b"", **changes: str) -> Ended:
        """Do a command and wait for its end."""
        if self.nursery is None:
            return self.start(*arguments, program=None, stdin=stdin, **changes).wait()
        self.count += 1
        names = {stream: str(self.folder / f"done-{self.count}.{stream}") for stream in ("in", "out", "err")}
        Path(names["in"]).write_bytes(stdin)
        environment = {name: value for name, value in (self.environment | changes).items() if value}
        order = {"environment": environment, "folder": str(self.folder), "arguments": list(arguments), **names}
        return self.nursery.start(order).wait()

    def simulator(self, *arguments: str) -> Router:
        """A simulator in a process of its own, which the commands of this bench now take for the Router."""
        journal = str(self.folder / "journal.jsonl")
        program = self.start("simulator", "--port", "0", "--journal", journal, *arguments)
        mark = "Simulator at "
        until(lambda: mark in program.err and "\n" in program.err.partition(mark)[2], "the simulator answers", program)
        return self.use(program.err.partition(mark)[2].split(";")[0])

    def router(self, duration: float = 0.0) -> Router:
        """The same simulator in a thread of the test's process, where the test needs no process for it."""
        server = self.held.enter_context(SimulatorServer(SimulatorConfig(duration=duration)))
        return self.use(server.base_url)

    def use(self, base_url: str) -> Router:
        """Let the commands take this for the Router."""
        self.environment["COMFY_ROUTER_BASE_URL"] = base_url
        return Router(base_url)

    def status(self, batch: str = "last") -> dict[str, Any]:
        """What `status BATCH --json` prints, read without a process of its own, so that it can be asked often."""
        with closing(self._database()) as database:
            found = BatchStore(database).find(batch)
            return summary_document(Queries(database).summary(found))

    def export(self, batch: str = "last") -> list[dict[str, Any]]:
        """The lines that `export --format jsonl` prints, read in the same way."""
        with closing(self._database()) as database:
            found = BatchStore(database).find(batch)
            return [json.loads(line) for line in jsonl_lines(Queries(database).jobs(found.id))]

    def batches(self) -> list[str]:
        """The names of all batches in the database."""
        with closing(self._database()) as database:
            return [batch.name for batch in BatchStore(database).all()]

    def _database(self) -> Database:
        home = self.environment["COMFY_BATCH_HOME"]
        return Database(self.environment.get("COMFY_BATCH_DATABASE_URL") or f"sqlite:///{home}/comfy-batch.db")

    def close(self) -> None:
        """End every process that was started."""
        for program in reversed(self.programs):
            program.close()
        self.held.close()


def read_json(url: str) -> Any:
    """The JSON document at an address of this machine."""
    return json.loads(read_text(url))


def read_text(url: str) -> str:
    """The text at an address of this machine."""
    with _open(url, timeout=10) as answer:
        body: bytes = answer.read()
    return body.decode()


def answers(url: str) -> bool:
    """Whether there is an answer at the address."""
    try:
        read_text(url)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False
    return True


def free_port() -> int:
    """A port that nobody uses just now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def until(condition: Callable[[], bool], what: str, program: Program | None = None, seconds: float = PATIENCE) -> None:
    """Look again and again, until the condition holds; fails when `program` ends before, or the time is over."""
    deadline = time.monotonic() + seconds
    while not condition():
        if program is not None and not program.running and not condition():
            raise AssertionError(f"it ended with {program.process.returncode} before: {what}. {program.err}")
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:.0f} s: {what}. {program.err if program else ''}")
        time.sleep(LOOK)


def csv_of(rows: int, prompt: str = "a lighthouse, number {row}") -> str:
    """A manifest with ids."""
    lines = [f'r{row},"{prompt.format(row=row)}",{MODEL}' for row in range(1, rows + 1)]
    return "\n".join(["id,prompt,model", *lines]) + "\n"


def assert_files_are_as_recorded(lines: list[dict[str, Any]], folder: Path) -> None:
    """Every file in the output folder is in the database, and every asset of the database is there as recorded."""
    known = {asset["path"] for line in lines for asset in line["assets"]}
    known |= {line["result_path"] for line in lines if line["result_path"]}
    assert {str(path) for path in folder.rglob("*") if not path.is_dir()} == known
    for line in lines:
        assert line["assets"], f"row {line['row']} has no media"
        for asset in line["assets"]:
            content = Path(asset["path"]).read_bytes()
            assert asset["state"] == "saved"
            assert (asset["size"], asset["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())
