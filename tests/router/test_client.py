"""One exchange with the Router: what goes out, where the key goes, and what is said when no answer comes."""

from __future__ import annotations

import gzip
import logging
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from runner.core.wire import HttpRequest, HttpResponse, NoResponse, submit_request
from runner.router.client import RouterClient
from tests.support.loopback import Host, response, sends

KEY = "comfyui-secret-0123456789"
ROUTER = "https://router.example"
BODY = b'{"prompt":"\xc3\xa4",  "n":1.50}'


def client_that(answers: Callable[[httpx.Request], httpx.Response], base_url: str = ROUTER) -> RouterClient:
    return RouterClient(base_url, KEY, timeout=5, transport=httpx.MockTransport(answers))


def ask(base_url: str, *, timeout: float = 5, request: HttpRequest | None = None) -> HttpResponse | NoResponse:
    client = RouterClient(base_url, KEY, timeout=timeout)
    try:
        return client.exchange(request or HttpRequest("GET", f"{base_url}/v2/models"))
    finally:
        client.close()


class TestOneExchange:
    def test_the_very_bytes_and_headers_go_out_once_with_the_key(self, loopback_host: Host) -> None:
        loopback_host.answers = [sends(response(b"{}", status="201 Created"))]
        ask(loopback_host.url, request=submit_request(loopback_host.url, "acme/paint", "cb-1-1", BODY))
        (sent,) = loopback_host.requests
        head, _, body = sent.partition(b"\r\n\r\n")
        lines = head.decode().lower().split("\r\n")
        assert lines[0] == "post /v2/models/acme/paint/requests http/1.1"
        assert body == BODY
        assert "idempotency-key: cb-1-1" in lines
        assert f"x-api-key: {KEY}" in lines
        assert "content-type: application/json" in lines

    def test_the_answer_comes_back_whole_with_small_header_names(self, loopback_host: Host) -> None:
        loopback_host.answers = [sends(response(b"\x00\xff{", headers="X-Comfy-Request-Id: c-1\r\nRetry-After: 3\r\n"))]
        reply = ask(loopback_host.url)
        assert isinstance(reply, HttpResponse)
        assert (reply.status, reply.body) == (200, b"\x00\xff{")
        assert (reply.headers["x-comfy-request-id"], reply.headers["retry-after"]) == ("c-1", "3")

    @pytest.mark.parametrize("status", [429, 500, 502, 503, 504, 409])
    def test_nothing_is_tried_again(self, status: int) -> None:
        calls = []

        def answers(request: httpx.Request) -> httpx.Response:
            calls.append(request.url)
            return httpx.Response(status, headers={"Retry-After": "0"})

        reply = client_that(answers).exchange(HttpRequest("GET", f"{ROUTER}/x"))
        assert isinstance(reply, HttpResponse)
        assert (reply.status, len(calls)) == (status, 1)

    def test_a_redirect_is_an_answer_and_is_not_followed(self, loopback_host: Host, other_host: Host) -> None:
        other_host.answers = [sends(response(b"mine now"))]
        headers = f"Location: {other_host.url}/steal\r\n"
        loopback_host.answers = [sends(response(status="307 Temporary Redirect", headers=headers))]
        reply = ask(loopback_host.url)
        assert isinstance(reply, HttpResponse)
        assert reply.status == 307
        assert other_host.requests == []

    def test_a_compressed_answer_is_unpacked(self) -> None:
        def answers(_request: httpx.Request) -> httpx.Response:
            return httpx.Response(200, headers={"Content-Encoding": "gzip"}, content=gzip.compress(b'{"a":1}'))

        reply = client_that(answers).exchange(HttpRequest("GET", f"{ROUTER}/x"))
        assert isinstance(reply, HttpResponse)
        assert reply.body == b'{"a":1}'

    def test_many_threads_share_it(self) -> None:
        def answers(request: httpx.Request) -> httpx.Response:
            return httpx.Response(200, content=request.url.path.encode())

        client = client_that(answers)

        def call(number: int) -> bytes:
            reply = client.exchange(HttpRequest("GET", f"{ROUTER}/{number}"))
            assert isinstance(reply, HttpResponse)
            return reply.body

        with ThreadPoolExecutor(16) as pool:
            assert list(pool.map(call, range(200))) == [f"/{number}".encode() for number in range(200)]


