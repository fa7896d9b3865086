"""The list of boundaries is read from the code, so that one without a test, or a primitive without one, fails here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.crash.boundaries import (
    ELSEWHERE,
    Announcement,
    Unreadable,
    all_crossings,
    announcements,
    sources,
    transactions,
)
from tests.crash.programs import ROOT

#: Where work on jobs is done, so that everything that outlives the process has a boundary.
WATCHED = ("runner/store", "runner/router", "runner/assets", "tasks")

#: Functions that outlive the process in a way that needs no boundary, each with the reason.
ALLOWED = {
    ("runner/store/engine.py", "Database._hot_postgres", "commit"): (
        "commits for `hot_write`, which announces it, and for `hot_read`, which has changed nothing"
    ),
    ("runner/store/migrations/env.py", "<module>", "begin"): (
        "within the transaction `create tables`, or by a developer's own command"
    ),
    ("runner/assets/files.py", "FileSink._clear", "unlink"): "what is there of a file is worth nothing by then",
    ("runner/assets/files.py", "_moves", "open"): "takes a name for a rename that is announced where it is called",
    ("runner/assets/files.py", "_moves", "replace"): "is announced where it is called",
    ("runner/assets/files.py", "_sync_directory", "fsync"): "makes a rename durable that was announced",
    (
        "runner/router/catalog.py",
        "look_up_model",
        "exchange",
    ): "reads the catalog; what it says is kept as `remember model`",
    ("runner/router/catalog.py", "check_access", "exchange"): "reads the catalog, for `doctor`",
    ("runner/router/catalog.py", "list_models", "exchange"): "reads the catalog, for people",
    ("runner/router/catalog.py", "ask_quote", "exchange"): "asks what something would cost; nothing is kept of it",
    ("runner/router/patience.py", "Patient.exchange", "exchange"): "repeats the two above and `look_up_model`",
}

_BY_NAME = frozenset({"fsync", "unlink", "write_text", "write_bytes", "send_task", "exchange", "download", "commit"})
_OF_OS = frozenset({"replace", "rename", "remove", "truncate", "link", "symlink"})
_STATEMENTS = frozenset({"COMMIT"})
_WRITING = frozenset("wax+")


@dataclass(frozen=True, slots=True)
class Primitive:
    """Something that outlives the process, in the function that does it."""

    function: str
    name: str
    announced: bool


def primitives(source: str) -> Iterator[Primitive]:
    """Everything in a module that outlives its process."""
    yield from _primitives_in(ast.parse(source), "<module>")


def _primitives_in(scope: ast.AST, name: str) -> Iterator[Primitive]:
    own = list(_own_nodes(scope))
    announced = any(isinstance(node, ast.Call) and ast.unparse(node.func) == "reach" for node in own)
    for node in own:
        found = _primitive(node) if isinstance(node, ast.Call) else None
        if found is not None:
            yield Primitive(name, found, announced)
    for node in own:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _primitives_in(node, node.name if name == "<module>" else f"{name}.{node.name}")


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """What stands in a scope itself, not in the functions and classes within it."""
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            waiting.extend(ast.iter_child_nodes(node))


def _primitive(call: ast.Call) -> str | None:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
    owner = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    if name in _BY_NAME or (owner == "os" and name in _OF_OS):
        return name
    if name in {"begin", "begin_transaction"}:
        return "begin"
    if name == "open" and _opens_for_writing(call):
        return "open"
    statement = call.args[0] if call.args else None
    if isinstance(statement, ast.Constant) and statement.value in _STATEMENTS:
        return str(statement.value)
    return None


def _opens_for_writing(call: ast.Call) -> bool:
    literals = (node.value for argument in call.args for node in ast.walk(argument) if isinstance(node, ast.Constant))
    names = (node.attr for argument in call.args for node in ast.walk(argument) if isinstance(node, ast.Attribute))
    modes = [value for value in literals if isinstance(value, str) and len(value) <= 3 and _WRITING & set(value)]
    return bool(modes) or any(name in {"O_WRONLY", "O_RDWR", "O_CREAT"} for name in names)


def test_all_that_is_named_as_crossed_elsewhere_exists() -> None:
    assert ELSEWHERE.keys() <= {detail for _, detail in all_crossings()}


def test_the_code_is_where_it_is_looked_for() -> None:
    assert {("before commit", "apply"), ("after call", "submit"), ("before download", "")} <= all_crossings()
    for folder in WATCHED:
        assert list(sources(folder)), folder


def test_what_outlives_the_process_is_announced_where_it_is_done() -> None:
    silent = {
        (path.relative_to(ROOT).as_posix(), found.function, found.name)
        for path in sources(*WATCHED)
        for found in primitives(path.read_text(encoding="utf-8"))
        if not found.announced
    }
    assert silent - ALLOWED.keys() == set(), "announce it with reach(), or say here why it needs none"
    assert ALLOWED.keys() - silent == set(), "no such thing is done there any more"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("os.replace(a, b)", "replace"),
        ("os.fsync(file)", "fsync"),
        ("part.unlink()", "unlink"),
        ("path.write_bytes(body)", "write_bytes"),
        ("path.write_text(words)", "write_text"),
        ("open(path, 'wb')", "open"),
        ("path.open('a')", "open"),
        ("os.open(path, os.O_WRONLY | os.O_CREAT)", "open"),
        ("cursor.execute('COMMIT')", "COMMIT"),
        ("self.engine.begin()", "begin"),
        ("connection.commit()", "commit"),
        ("app.send_task(name)", "send_task"),
        ("router.exchange(request)", "exchange"),
        ("media.download(url)", "download"),
    ],
)
def test_a_primitive_without_an_announcement_is_found(line: str, name: str) -> None:
    silent = f"class Sink:\n    def save(self):\n        {line}\n"
    assert list(primitives(silent)) == [Primitive("Sink.save", name, announced=False)]
    loud = f"{silent}        reach('saved')\n"
    assert list(primitives(loud)) == [Primitive("Sink.save", name, announced=True)]
    neighbour = f"{silent}\n    def other(self):\n        reach('saved')\n"
    assert list(primitives(neighbour)) == [Primitive("Sink.save", name, announced=False)]


@pytest.mark.parametrize("line", ["open(path)", "open(path, 'rb')", "text.replace('w', 'a')", "cursor.execute(query)"])
def test_what_ends_with_the_process_needs_no_announcement(line: str) -> None:
    assert list(primitives(f"def look():\n    {line}\n")) == []


def test_a_boundary_whose_name_is_no_literal_is_refused() -> None:
    with pytest.raises(Unreadable, match="line 2"):
        list(announcements("\nreach(name)\n"))


def test_a_boundary_whose_details_are_unknown_is_refused() -> None:
    assert list(announcements('reach("before call", claim.step)')) == [Announcement("before call", "step")]
    with pytest.raises(Unreadable, match="line 1"):
        list(announcements('reach("before call", url)'))


def test_a_transaction_whose_name_is_no_literal_is_refused() -> None:
    assert list(transactions('with self._database.write("apply") as c: pass')) == ["apply"]
    with pytest.raises(Unreadable, match="line 1"):
        list(transactions("with self._database.hot_write(name) as c: pass"))
