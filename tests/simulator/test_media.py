"""What a result points at, and how it is served."""

from __future__ import annotations

import base64
import io
import json
import struct
import wave
import zlib
from typing import Any

import pytest

from runner.simulator.catalog import CATALOG
from runner.simulator.faults import parse_faults
from runner.simulator.pictures import png

QUEUEABLE = sorted(model.id for model in CATALOG.values() if model.queueable)


def read_png(data: bytes) -> tuple[int, int, bytes]:
    """Size and palette; every checksum and the pixel data are checked."""
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    chunks: dict[bytes, bytes] = {}
    at = 8
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size : at + 12 + size])[0] == zlib.crc32(kind + body)
        chunks[kind] = body
        at += 12 + size
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    assert len(zlib.decompress(chunks[b"IDAT"])) == (width + 1) * height
    assert chunks[b"IEND"] == b""
    return width, height, chunks[b"PLTE"]


def links_in(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [link for item in value.values() for link in links_in(item)]
    if isinstance(value, list):
        return [link for item in value for link in links_in(item)]
    return [value] if isinstance(value, str) and value.startswith("http://") else []


def result_of(bench: Any, model: str, body: Any) -> Any:
    handle = bench.submit(None, model=f"/v2/models/{model}", body=body).json()
    bench.now += 100
    return bench.get(handle["response_url"]).json()


def test_pictures_are_real_and_differ() -> None:
    assert read_png(png("a cat"))[:2] == (256, 256)
    assert read_png(png("a cat", width=1536, height=1024))[:2] == (256, 176)
    assert png("a cat", "1") == png("a cat", "1")
    pictures = {png(f"prompt {index}") for index in range(50)}
    assert len(pictures) == 50
    assert png("a cat", "1") != png("a cat", "2")


@pytest.mark.parametrize("model", QUEUEABLE)
def test_every_link_of_every_model_can_be_fetched(bench: Any, model: str) -> None:
    for link in links_in(result_of(bench, model, CATALOG[model].example)):
        response = bench.get(link, key=None)
        assert response.status_code == 200
        body = response.content
        assert int(response.headers["content-length"]) == len(body)
        starts = {
            "image/png": body[:8] == b"\x89PNG\r\n\x1a\n",
            "video/mp4": body[4:8] == b"ftyp",
            "audio/wav": body[:4] == b"RIFF",
            "model/gltf-binary": body[:4] == b"glTF",
        }
        assert starts[response.headers["content-type"]]


def test_sound_and_shape_are_well_formed(bench: Any) -> None:
    speech = result_of(bench, "heygen/starfish", {"text": "hello", "voice_id": "v"})["data"]["audio_url"]
    with wave.open(io.BytesIO(bench.get(speech, key=None).content)) as sound:
        assert sound.getnframes() > 1000
    shape = bench.get(
        result_of(bench, "meshy/meshy-7", {"prompt": "x", "mode": "preview"})["model_urls"]["glb"], key=None
    ).content
    magic, version, length = struct.unpack("<4sII", shape[:12])
    assert (magic, version, length) == (b"glTF", 2, len(shape))
    (size,) = struct.unpack("<I", shape[12:16])
    assert json.loads(shape[20 : 20 + size])["asset"]["version"] == "2.0"


def test_inline_media(bench: Any) -> None:
    images = result_of(bench, "openai/gpt-image-2", {"prompt": "x", "n": 3, "size": "1024x1536"})["data"]
    assert len({image["b64_json"] for image in images}) == 3
    width, height, _ = read_png(base64.b64decode(images[0]["b64_json"]))
    assert (width, height) == (176, 256)
    parts = result_of(
        bench, "vertexai/gemini-3-pro-image", {"contents": [{"role": "user", "parts": [{"text": "a fox"}]}]}
    )["candidates"][0]["content"]["parts"]
    assert "a fox" in parts[0]["text"]
    read_png(base64.b64decode(parts[1]["inlineData"]["data"]))
    uri = result_of(bench, "fal/h3-max", {"prompt": "x"})["video"]["url"]
    assert base64.b64decode(uri.partition(",")[2])[4:8] == b"ftyp"


@pytest.mark.parametrize("model", QUEUEABLE)
def test_moderated_result_holds_no_media(start: Any, model: str) -> None:
    bench = start(duration=0.0, faults=parse_faults(["moderate"]))
    document = result_of(bench, model, CATALOG[model].example)
    assert links_in(document) == []
    assert "base64" not in json.dumps(document)
    assert "inlineData" not in json.dumps(document)
    assert bench.ledger()["billed"] == 1


@pytest.mark.parametrize(
    ("model", "body"),
    [
        ("bfl/flux-2-pro", {"prompt": "a cat [moderated]"}),
        ("heygen/starfish", {"text": "[moderated] hello", "voice_id": "v"}),
        (
            "vertexai/gemini-3-pro-image",
            {"contents": [{"role": "user", "parts": [{"text": "draw"}, {"text": "[moderated]"}]}]},
        ),
        ("fal/fal-gpt-image-2", {"prompt": "[moderated]"}),
    ],
)
def test_marker_is_found_wherever_the_prompt_stands(bench: Any, model: str, body: Any) -> None:
    assert links_in(result_of(bench, model, body)) == []


def test_seed_asks_for_the_same_picture(bench: Any) -> None:
    def picture(body: Any) -> bytes:
        content: bytes = bench.get(result_of(bench, "bfl/flux-2-pro", body)["result"]["sample"], key=None).content
        return content

    assert picture({"prompt": "a cat", "seed": 7}) == picture({"prompt": "a cat", "seed": 7})
    assert picture({"prompt": "a cat"}) != picture({"prompt": "a cat"})


def test_ranges(bench: Any) -> None:
    link = result_of(bench, "bfl/flux-2-pro", {"prompt": "x"})["result"]["sample"]
    whole = bench.get(link, key=None)
    size, tag = len(whole.content), whole.headers["etag"]
    part = bench.get(link, key=None, headers={"Range": "bytes=100-", "If-Range": tag})
    assert (part.status_code, part.content) == (206, whole.content[100:])
    assert part.headers["content-range"] == f"bytes 100-{size - 1}/{size}"
    assert bench.get(link, key=None, headers={"Range": "bytes=5-9"}).content == whole.content[5:10]
    assert bench.get(link, key=None, headers={"Range": "bytes=-7"}).content == whole.content[-7:]
    changed = bench.get(link, key=None, headers={"Range": "bytes=100-", "If-Range": '"other"'})
    assert (changed.status_code, changed.content) == (200, whole.content)
    beyond = bench.get(link, key=None, headers={"Range": f"bytes={size}-"})
    assert (beyond.status_code, beyond.headers["content-range"]) == (416, f"bytes */{size}")
    assert bench.get(link, key=None, headers={"Range": "lines=1-2"}).content == whole.content


def test_links_expire_and_cannot_be_made_up(start: Any) -> None:
    bench = start(duration=0.0, link_lifetime=600.0)
    handle = bench.submit("k1").json()
    link = bench.get(handle["response_url"]).json()["result"]["sample"]
    assert bench.get(link.replace("sig=", "sig=0"), key=None).status_code == 403
    assert bench.get(link.replace("exp=", "exp=9"), key=None).status_code == 403
    bench.now += 599
    assert bench.get(link, key=None).status_code == 200
    bench.now += 1
    dead = bench.get(link, key=None)
    assert (dead.status_code, dead.headers["content-type"]) == (403, "application/xml")
    # Reading the result again renews no link.
    assert bench.get(handle["response_url"]).json()["result"]["sample"] == link


def test_links_that_are_dead_on_arrival_with_and_without_renewal(start: Any) -> None:
    bench = start(duration=0.0, faults=parse_faults(["dead_first_links", "relink"]))
    handle = bench.submit("k1").json()
    first = bench.get(handle["response_url"]).json()["result"]["sample"]
    assert bench.get(first, key=None).status_code == 403
    second = bench.get(handle["response_url"]).json()["result"]["sample"]
    assert bench.get(second, key=None).status_code == 200
    bench.call("POST", "/_simulator/faults", json={"relink": False})
    third = bench.get(handle["response_url"]).json()["result"]["sample"]
    assert third == first


def test_credentials_on_the_media_host_are_counted(bench: Any) -> None:
    link = result_of(bench, "bfl/flux-2-pro", {"prompt": "x"})["result"]["sample"]
    bench.get(link, key=None)
    assert bench.ledger()["credentials_leaked"] == 0
    bench.get(link)
    bench.get(link, key=None, headers={"Authorization": "Bearer x"})
    assert bench.ledger()["credentials_leaked"] == 2
    assert bench.ledger()["calls"]["media"] == 3


@pytest.mark.parametrize(
    ("fault", "status", "content_type", "size"),
    [
        ("dead_links", 403, "application/xml", None),
        ("media_500", 500, "text/html; charset=utf-8", None),
        ("media_redirect", 302, None, 0),
        ("media_wrong_type", 200, "application/octet-stream", None),
        ("media_empty", 200, "image/png", 0),
        ("media_html", 200, "text/html; charset=utf-8", None),
    ],
)
def test_media_faults(start: Any, fault: str, status: int, content_type: str | None, size: int | None) -> None:
    bench = start(duration=0.0, faults=parse_faults([f"{fault}=1"]))
    link = result_of(bench, "bfl/flux-2-pro", {"prompt": "x"})["result"]["sample"]
    broken = bench.get(link, key=None)
    assert (broken.status_code, broken.headers.get("content-type")) == (status, content_type)
    assert size is None or len(broken.content) == size
    assert bench.get(link, key=None).headers["content-type"] == "image/png"