class TestTheKey:
    @pytest.mark.parametrize(
        "url",
        [
            "https://evil.example/v2/models",
            "http://router.example/v2/models",
            "https://router.example:8443/v2/models",
            "https://router.example.evil.example/x",
            "https://router.example@evil.example/x",
            "https://evil.example/https://router.example/",
        ],
    )
    def test_it_goes_to_no_other_origin(self, url: str) -> None:
        calls = []

        def answers(request: httpx.Request) -> httpx.Response:
            calls.append(request)
            return httpx.Response(200)

        with pytest.raises(ValueError, match="own origin") as caught:
            client_that(answers).exchange(HttpRequest("GET", url))
        assert calls == []
        assert KEY not in str(caught.value)

    @pytest.mark.parametrize("url", ["https://ROUTER.example/x", "https://router.example:443/x"])
    def test_the_same_origin_may_be_written_differently(self, url: str) -> None:
        reply = client_that(lambda _: httpx.Response(204)).exchange(HttpRequest("GET", url))
        assert isinstance(reply, HttpResponse)

    def test_it_is_not_shown(self) -> None:
        client = client_that(lambda _: httpx.Response(200))
        assert KEY not in f"{client!r} {client}"

    def test_it_stands_in_no_log_and_neither_does_a_query(
        self, loopback_host: Host, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        loopback_host.answers = [sends(response(b"{}"))]
        ask(loopback_host.url, request=HttpRequest("GET", f"{loopback_host.url}/v2/models?cursor=opaque-cursor"))
        assert len(loopback_host.requests) == 1
        assert KEY not in caplog.text
        assert "opaque-cursor" not in caplog.text

    def test_it_stands_in_no_cause_when_the_call_fails(self) -> None:
        def answers(request: httpx.Request) -> httpx.Response:
            raise httpx.ReadError(f"{request.url} {request.headers}", request=request)

        reply = client_that(answers).exchange(HttpRequest("GET", f"{ROUTER}/x?sig=secret"))
        assert isinstance(reply, NoResponse)
        assert KEY not in reply.cause
        assert "sig=" not in reply.cause


class TestNoAnswer:
    def test_a_refused_connection_was_never_sent(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        assert ask(f"http://127.0.0.1:{port}") == NoResponse("the Router cannot be reached", sent=False)

    def test_a_host_without_an_address_was_never_sent(self) -> None:
        reply = ask("http://no-such-host.invalid")
        assert isinstance(reply, NoResponse)
        assert reply.sent is False

    def test_a_connection_dropped_after_the_request_was_read_may_have_been_acted_on(self, loopback_host: Host) -> None:
        loopback_host.answers = [sends()]
        reply = ask(loopback_host.url, request=submit_request(loopback_host.url, "acme/paint", "cb-1-1", BODY))
        assert isinstance(reply, NoResponse)
        assert reply.sent is True
        assert len(loopback_host.requests) == 1

    def test_an_answer_cut_in_its_head_or_body_is_no_answer(self, loopback_host: Host) -> None:
        whole = response(b'{"request_id":"r"}', status="201 Created", length=1000)
        for cut in (whole[:30], whole):
            loopback_host.answers = [sends(cut)]
            reply = ask(loopback_host.url)
            assert isinstance(reply, NoResponse)
            assert reply.sent is True

    def test_an_answer_that_does_not_come_in_time_may_still_have_been_acted_on(self, loopback_host: Host) -> None:
        loopback_host.answers = [loopback_host.stalls_after(b"HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\n{")]
        reply = ask(loopback_host.url, timeout=0.2)
        assert reply == NoResponse("no answer in time", sent=True)

    def test_what_is_not_http_is_no_answer(self, loopback_host: Host) -> None:
        loopback_host.answers = [sends(b"SSH-2.0-OpenSSH_9.6\r\n")]
        reply = ask(loopback_host.url)
        assert isinstance(reply, NoResponse)
        assert reply.sent is True

    @pytest.mark.parametrize(
        ("fault", "sent"),
        [
            (httpx.ConnectError, False),
            (httpx.ConnectTimeout, False),
            (httpx.PoolTimeout, False),
            (httpx.WriteError, True),
            (httpx.WriteTimeout, True),
            (httpx.ReadError, True),
            (httpx.ReadTimeout, True),
            (httpx.RemoteProtocolError, True),
            (httpx.DecodingError, True),
        ],
    )
    def test_only_faults_before_the_first_byte_count_as_never_sent(
        self, fault: type[httpx.RequestError], sent: bool
    ) -> None:
        def answers(request: httpx.Request) -> httpx.Response:
            raise fault("at https://router.example/x?sig=1", request=request)

        reply = client_that(answers).exchange(HttpRequest("GET", f"{ROUTER}/x"))
        assert isinstance(reply, NoResponse)
        assert reply.sent is sent
        assert "router.example" not in reply.cause

    def test_after_a_fault_the_next_exchange_works(self, loopback_host: Host) -> None:
        loopback_host.answers = [sends(), sends(response(b"{}"))]
        client = RouterClient(loopback_host.url, KEY, timeout=5)
        request = HttpRequest("GET", f"{loopback_host.url}/x")
        replies = [client.exchange(request), client.exchange(request)]
        client.close()
        assert [type(reply) for reply in replies] == [NoResponse, HttpResponse]

    def test_a_stalled_call_does_not_hold_up_the_others(self, loopback_host: Host) -> None:
        loopback_host.answers = [loopback_host.stalls_after(b""), sends(response(b"{}"))]
        client = RouterClient(loopback_host.url, KEY, timeout=15)
        request = HttpRequest("GET", f"{loopback_host.url}/x")
        stalled = threading.Thread(target=client.exchange, args=(request,))
        stalled.start()
        assert loopback_host.asked.wait(10)
        other = client.exchange(request)
        was_alive = stalled.is_alive()
        loopback_host.released.set()
        stalled.join(20)
        client.close()
        assert isinstance(other, HttpResponse)
        assert was_alive
