"""A connection for each call in flight, taken from the top of a pile.

One `httpx.Client` shared by many threads searches its whole pool at every call, which at a hundred threads costs four
times the call itself; and a client's redirects, cookies and authentication are not wanted here, where one call is one
exchange. So each call has an httpx transport to itself. A pile of them keeps the warmest connection busiest, and each
is built in a fifth of a millisecond, since they share one TLS context.
"""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from queue import Empty, LifoQueue
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpcore
import httpx

from runner.router.network import CheckedTransport

# They would write keys, signed links and whole URLs into a debugging log, also where only the first two are turned up.
for _talker in (
    "httpx",
    "httpcore",
    *(f"httpcore.{part}" for part in ("connection", "http11", "http2", "proxy", "socks")),
):
    logging.getLogger(_talker).setLevel(logging.WARNING)

_LIMITS = httpx.Limits(max_connections=4, max_keepalive_connections=2, keepalive_expiry=30)


class Pile:
    """Transports with the same settings, made as they are needed. Safe for any number of threads.

    `transport` stands in for all of them: for tests. `network` makes the connections, but for those to a proxy, which
    looks up names by itself.
    """

    def __init__(
        self,
        timeout: httpx.Timeout,
        *,
        transport: httpx.BaseTransport | None = None,
        network: httpcore.NetworkBackend | None = None,
    ) -> None:
        self._network = network
        self._extensions = {"timeout": timeout.as_dict()}
        self._given = transport
        self._lock = threading.Lock()
        self._tls: ssl.SSLContext | None = None
        #: By the proxy they go through; `None` is none.
        self._piles: dict[str | None, LifoQueue[httpx.BaseTransport]] = {}
        # As httpx and most programs do: HTTPS_PROXY and its kin are honoured, and so is NO_PROXY.
        self._proxies = getproxies()

    @contextmanager
    def send(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes | None = None
    ) -> Iterator[httpx.Response]:
        """One exchange, its body unread; the connection goes back when the block ends."""
        request = httpx.Request(method, url, headers=headers, content=content, extensions=self._extensions)
        pile = self._pile(self._proxy(url))
        try:
            transport = pile.get_nowait()
        except Empty:
            transport = self._new(self._proxy(url))
        try:
            response = transport.handle_request(request)
            response.request = request
            try:
                yield response
            finally:
                response.close()
        finally:
            pile.put(transport)

    def is_direct(self, url: str) -> bool:
        """Whether a call of `url` goes to its host itself, and not to a proxy."""
        return self._proxy(url) is None

    def _proxy(self, url: str) -> str | None:
        if not self._proxies:
            return None
        parts = urlsplit(url)
        if proxy_bypass(parts.hostname or ""):
            return None
        return self._proxies.get(parts.scheme) or self._proxies.get("all")

    def _pile(self, proxy: str | None) -> LifoQueue[httpx.BaseTransport]:
        with self._lock:
            return self._piles.setdefault(proxy, LifoQueue())

    def _new(self, proxy: str | None) -> httpx.BaseTransport:
        if self._given is not None:
            return self._given
        with self._lock:
            if self._tls is None:
                self._tls = httpx.create_ssl_context()
        if self._network is not None and proxy is None:
            return CheckedTransport(self._network, verify=self._tls, limits=_LIMITS)
        return httpx.HTTPTransport(verify=self._tls, limits=_LIMITS, proxy=httpx.Proxy(proxy) if proxy else None)

    def close(self) -> None:
        """Close every connection that is not in use."""
        for pile in self._piles.values():
            while True:
                try:
                    pile.get_nowait().close()
                except Empty:
                    break
