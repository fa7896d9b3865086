"""Whether anybody listens to what a worker tells of its tasks: telling costs half of what a worker can do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from celery import Celery
from celery.worker import control

#: Flower asks every five seconds to be told, so that so many seconds of silence mean that it has gone.
SILENCE = 20.0
#: Seconds between two looks.
LOOK = 5.0


class Watchers:
    """Ends the telling some time after the last who asked for it. With `always` it never ends."""

    def __init__(self, *, always: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._always = always
        self._clock = clock
        self._asked_at = clock()
        #: The worker's own dispatcher of events, once it is connected.
        self.events: Any = None
        #: The timer's entry for `look`.
        self.looks: Any = None

    def ask(self) -> None:
        """Somebody wants to be told."""
        self._asked_at = self._clock()

    def look(self) -> None:
        """Tell of workers only, where nobody has asked for a while."""
        if not self._always and self.events is not None and self._clock() - self._asked_at > SILENCE:
            self.events.groups.discard("task")


@control.control_command(name="enable_events")  # type: ignore[untyped-decorator]  # Celery has no types
def note_who_asks(state: Any) -> Any:
    """Celery's own command, which Flower sends; it is noted when that was."""
    state.app.watchers.ask()
    return control.enable_events(state)


def watch_with(app: Celery, consumer: Any) -> None:
    """From now on Flower is told by the worker's own dispatcher, which knows whether anybody listens."""
    app.publisher.events = consumer.event_dispatcher
    if app.conf.worker_enable_remote_control:
        # A worker that connects anew has a new dispatcher; the timer may have forgotten the looks, or not.
        if app.watchers.looks is not None:
            app.watchers.looks.cancel()
        app.watchers.events = consumer.event_dispatcher
        app.watchers.looks = consumer.timer.call_repeatedly(LOOK, app.watchers.look)
