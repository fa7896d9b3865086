"""Which addresses a media link may lead to: a result must not make this machine look around in its own network."""

from __future__ import annotations

import ipaddress
from typing import Final, TypeAlias

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

#: Addresses of IPv4 hosts that a translator reaches through IPv6 (RFC 6052).
_TRANSLATED: Final = ipaddress.ip_network("64:ff9b::/96")
#: The same for local use (RFC 8215): where such a translator leads is not known.
_TRANSLATED_LOCALLY: Final = ipaddress.ip_network("64:ff9b:1::/48")
#: All that hosts everywhere in IPv6 have so far (RFC 4291, 2.4, and IANA's registry of IPv6 addresses).
_GLOBAL_UNICAST: Final = ipaddress.ip_network("2000::/3")


def is_public(address: str) -> bool:
    """Whether an address, without brackets and as a resolver gives it, is of a host that everybody reaches.

    Not so are loopback, private, shared (RFC 6598), link-local, site-local, multicast, reserved and unspecified ones,
    nor IPv6 addresses that stand for such an IPv4 address.
    """
    ip = _parsed(address)
    return ip is not None and all(_is_everybodys(part) for part in _all(ip))


def is_loopback(address: str) -> bool:
    """Whether an address is this machine's own. One behind a translator is the translator's."""
    ip = _parsed(address)
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    return ip is not None and ip.is_loopback


def may_redirect(before: str, after: str, *, from_here: bool) -> bool:
    """Whether a redirect from one scheme to another is followed: to https always, to http only from http and for a
    link that led to this machine (`from_here`), where nobody listens on the way."""
    return after == "https" or (after == before == "http" and from_here)


def _is_everybodys(ip: _Address) -> bool:
    if isinstance(ip, ipaddress.IPv6Address) and ip not in _GLOBAL_UNICAST:
        return False
    return ip.is_global and not ip.is_multicast and not ip.is_reserved


def _parsed(address: str) -> _Address | None:
    try:
        return ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None


def _all(ip: _Address) -> list[_Address]:
    """The address, and the IPv4 address that it stands for, if any; what leads nowhere known counts as private."""
    if isinstance(ip, ipaddress.IPv4Address):
        return [ip]
    if ip.ipv4_mapped is not None:
        # The mapped form is no route of its own.
        return [ip.ipv4_mapped]
    if ip in _TRANSLATED_LOCALLY:
        return [ipaddress.IPv4Address("127.0.0.0"), ip]
    if ip in _TRANSLATED:
        return [ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)]
    if ip.sixtofour is not None:
        return [ip.sixtofour]
    if ip.teredo is not None:
        return [ip, *ip.teredo]
    return [ip]
