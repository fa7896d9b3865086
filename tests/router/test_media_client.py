"""Downloads: no credential on any media host, the link as it was given, and nothing cut short taken for whole."""

from __future__ import annotations

import gzip
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest

from runner.router.client import RouterClient
from runner.router.media import LONGEST_CHAIN, MediaClient, MediaInterrupted, MediaReply
from tests.support.fakes import Clock
from tests.support.loopback import Host, response, sends

PNG = b"\x89PNG\r\n\x1a\n" + bytes(2000)


def anywhere(address: str) -> bool:
    """The hosts of these tests are on this machine."""
    return True


@contextmanager
def download(url: str, *, timeout: float = 5) -> Iterator[MediaReply]:
    client = MediaClient(timeout=timeout, allowed=anywhere)
    try:
        with client.download(url) as reply:
            yield reply
    finally:
        client.close()


def body_of(url: str, *, timeout: float = 5) -> bytes:
    with download(url, timeout=timeout) as reply:
        return b"".join(reply.chunks)


def head_of(request: bytes) -> dict[str, str]:
    lines = request.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
    return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


def target_of(request: bytes) -> str:
    return request.split(b" ")[1].decode()


def with_answers(answers: Callable[[httpx.Request], httpx.Response]) -> MediaClient:
    return MediaClient(timeout=5, allowed=anywhere, transport=httpx.MockTransport(answers))


class TestWhatIsSent:
    def test_no_credential_and_nothing_that_asks_for_compression(self, loopback_host: Host) -> None:
        # Even where the same process speaks to the Router.
        router = RouterClient(loopback_host.url, "comfyui-secret", timeout=5)
        loopback_host.answers = [sends(response(PNG))]
        assert body_of(f"{loopback_host.url}/a.png") == PNG
        router.close()
        (request,) = loopback_host.requests
        sent = head_of(request)
        assert set(sent) == {"host", "accept", "accept-encoding", "user-agent"}
        assert sent["accept-encoding"] == "identity"
        assert b"comfyui-secret" not in request

    @pytest.mark.parametrize(
        "target",
        [
            "/o/folder%2Fa%40b.png?X-Sig=a%2Bb%2F%3D&at=1",
            "/o/lower%2fcase%c3%a4.png?sig=%7e",
            "/o/a//b;v=1,2@3:4'!()*$~.png?q='x'&y=a+b&e=",
            "/?only=query",
            "/a%20b%3Fc%23d",
        ],
    )
    def test_the_link_byte_for_byte(self, loopback_host: Host, target: str) -> None:
        loopback_host.answers = [sends(response(PNG))]
        assert body_of(f"{loopback_host.url}{target}") == PNG
        assert target_of(loopback_host.requests[0]) == target

    def test_cookies_of_one_download_do_not_travel_to_another_host(self, loopback_host: Host, other_host: Host) -> None:
        loopback_host.answers = [sends(response(PNG, headers="Set-Cookie: session=abc; Path=/\r\n"))]
        other_host.answers = [sends(response(PNG))]
        client = MediaClient(timeout=5, allowed=anywhere)
        localhost = other_host.url.replace("127.0.0.1", "localhost")
        for url in (f"{loopback_host.url}/a.png", f"{localhost}/b.png"):
            with client.download(url) as reply:
                assert b"".join(reply.chunks) == PNG
        client.close()
        assert "cookie" not in head_of(other_host.requests[0])


