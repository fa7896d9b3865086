"""When to ask for the first time: soon enough for a quick model, late enough not to ask a slow one in vain."""

from __future__ import annotations

import threading

#: Before anything is known of a model: quick models are done by then, slow ones lose one read. Seconds.
FIRST_GUESS = 0.25
#: Bounds of what is learnt, in seconds.
SOONEST = 0.05
LATEST = 30.0


class FirstRead:
    """Learns, per model, how long a run takes from its acceptance to its result.

    A hint only, kept in the process: forgetting it costs a call a row for a moment.
    """

    def __init__(self) -> None:
        self._took: dict[str, float] = {}
        self._lock = threading.Lock()

    def delay(self, model: str) -> float:
        """Seconds from acceptance to the first read."""
        took = self._took.get(model)
        if took is None:
            return FIRST_GUESS
        return min(max(0.75 * took, SOONEST), LATEST)

    def learn(self, model: str, took: float) -> None:
        """A result came `took` seconds after acceptance."""
        with self._lock:
            before = self._took.get(model, took)
            self._took[model] = 0.8 * before + 0.2 * max(took, 0.0)
