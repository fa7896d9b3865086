"""Downloading media from wherever it is hosted, without any credential."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urljoin, urlsplit

import httpx

from runner.core.addresses import is_loopback, is_public, may_redirect
from runner.router.connections import Pile
from runner.router.network import CheckedNetwork, PrivateAddress, Resolve, resolve

#: Redirects that are followed before a link counts as dead.
LONGEST_CHAIN = 5
#: Nothing is asked to be compressed: media is, and its length can then be checked.
_HEADERS = {"User-Agent": "comfy-batch", "Accept": "*/*", "Accept-Encoding": "identity"}
#: Bytes read at a time.
CHUNK = 256 * 1024
_NOTHING: Mapping[str, str] = {}


class MediaInterrupted(Exception):
    """The download broke off or never began; the same link may work later. The text names no address."""


@dataclass(frozen=True, slots=True)
class MediaReply:
    """What a media host answered. `chunks` can be read once, inside the `with` block."""

    status: int
    headers: Mapping[str, str]
    chunks: Iterator[bytes]

    @property
    def expected_size(self) -> int | None:
        """Length of the body as it will come out of `chunks`; `None` where the host does not say."""
        length = self.headers.get("content-length", "")
        encoded = self.headers.get("content-encoding", "identity") != "identity"
        return int(length) if length.isdigit() and not encoded else None


class MediaClient:
    """Makes downloads. `timeout` bounds one whole download, in seconds."""

    def __init__(
        self,
        *,
        timeout: float,
        allowed: Callable[[str], bool] = is_public,
        monotonic: Callable[[], float] = time.monotonic,
        transport: httpx.BaseTransport | None = None,
        resolver: Resolve = resolve,
    ) -> None:
        self._timeout = timeout
        self._allowed = allowed
        self._monotonic = monotonic
        bounds = httpx.Timeout(min(30.0, timeout), connect=10.0, pool=timeout)
        self._pile = Pile(bounds, transport=transport, network=CheckedNetwork(allowed, resolver))

    @contextmanager
    def download(self, url: str, headers: Mapping[str, str] = _NOTHING) -> Iterator[MediaReply]:
        """The answer to a GET of `url`, its body as a stream; `headers` go with it, to the last of its redirects, too.

        Redirects are followed where `may_redirect` lets them be. Raises `MediaInterrupted` where the connection fails,
        also from within `chunks`; and `ValueError` for a link that is not http or https, that redirects in circles or
        to http, or that leads to an address which is not allowed (`PrivateAddress`).
        """
        deadline = self._monotonic() + self._timeout
        with ExitStack() as stack:
            try:
                response = self._follow(stack, url, headers)
            except httpx.InvalidURL as error:
                raise ValueError("the link is not an address") from error
            except httpx.HTTPError as error:
                raise MediaInterrupted(_cause(error)) from error
            answered = {name.lower(): value for name, value in response.headers.items()}
            yield MediaReply(response.status_code, answered, self._chunks(response, deadline))

    def _follow(self, stack: ExitStack, url: str, headers: Mapping[str, str]) -> httpx.Response:
        from_here: bool | None = None
        for _ in range(LONGEST_CHAIN):
            parts = urlsplit(url)
            if parts.scheme not in {"http", "https"}:
                raise ValueError("the link is neither https nor http")
            self._check_literal(parts.hostname or "")
            exchange = self._pile.send("GET", url, {**_HEADERS, **headers})
            response = exchange.__enter__()
            if not response.has_redirect_location:
                stack.push(exchange)
                return response
            from_here = self._is_here(url, response) if from_here is None else from_here
            exchange.__exit__(None, None, None)
            target = urljoin(url, response.headers["location"])
            scheme = urlsplit(target).scheme
            if scheme == "http" and not may_redirect(parts.scheme, scheme, from_here=from_here):
                raise ValueError(f"the link redirects from {parts.scheme} to http")
            url = target
        raise ValueError("the link redirects too often")

    def _is_here(self, url: str, response: httpx.Response) -> bool:
        """Whether this machine itself answered."""
        stream = response.extensions.get("network_stream")
        peer = stream.get_extra_info("server_addr") if stream is not None else None
        return peer is not None and self._pile.is_direct(url) and is_loopback(str(peer[0]))

    def _check_literal(self, host: str) -> None:
        """An address in the link itself is seen here; a proxy would connect to any."""
        try:
            address = str(ip_address(host))
        except ValueError:
            return
        if not self._allowed(address):
            raise PrivateAddress(host)

    def _chunks(self, response: httpx.Response, deadline: float) -> Iterator[bytes]:
        try:
            for chunk in response.iter_bytes(CHUNK):
                if self._monotonic() > deadline:
                    raise MediaInterrupted("the download took too long")
                yield chunk
        except httpx.HTTPError as error:
            raise MediaInterrupted(_cause(error)) from error

    def close(self) -> None:
        """Give the connections back."""
        self._pile.close()


def _cause(error: httpx.HTTPError) -> str:
    return f"the download failed ({type(error).__name__})"
