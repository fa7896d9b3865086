"""Workers tell of their tasks only while somebody asks for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from tasks.watchers import SILENCE, Watchers, note_who_asks
from tests.support.fakes import Clock


@dataclass
class Dispatcher:
    """What of Celery's dispatcher matters: the groups of events that are sent."""

    groups: set[str] = field(default_factory=lambda: {"worker"})


@pytest.fixture
def clock() -> Clock:
    return Clock()


def watched(clock: Clock, *, always: bool = False) -> tuple[Watchers, Dispatcher]:
    watchers, dispatcher = Watchers(always=always, clock=clock), Dispatcher()
    watchers.events = dispatcher
    return watchers, dispatcher


def ask(watchers: Watchers, dispatcher: Dispatcher) -> None:
    """What Flower sends every five seconds, as a worker takes it."""
    note_who_asks(
        SimpleNamespace(app=SimpleNamespace(watchers=watchers), consumer=SimpleNamespace(event_dispatcher=dispatcher))
    )


def test_who_asks_is_told_of_tasks_for_as_long_as_they_go_on_asking(clock: Clock) -> None:
    watchers, dispatcher = watched(clock)
    for _ in range(10):
        ask(watchers, dispatcher)
        clock.advance(SILENCE - 1)
        watchers.look()
        assert dispatcher.groups == {"worker", "task"}


def test_when_nobody_has_asked_for_a_while_tasks_are_told_of_no_more(clock: Clock) -> None:
    watchers, dispatcher = watched(clock)
    ask(watchers, dispatcher)
    clock.advance(SILENCE + 1)
    watchers.look()
    assert dispatcher.groups == {"worker"}
    ask(watchers, dispatcher)
    watchers.look()
    assert dispatcher.groups == {"worker", "task"}


def test_a_worker_that_was_told_always_to_tell_goes_on(clock: Clock) -> None:
    watchers, dispatcher = watched(clock, always=True)
    ask(watchers, dispatcher)
    clock.advance(SILENCE * 100)
    watchers.look()
    assert "task" in dispatcher.groups


def test_a_look_before_the_worker_is_connected_does_nothing(clock: Clock) -> None:
    watchers = Watchers(always=False, clock=clock)
    clock.advance(SILENCE + 1)
    watchers.look()
    assert watchers.events is None
