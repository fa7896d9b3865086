"""The Router over HTTP: one exchange a call. It never retries, follows no redirect, and decides nothing."""

from __future__ import annotations

import httpx

from runner.core.wire import HttpRequest, HttpResponse, NoResponse, Reply, origin_of
from runner.router.connections import Pile

#: What every call says of itself.
_HEADERS = {"User-Agent": "comfy-batch", "Accept": "*/*", "Accept-Encoding": "gzip, deflate"}
#: Faults that come before the first byte of the request could leave this machine.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)


class RouterClient:
    """Makes exchanges with one Router under one key."""

    def __init__(
        self, base_url: str, api_key: str, *, timeout: float, transport: httpx.BaseTransport | None = None
    ) -> None:
        self.base_url = base_url
        self._origin = origin_of(base_url)
        self._key = api_key
        limits = httpx.Timeout(timeout, connect=min(10.0, timeout), pool=timeout)
        self._pile = Pile(limits, transport=transport)

    def __repr__(self) -> str:
        return f"RouterClient({self.base_url!r})"

    def exchange(self, request: HttpRequest) -> Reply:
        """Send `request` once and return the answer, or why there is none.

        Raises `ValueError` for a URL that is not on the Router's own origin: the key goes nowhere else.
        """
        if origin_of(request.url) != self._origin:
            raise ValueError("the key is for the Router's own origin only")
        headers = {**_HEADERS, **request.headers, "X-API-Key": self._key}
        try:
            with self._pile.send(request.method, request.url, headers, request.content) as response:
                body = response.read()
        except _NOT_SENT as error:
            return NoResponse(_cause(error), sent=False)
        except httpx.HTTPError as error:
            return NoResponse(_cause(error), sent=True)
        return HttpResponse(response.status_code, _lower(response.headers), body)

    def close(self) -> None:
        """Give the connections back."""
        self._pile.close()


def _lower(headers: httpx.Headers) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _cause(error: httpx.HTTPError) -> str:
    """The fault in words that hold no address: the type says what happened, the system's text says why."""
    words: dict[type[httpx.HTTPError], str] = {
        httpx.ConnectError: "the Router cannot be reached",
        httpx.ConnectTimeout: "the Router cannot be reached in time",
        httpx.ReadTimeout: "no answer in time",
        httpx.RemoteProtocolError: "the connection broke off before the answer",
    }
    return words.get(type(error), f"the call failed ({type(error).__name__})")
