"""Connections to hosts that everybody reaches, and to no other.

The address that is checked is the one that is connected to: a name that is looked up once more could lead elsewhere by
then.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from typing import Any

import httpcore
import httpx

Resolve = Callable[[str, int], Iterable[str]]


class PrivateAddress(ValueError):
    """A media link leads to an address that is not everybody's. The text names the host, and no more of the link."""

    def __init__(self, host: str) -> None:
        super().__init__(f"the link leads to a private address ({host}); COMFY_BATCH_ALLOW_PRIVATE_MEDIA=1 allows it")
        self.host = host


def resolve(host: str, port: int) -> list[str]:
    """Every address of a name, in the order in which the system would try them. Raises `OSError`."""
    return [str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


class CheckedNetwork(httpcore.SyncBackend):
    """Connects to those addresses of a host only that `allowed` lets through."""

    def __init__(self, allowed: Callable[[str], bool], resolver: Resolve = resolve) -> None:
        self._allowed = allowed
        self._resolve = resolver

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """See `httpcore.NetworkBackend`. Raises `PrivateAddress` where no address of the host is allowed."""
        try:
            addresses = list(self._resolve(host, port))
        except OSError as error:
            raise httpcore.ConnectError("the name cannot be looked up") from error
        allowed = [address for address in addresses if self._allowed(address)]
        if not allowed:
            raise PrivateAddress(host) if addresses else httpcore.ConnectError("the name has no address")
        for address in allowed[:-1]:
            try:
                return super().connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
        return super().connect_tcp(allowed[-1], port, timeout, local_address, socket_options)


class CheckedTransport(httpx.HTTPTransport):
    """httpx's own transport over a network that is given."""

    def __init__(self, network: httpcore.NetworkBackend, *, verify: Any, limits: httpx.Limits) -> None:
        super().__init__(verify=verify, limits=limits)
        # httpx has no argument for it; the rest of the pool is as it makes it.
        self._pool._network_backend = network
