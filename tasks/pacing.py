"""When to ask for the first time: soon enough for a quick model, late enough not to ask a slow one in vain."""

from __future__ import annotations

import threading

#: Before anything is known of a model: quick models are done by then, slow ones lose one read. Seconds.
FIRST_GUESS = 0.25
#: Bounds of what is learnt, in seconds.
SOONEST = 0.05
LATEST = 30.0


#: What is left of the delay after a first read that came to a finished run: perhaps it was late. A read that comes too
#: early costs a whole wait of the Router's, so it is approached slowly.
IMPATIENCE = 0.98
#: How far one slow run moves the delay.
WEIGHT = 0.5


class FirstRead:
    """Learns, per model, when the first read is worth its call.

    A hint only, kept in the process: forgetting it costs a call a row for a moment.
    """

    def __init__(self) -> None:
        self._delays: dict[str, float] = {}
        self._lock = threading.Lock()

    def delay(self, model: str) -> float:
        """Seconds from acceptance to the first read."""
        return self._delays.get(model, FIRST_GUESS)

    def learn(self, model: str, planned: float, *, at_first: bool) -> None:
        """A result was there at a read planned `planned` seconds after acceptance, `at_first` or later.

        The plan counts, not the moment of the read: how long this process was busy says nothing about the model.
        """
        with self._lock:
            delay = self._delays.get(model, FIRST_GUESS)
            delay = delay * IMPATIENCE if at_first else delay + WEIGHT * (planned - delay)
            self._delays[model] = min(max(delay, SOONEST), LATEST)