class TestRedirects:
    def test_they_are_followed_to_another_host_byte_for_byte_and_without_a_key(
        self, loopback_host: Host, other_host: Host
    ) -> None:
        target = "/b%2Fc%40d.png?sig=a%2Bb"
        headers = f"Location: {other_host.url}{target}\r\n"
        loopback_host.answers = [sends(response(status="302 Found", headers=headers))]
        other_host.answers = [sends(response(PNG))]
        assert body_of(f"{loopback_host.url}/a.png?sig=first") == PNG
        (request,) = other_host.requests
        assert target_of(request) == target
        assert not {"x-api-key", "authorization", "cookie", "referer"} & set(head_of(request))

    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    def test_a_relative_one_is_taken_from_the_link(self, status: int) -> None:
        def answers(request: httpx.Request) -> httpx.Response:
            if request.url.path == "/x/a":
                return httpx.Response(status, headers={"Location": "../y/b?sig=2"})
            return httpx.Response(200, content=str(request.url).encode())

        with with_answers(answers).download("https://media.example/x/a?sig=1") as reply:
            assert b"".join(reply.chunks) == b"https://media.example/y/b?sig=2"

    def test_from_https_to_http_they_are_refused(self) -> None:
        asked = []

        def answers(request: httpx.Request) -> httpx.Response:
            asked.append(request.url.scheme)
            return httpx.Response(302, headers={"Location": "http://media.example/a.png?sig=secret"})

        with (
            pytest.raises(ValueError, match="from https to http") as caught,
            with_answers(answers).download("https://media.example/a.png"),
        ):
            pass
        assert asked == ["https"]
        assert "secret" not in str(caught.value)

    def test_to_http_they_are_followed_from_this_machine_only(self) -> None:
        asked = []

        def answers(request: httpx.Request) -> httpx.Response:
            asked.append(request.url.host)
            return httpx.Response(302, headers={"Location": "http://other.example/a.png?sig=secret"})

        with (
            pytest.raises(ValueError, match="from http to http") as caught,
            with_answers(answers).download("http://media.example/a.png"),
        ):
            pass
        assert asked == ["media.example"]
        assert "secret" not in str(caught.value)

    def test_a_circle_ends(self) -> None:
        asked = []

        def answers(request: httpx.Request) -> httpx.Response:
            asked.append(request.url)
            return httpx.Response(302, headers={"Location": str(request.url)})

        with (
            pytest.raises(ValueError, match="too often"),
            with_answers(answers).download("https://media.example/a"),
        ):
            pass
        assert len(asked) == LONGEST_CHAIN

    @pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://media.example/a", "data:text/plain,x"])
    def test_to_anything_but_http_they_are_refused(self, location: str) -> None:
        def answers(_request: httpx.Request) -> httpx.Response:
            return httpx.Response(302, headers={"Location": location})

        with pytest.raises(ValueError, match=r"http|address"), with_answers(answers).download("http://media.example/a"):
            pass

    @pytest.mark.parametrize("location", ["https://[oops/a.png", "https://media.example:port/a.png"])
    def test_to_what_is_no_address_they_are_refused_as_such(self, location: str) -> None:
        def answers(_request: httpx.Request) -> httpx.Response:
            return httpx.Response(302, headers={"Location": location})

        with pytest.raises((ValueError, MediaInterrupted)), with_answers(answers).download("https://media.example/a"):
            pass


class TestWhatComes:
    def test_the_length_that_a_host_announces_is_what_is_expected(self, loopback_host: Host) -> None:
        loopback_host.answers = [sends(response(PNG, headers="Content-Type: image/png\r\n"))]
        with download(loopback_host.url) as reply:
            assert (reply.status, reply.expected_size) == (200, len(PNG))
            assert reply.headers["content-type"] == "image/png"
            assert b"".join(reply.chunks) == PNG

    @pytest.mark.parametrize("headers", [{}, {"content-length": ""}, {"content-length": "-5"}])
    def test_without_a_length_none_is_expected(self, headers: dict[str, str]) -> None:
        assert MediaReply(200, headers, iter([])).expected_size is None

    def test_content_that_was_compressed_unasked_is_unpacked_once_and_its_length_not_compared(
        self, loopback_host: Host
    ) -> None:
        # A file that is itself gzip must come out as it was, not unpacked twice.
        inner = gzip.compress(b"a mesh " * 500)
        packed = gzip.compress(inner)
        loopback_host.answers = [sends(response(packed, headers="Content-Encoding: gzip\r\n"))]
        with download(loopback_host.url) as reply:
            assert reply.expected_size is None
            assert b"".join(reply.chunks) == inner

    def test_a_refusal_is_an_answer(self, loopback_host: Host) -> None:
        loopback_host.answers = [sends(response(b"<Error/>", status="403 Forbidden"))]
        with download(loopback_host.url) as reply:
            assert reply.status == 403

    def test_a_body_that_is_left_unread_does_not_disturb_the_next_download(self, loopback_host: Host) -> None:
        loopback_host.answers = [sends(response(PNG * 500)), sends(response(b"second"))]
        client = MediaClient(timeout=5, allowed=anywhere)
        with client.download(f"{loopback_host.url}/a") as reply:
            assert reply.status == 200
        with client.download(f"{loopback_host.url}/b") as reply:
            assert b"".join(reply.chunks) == b"second"
        client.close()


