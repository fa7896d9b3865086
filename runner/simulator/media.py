"""Small but well-formed sound, video and 3D files."""

from __future__ import annotations

import hashlib
import io
import json
import math
import struct
import wave
from functools import lru_cache

_RATE = 8000


@lru_cache(maxsize=128)
def wav(words: str) -> bytes:
    """Half a second of three notes that the words choose."""
    digest = hashlib.sha256(words.encode()).digest()
    notes = [220 * 2 ** (digest[place] % 24 / 12) for place in range(3)]
    samples = bytearray()
    length = _RATE // 6
    for note in notes:
        for at in range(length):
            fade = 1 - at / length
            samples += struct.pack("<h", round(9000 * fade * math.sin(math.tau * note * at / _RATE)))
    out = io.BytesIO()
    with wave.open(out, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(_RATE)
        sound.writeframes(bytes(samples))
    return out.getvalue()


def _box(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body) + 8) + kind + body


def _movie_header() -> bytes:
    """`mvhd`, version 0: a movie of one second without tracks."""
    times = struct.pack(">IIIII", 0, 0, 0, 1000, 1000)
    matrix = struct.pack(">9I", 0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000)
    return _box(b"mvhd", times + struct.pack(">IHHII", 0x10000, 0x100, 0, 0, 0) + matrix + bytes(24) + b"\0\0\0\1")


@lru_cache(maxsize=128)
def mp4(words: str) -> bytes:
    """A file with the boxes of an MP4 (ISO 14496-12) and a payload of its own for each prompt."""
    brands = _box(b"ftyp", b"isom" + struct.pack(">I", 0x200) + b"isomiso2mp41")
    payload = hashlib.shake_256(words.encode()).digest(4096)
    return brands + _box(b"moov", _movie_header()) + _box(b"mdat", payload)


def _padded(body: bytes, filler: bytes) -> bytes:
    return body + filler * (-len(body) % 4)


@lru_cache(maxsize=128)
def glb(words: str) -> bytes:
    """A binary glTF 2.0 with one triangle whose corners the words choose."""
    digest = hashlib.sha256(words.encode()).digest()
    points = [[0.0, 0.0, 0.0], [1.0 + digest[0] / 255, 0.0, 0.0], [0.0, 1.0 + digest[1] / 255, digest[2] / 255]]
    binary = b"".join(struct.pack("<3f", *point) for point in points)
    lows = [min(point[axis] for point in points) for axis in range(3)]
    highs = [max(point[axis] for point in points) for axis in range(3)]
    # Bounds must be those of the stored single-precision values.
    bounds = [list(struct.unpack("<3f", struct.pack("<3f", *each))) for each in (lows, highs)]
    document = {
        "asset": {"version": "2.0", "generator": "comfy-batch simulator"},
        "scene": 0,
        "scenes": [{"nodes": [0]}],
        "nodes": [{"mesh": 0, "name": words[:80]}],
        "meshes": [{"primitives": [{"attributes": {"POSITION": 0}}]}],
        "buffers": [{"byteLength": len(binary)}],
        "bufferViews": [{"buffer": 0, "byteOffset": 0, "byteLength": len(binary), "target": 34962}],
        "accessors": [
            {
                "bufferView": 0,
                "componentType": 5126,
                "count": 3,
                "type": "VEC3",
                "min": bounds[0],
                "max": bounds[1],
            }
        ],
    }
    text = _padded(json.dumps(document).encode(), b" ")
    chunks = struct.pack("<I4s", len(text), b"JSON") + text
    chunks += struct.pack("<I4s", len(binary), b"BIN\0") + binary
    return struct.pack("<4sII", b"glTF", 2, len(chunks) + 12) + chunks
