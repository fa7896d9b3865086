"""Media come from hosts that everybody reaches, by the very address that was checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import pytest

from runner.core.addresses import is_public
from runner.router.media import MediaClient, MediaInterrupted, MediaReply
from runner.router.network import PrivateAddress
from tests.support.loopback import Host, response, sends

PNG = b"\x89PNG\r\n\x1a\n" + bytes(500)


class Names:
    """A resolver that answers as it is told, and keeps what it was asked."""

    def __init__(self, **addresses: Sequence[str]) -> None:
        self._addresses = {name.replace("_", "."): list(found) for name, found in addresses.items()}
        self.asked: list[str] = []

    def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        if host not in self._addresses:
            raise OSError(-2, "Name or service not known")
        return self._addresses[host]


def this_machine(address: str) -> bool:
    """Stands for `is_public`: the hosts of these tests are here."""
    return address == "127.0.0.1"


@contextmanager
def download(url: str, names: Names, allowed: object = this_machine) -> Iterator[MediaReply]:
    client = MediaClient(timeout=5, allowed=allowed, resolver=names)  # type: ignore[arg-type]  # one of two functions
    with closing(client), client.download(url) as reply:
        yield reply


def test_a_name_of_an_allowed_address_is_fetched_under_its_own_name(loopback_host: Host) -> None:
    loopback_host.answers = [sends(response(PNG))]
    names = Names(cdn_invalid=["127.0.0.1"])
    with download(f"http://cdn.invalid:{loopback_host.port}/a%2Fb.png?sig=1", names) as reply:
        assert b"".join(reply.chunks) == PNG
    (request,) = loopback_host.requests
    assert request.startswith(b"GET /a%2Fb.png?sig=1 HTTP/1.1\r\n")
    assert f"\r\nhost: cdn.invalid:{loopback_host.port}\r\n".encode() in request.lower()


@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.169.254", "10.1.2.3", "::1", "fd00::1", "::ffff:10.0.0.1"])
def test_a_name_that_leads_to_a_private_address_is_not_connected_to(loopback_host: Host, address: str) -> None:
    names = Names(cdn_invalid=[address])
    with (
        pytest.raises(PrivateAddress, match=r"cdn\.invalid") as caught,
        download(f"http://cdn.invalid:{loopback_host.port}/x?sig=secret", names, is_public),
    ):
        pass
    assert "secret" not in str(caught.value)
    assert loopback_host.requests == []


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "[::1]", "169.254.169.254", "[::ffff:169.254.169.254]", "10.0.0.1", "0.0.0.0"]
)
def test_a_private_address_in_the_link_itself_is_refused(loopback_host: Host, host: str) -> None:
    with pytest.raises(PrivateAddress), download(f"http://{host}:{loopback_host.port}/x", Names(), is_public):
        pass
    assert loopback_host.requests == []


def test_of_several_addresses_only_an_allowed_one_is_tried(loopback_host: Host) -> None:
    loopback_host.answers = [sends(response(PNG))]
    names = Names(cdn_invalid=["10.0.0.1", "127.0.0.1", "192.168.0.1"])
    with download(f"http://cdn.invalid:{loopback_host.port}/x", names) as reply:
        assert reply.status == 200


def test_the_name_is_looked_up_once_so_that_it_cannot_lead_elsewhere_after_the_check(loopback_host: Host) -> None:
    loopback_host.answers = [sends(response(PNG))]
    names = Names(cdn_invalid=["127.0.0.1"])
    with download(f"http://cdn.invalid:{loopback_host.port}/x", names) as reply:
        assert reply.status == 200
    assert names.asked == ["cdn.invalid"]


def test_a_redirect_to_a_private_address_is_refused(loopback_host: Host, other_host: Host) -> None:
    location = f"Location: http://inner.invalid:{other_host.port}/secret\r\n"
    loopback_host.answers = [sends(response(status="302 Found", headers=location))]
    names = Names(cdn_invalid=["127.0.0.1"], inner_invalid=["10.0.0.7"])
    with (
        pytest.raises(PrivateAddress, match=r"inner\.invalid"),
        download(f"http://cdn.invalid:{loopback_host.port}/x", names),
    ):
        pass
    assert other_host.requests == []


@pytest.mark.parametrize("names", [Names(), Names(cdn_invalid=[])], ids=["unknown", "without an address"])
def test_a_name_that_cannot_be_looked_up_is_worth_another_try(names: Names) -> None:
    with pytest.raises(MediaInterrupted), download("http://cdn.invalid/x", names):
        pass


def test_the_next_address_is_tried_where_one_does_not_answer(loopback_host: Host) -> None:
    loopback_host.answers = [sends(response(PNG))]
    names = Names(cdn_invalid=["127.0.0.2", "127.0.0.1"])
    with download(f"http://cdn.invalid:{loopback_host.port}/x", names, lambda address: True) as reply:
        assert reply.status == 200
