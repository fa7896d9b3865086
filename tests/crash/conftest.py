"""A warm process to fork from, and a ward for each engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy.engine import URL

from tests.crash.beds import Embedded, OnBroker, Ward
from tests.crash.cases import Case, Story
from tests.crash.programs import Nursery


def chosen(request: pytest.FixtureRequest, engine: str) -> list[Case | Story]:
    """The cases and stories of an engine that this run of the tests has chosen from the file of a test."""
    items = (item for item in request.session.items if item.path == request.path)
    functions = (item for item in items if isinstance(item, pytest.Function) and hasattr(item, "callspec"))
    values = (value for function in functions for value in function.callspec.params.values())
    return [value for value in values if isinstance(value, Case | Story) and value.engine == engine]


@pytest.fixture(scope="session")
def embedded_ward(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Ward]:
    """Everything in one process, on SQLite."""
    with Ward(Embedded(nursery, tmp_path_factory.mktemp("embedded"), sqlite_template)) as ward:
        yield ward


@pytest.fixture(scope="session")
def broker_ward(
    nursery: Nursery,
    tmp_path_factory: pytest.TempPathFactory,
    postgres_server: URL,
    postgres_template: str,
    redis_url: str,
) -> Iterator[Ward]:
    """A worker on Redis and PostgreSQL."""
    folder = tmp_path_factory.mktemp("broker")
    with (
        closing(OnBroker(nursery, folder, postgres_server, postgres_template, redis_url)) as beds,
        Ward(beds) as ward,
    ):
        yield ward


@pytest.fixture
def ward(request: pytest.FixtureRequest) -> Ward:
    """The ward of the engine that the test's parameters are for."""
    values = request.node.callspec.params.values()
    (engine,) = {value.engine if isinstance(value, Case | Story) else value for value in values} & {
        "embedded",
        "broker",
    }
    found = request.getfixturevalue(f"{engine}_ward")
    assert isinstance(found, Ward)
    # Many deaths at a time; which tests another process has is not known to this one, but files are not split.
    found.begin(chosen(request, engine))
    return found
