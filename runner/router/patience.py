"""Waiting as long as the Router says, for calls that cost nothing and come before the work."""

from __future__ import annotations

from collections.abc import Callable
from time import time

from runner.core.retryafter import parse_retry_after
from runner.core.wire import HttpRequest, HttpResponse, Reply
from runner.router.catalog import Exchange

#: How often such a call is repeated, and how long it waits each time at most, in seconds.
MOST_TRIES = 4
LONGEST_WAIT = 20.0
_BUSY = frozenset({429, 503})


class Patient:
    """An exchange that is repeated while the Router names a short wait, since nobody else would repeat it."""

    def __init__(self, router: Exchange, sleep: Callable[[float], None], now: Callable[[], float] = time) -> None:
        self.base_url = router.base_url
        self._router = router
        self._sleep = sleep
        self._now = now

    def exchange(self, request: HttpRequest) -> Reply:
        """The first answer that is no wait, or the last."""
        for _ in range(MOST_TRIES - 1):
            reply = self._router.exchange(request)
            if not isinstance(reply, HttpResponse) or reply.status not in _BUSY:
                return reply
            wait = parse_retry_after(reply.headers.get("retry-after"), self._now())
            if wait is None or wait > LONGEST_WAIT:
                return reply
            self._sleep(wait)
        return self._router.exchange(request)
