"""Which boundaries there are, read from the code, and which of them each command crosses on a job's way."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from runner.core.types import Step
from tests.crash.programs import ROOT

#: A boundary's name, and which of several things it was.
Crossing = tuple[str, str]

#: Methods of the database whose first argument names a transaction.
_TRANSACTIONS = frozenset({"write", "hot_write"})

#: Transactions that no clean run of a batch crosses. `test_commands` dies at each, in the story named here.
ELSEWHERE = {
    "discard rows": "only after a death in mid-manifest: a manifest that was half read",
    "discard batch": "only for a manifest with faults: a faulty manifest",
    "pause": "only by `pause`",
    "cancel batch": "only by `cancel`",
    "cancel jobs": "only by `cancel`",
    "adopt manifest": "only for an edited manifest",
}
#: A fetch makes no call to the Router: its download is announced as such.
_NO_CALLS = frozenset({Step.FETCH})

_OF_INTAKE = frozenset(
    {
        "create tables",
        "create batch",
        "write rows",
        "complete batch",
        "remember model",
        "set cancel after",
        "set max cost",
        "set name template",
    }
)
_OF_COMMANDS = frozenset({"unblock", "command", "resume"})
_OF_SUBMIT = _OF_INTAKE | _OF_COMMANDS | {"credential", "lease", "drop lease", "set clock right", "sweep"}
_NOT_OF_WORKERS = _OF_INTAKE | _OF_COMMANDS


class Unreadable(Exception):
    """Code announces a boundary in a way that this test does not know."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """One call of `reach`."""

    boundary: str
    #: Whether the detail is a transaction's name, a step, or nothing.
    of: str


def sources(*folders: str) -> Iterator[Path]:
    """Every module below these folders."""
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def announcements(source: str) -> Iterator[Announcement]:
    """Every call of `reach`. Raises `Unreadable` for one whose name is no literal, or whose detail is unknown."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "reach":
            name, *rest = node.args
            if not (isinstance(name, ast.Constant) and isinstance(name.value, str)):
                raise Unreadable(f"line {node.lineno}: a boundary is named by a literal")
            yield Announcement(name.value, _kind(node, rest))


def _kind(call: ast.Call, rest: list[ast.expr]) -> str:
    match rest:
        case []:
            return ""
        case [ast.Name(id="name")]:
            return "transaction"
        case [ast.Attribute(attr="step")]:
            return "step"
    raise Unreadable(f"line {call.lineno}: teach this test which details there are")


def transactions(source: str) -> Iterator[str]:
    """The name of every transaction. Raises `Unreadable` for one that is no literal."""
    for node in ast.walk(ast.parse(source)):
        is_transaction = (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _TRANSACTIONS
            and ast.unparse(node.func.value).endswith("database")
        )
        if not is_transaction:
            continue
        assert isinstance(node, ast.Call)
        name = node.args[0] if node.args else None
        if not (isinstance(name, ast.Constant) and isinstance(name.value, str)):
            raise Unreadable(f"line {node.lineno}: a transaction is named by a literal")
        yield name.value


@cache
def all_transactions() -> frozenset[str]:
    """Every name of a transaction in the program."""
    texts = (path.read_text(encoding="utf-8") for path in sources("runner", "tasks", "config"))
    return frozenset(name for text in texts for name in transactions(text))


@cache
def all_crossings() -> frozenset[Crossing]:
    """Everything that the program can announce."""
    found: set[Crossing] = set()
    for path in sources("runner", "tasks", "config"):
        for said in announcements(path.read_text(encoding="utf-8")):
            found.update((said.boundary, detail) for detail in _details(said))
    return frozenset(found)


def _details(said: Announcement) -> Iterator[str]:
    if said.of == "transaction":
        yield from all_transactions()
    elif said.of == "step":
        yield from (step for step in Step if not (said.boundary.endswith(" call") and step in _NO_CALLS))
    else:
        yield ""


@cache
def crossed_by(command: str) -> tuple[Crossing, ...]:
    """What a clean `run`, `submit` or `worker` crosses; that it does is tested."""
    return tuple(sorted(point for point in all_crossings() if _is_crossed_by(command, *point)))


def _is_crossed_by(command: str, boundary: str, detail: str) -> bool:
    if detail in ELSEWHERE:
        return False
    if boundary.endswith(" commit"):
        if command == "submit":
            return detail in _OF_SUBMIT
        return command == "run" or detail not in _NOT_OF_WORKERS
    return command != "submit" or (boundary.endswith(" publish") and detail == Step.SUBMIT)
