"""Which addresses a media link may lead to."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.addresses import is_loopback, is_public, may_redirect

PUBLIC = ["8.8.8.8", "151.101.1.1", "2606:4700::6810:84e5", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"]
REFUSED = [
    "127.0.0.1",
    "127.9.9.9",
    "0.0.0.0",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "192.0.2.1",
    "198.18.0.1",
    "224.0.0.1",
    "239.1.1.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fd12:3456::1",
    "ff02::1",
    "2001:db8::1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "2002:7f00:1::",
    "2002:c0a8:101::1",
    "2001:0:4136:e378:8000:63bf:f5ff:fffe",
    # An IPv4 address written as of old, or by a translator without a prefix of its own.
    "::7f00:1",
    "::ffff:0:7f00:1",
    # Of one site, and what nobody has been given.
    "fec0::1",
    "4000::1",
    "5f00::1",
    "100::1",
    "not an address",
    "",
]


@pytest.mark.parametrize("address", PUBLIC)
def test_a_host_that_everybody_reaches_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("address", REFUSED)
def test_a_host_of_somebodys_own_network_is_not_however_it_is_spelt(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    ("address", "own"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("8.8.8.8", False),
        ("0.0.0.0", False),
        # Whatever the translator takes for itself.
        ("64:ff9b::7f00:1", False),
        ("2002:7f00:1::", False),
        ("localhost", False),
    ],
)
def test_this_machine_is_known_by_its_addresses(address: str, own: bool) -> None:
    assert is_loopback(address) is own


@pytest.mark.parametrize(
    ("before", "after", "from_here", "followed"),
    [
        ("https", "https", False, True),
        ("http", "https", False, True),
        ("http", "http", True, True),
        ("http", "http", False, False),
        ("https", "http", True, False),
        ("https", "http", False, False),
        ("http", "ftp", True, False),
        ("https", "", True, False),
    ],
)
def test_redirects_lead_to_https_and_to_http_only_from_this_machine(
    before: str, after: str, from_here: bool, followed: bool
) -> None:
    assert may_redirect(before, after, from_here=from_here) is followed


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_is_as_public_as_the_ipv6_addresses_that_stand_for_it(address: ipaddress.IPv4Address) -> None:
    number = int(address)
    mapped = str(ipaddress.IPv6Address((0xFFFF << 32) | number))
    translated = str(ipaddress.IPv6Address((0x64FF9B << 96) | number))
    assert is_public(mapped) == is_public(translated) == is_public(str(address))


@given(st.ip_addresses(v=6))
def test_an_ipv6_address_that_is_not_everybodys_is_public_only_in_the_place_of_one_that_is(
    address: ipaddress.IPv6Address,
) -> None:
    embeds = address.ipv4_mapped or address.sixtofour or address in ipaddress.ip_network("64:ff9b::/96")
    assert not is_public(str(address)) or address.is_global or embeds
