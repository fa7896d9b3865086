"""Where the key, a link's signature and a prompt must never be found: planted, used at length, and searched for."""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from tests.acceptance.harness import API_KEY, Bench, csv_of, until
from tests.support.redis import RedisServer

pytestmark = [pytest.mark.acceptance, pytest.mark.service]

PROMPT = "a confidential lighthouse, number {row}"
#: How a key could be spelt where it is written down by mistake.
KEY = tuple(
    {
        API_KEY.encode(),
        API_KEY[10:].encode(),
        base64.b64encode(API_KEY.encode()),
        quote(API_KEY, safe="").encode(),
        API_KEY.encode().hex().encode(),
    }
)
#: What a log or a message has no need of either. The simulator signs its links with `sig`.
CONTENT = (b"confidential", b"sig=", b"%3Fsig")
EVERY_FAULT = {
    "drop_after_accept": 1,
    "read_html": 1,
    "media_truncated": 1,
    "media_redirect": "1/3",
    "dead_links": 1,
}


@contextmanager
def overheard(server: RedisServer) -> Iterator[bytearray]:
    """Every command that the broker gets, as it gets it."""
    heard = bytearray()
    address = urlsplit(server.url)
    with socket.create_connection((str(address.hostname), address.port or 0)) as listener:
        listener.sendall(b"MONITOR\r\n")

        def listen() -> None:
            while piece := listener.recv(1 << 16):
                heard.extend(piece)

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        yield heard
        with server.client() as client:
            client.set("the end", "of listening")
        until(lambda: b"of listening" in heard, "the last command was heard")
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def found(needles: tuple[bytes, ...], places: dict[str, bytes]) -> list[str]:
    return [f"{needle!r} in {name}" for name, content in places.items() for needle in needles if needle in content]


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_key_is_in_no_file_table_message_or_log_and_nothing_that_is_told_holds_a_prompt_or_a_signature(
    bench: Bench, own_redis: RedisServer
) -> None:
    bench.environment |= {
        "COMFY_BATCH_LOG_LEVEL": "debug",
        "COMFY_BATCH_TASK_EVENTS": "1",
        "COMFY_BATCH_BROKER_URL": own_redis.url,
        # As it is pasted.
        "COMFY_API_KEY": f"{API_KEY}\n",
    }
    router = bench.router()
    router.faults(**EVERY_FAULT)
    with overheard(own_redis) as heard:
        worker = bench.start("worker")
        submitted = bench.do("submit", bench.write("prompts.csv", csv_of(6, PROMPT)))
        assert submitted.code == 0, submitted.err
        until(lambda: bench.status()["state"] == "finished", "the batch ends", worker)
        refused = bench.do("run", "prompts.csv", "--name", "another")
        assert refused.code == 2, refused.err
        told = [bench.do(*command) for command in (("status", "last"), ("doctor",))]
        shown = [bench.do("show", "prompts:1"), bench.do("export", "last", "--format", "jsonl", "--output", "-")]
        router.faults(unauthorized="always")
        paused = bench.do("run", bench.write("more.csv", csv_of(1, PROMPT)), "--wait", "5", COMFY_BATCH_BROKER_URL="")
    assert [ended.code for ended in (*told, *shown)] == [0, 0, 0, 0], [ended.err for ended in (*told, *shown)]
    assert "COMFY_API_KEY" in paused.err
    assert router.ledger(summary=True)["credentials_leaked"] == 0

    files = files_below(bench.folder.parent)
    logs = {name: content for name, content in files.items() if name.endswith(".err")}
    assert any(b"DEBUG" in log for log in logs.values()), "nothing was logged"
    messages = {"the broker": bytes(heard)}
    assert b"comfy.submit" in messages["the broker"], "nothing was overheard"
    assert any(name.endswith("comfy-batch.db") for name in files)

    assert found(KEY, files | messages | logs) == []
    assert found(CONTENT, messages | logs) == []