class TestWhatBreaksOff:
    def test_a_body_shorter_than_announced(self, loopback_host: Host) -> None:
        loopback_host.answers = [sends(response(PNG[:400], length=1000))]
        with pytest.raises(MediaInterrupted):
            body_of(loopback_host.url)

    def test_chunks_without_their_end(self, loopback_host: Host) -> None:
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        loopback_host.answers = [sends(head + b"5\r\nabcde\r\n")]
        with pytest.raises(MediaInterrupted):
            body_of(loopback_host.url)

    def test_compressed_content_that_is_broken(self, loopback_host: Host) -> None:
        loopback_host.answers = [sends(response(b"this is no gzip", headers="Content-Encoding: gzip\r\n"))]
        with pytest.raises(MediaInterrupted):
            body_of(loopback_host.url)

    def test_a_connection_dropped_before_the_answer(self, loopback_host: Host) -> None:
        loopback_host.answers = [sends()]
        with pytest.raises(MediaInterrupted) as caught:
            body_of(f"{loopback_host.url}/a.png?sig=secret")
        assert "secret" not in str(caught.value)
        assert "127.0.0.1" not in str(caught.value)

    def test_a_host_that_refuses_the_connection(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        with pytest.raises(MediaInterrupted, match="ConnectError"):
            body_of(f"http://127.0.0.1:{port}/a.png")

    def test_a_body_that_stalls(self, loopback_host: Host) -> None:
        loopback_host.answers = [loopback_host.stalls_after(response(b"half", length=8))]
        with pytest.raises(MediaInterrupted, match="ReadTimeout"):
            body_of(loopback_host.url, timeout=0.2)

    def test_a_body_that_trickles_past_the_limit_of_a_whole_download(self) -> None:
        clock = Clock(0.0)

        def trickle() -> Iterator[bytes]:
            for _ in range(100):
                clock.advance(3)
                yield bytes(300_000)

        def answers(_request: httpx.Request) -> httpx.Response:
            return httpx.Response(200, content=trickle())

        client = MediaClient(timeout=10, allowed=anywhere, monotonic=clock, transport=httpx.MockTransport(answers))
        with client.download("https://media.example/a") as reply, pytest.raises(MediaInterrupted, match="too long"):
            for _ in reply.chunks:
                pass
        assert clock.now <= 15


class TestLinksThatAreNone:
    @pytest.mark.parametrize("url", ["gs://bucket/a.png", "s3://bucket/a", "file:///etc/passwd", "a.png", ""])
    def test_only_http_and_https_are_fetched(self, url: str) -> None:
        with pytest.raises(ValueError, match="neither https nor http"), download(url):
            pass

    @pytest.mark.parametrize(
        "url", ["https://[oops/a.png", "https://media.example:port/a", "http://a b/c", "https://\x00/", "https://"]
    )
    def test_what_is_no_address_is_said_without_it(self, url: str) -> None:
        with pytest.raises((ValueError, MediaInterrupted)) as caught, download(url):
            pass
        assert "media.example" not in str(caught.value)
        assert "oops" not in str(caught.value)


class TestLogs:
    def test_neither_link_nor_query_stands_in_a_log_at_its_loudest(
        self, loopback_host: Host, other_host: Host, caplog: pytest.LogCaptureFixture
    ) -> None:
        for name in (None, "httpx", "httpcore"):
            caplog.set_level(logging.DEBUG, name)
        headers = f"Location: {other_host.url}/b.png?sig=secret-two\r\n"
        loopback_host.answers = [sends(response(status="302 Found", headers=headers))]
        other_host.answers = [sends(response(PNG[:10], length=1000))]
        with pytest.raises(MediaInterrupted) as caught:
            body_of(f"{loopback_host.url}/a.png?sig=secret-one")
        for shown in (caplog.text, str(caught.value)):
            assert "secret-one" not in shown
            assert "secret-two" not in shown
            assert "sig=" not in shown
