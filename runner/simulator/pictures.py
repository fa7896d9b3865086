"""Pictures without an imaging library: real PNG files, cheap enough to make one for every run.

A picture is a pattern of palette indices, compressed once per pattern and size, and a palette that the words of the
prompt choose. So a new picture costs a palette and two checksums, not a compression.
"""

from __future__ import annotations

import hashlib
import math
import struct
import zlib
from collections.abc import Callable
from functools import lru_cache

#: Pixels on the longer side. The pictures keep the shape that was asked for, not its size.
LONGEST_SIDE = 256

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_Pattern = Callable[[float, float], float]


def _waves(x: float, y: float) -> float:
    return math.sin(x * 5) + math.sin(y * 7 + math.sin(x * 3) * 2) + math.sin((x + y) * 4)


def _rings(x: float, y: float) -> float:
    return 2.6 * math.sin(math.hypot(x - 0.62, y - 0.42) * 17)


def _dunes(x: float, y: float) -> float:
    return 3 * math.sin(y * 9 + math.sin(x * 4) * 1.4 + math.sin(x * 9) * 0.5)


def _petals(x: float, y: float) -> float:
    dx, dy = x - 0.5, y - 0.5
    return 2.8 * math.cos(math.atan2(dy, dx) * 6) * math.exp(-4 * math.hypot(dx, dy)) + 3 * (y - 0.5)


def _weave(x: float, y: float) -> float:
    return 1.5 * math.sin(x * 26) * math.cos(y * 3) + 1.5 * math.sin(y * 26) * math.cos(x * 3)


def _aurora(x: float, y: float) -> float:
    return 3 * math.exp(-22 * (y - 0.5 - 0.18 * math.sin(x * 6)) ** 2) - 1.5 * y + math.sin(x * 11) * 0.4


def _spiral(x: float, y: float) -> float:
    dx, dy = x - 0.45, y - 0.55
    return 2.7 * math.sin(math.hypot(dx, dy) * 24 + 3 * math.atan2(dy, dx))


def _hills(x: float, y: float) -> float:
    height = -1.0
    for layer in range(5):
        edge = 0.3 + layer * 0.14 + 0.06 * math.sin(x * (4 + layer * 1.7) + layer * 2)
        if y > edge:
            height = layer - 1.5 - (y - edge)
    return height - y * 0.6


_PATTERNS: tuple[_Pattern, ...] = (_waves, _rings, _dunes, _petals, _weave, _aurora, _spiral, _hills)


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


@lru_cache(maxsize=64)
def _pixels(pattern: int, width: int, height: int) -> tuple[bytes, bytes]:
    """Header and pixel chunks of one pattern: all that does not change with the palette."""
    draw = _PATTERNS[pattern]
    rows = bytearray()
    for row in range(height):
        rows.append(0)
        y = row / height
        rows.extend(min(255, max(0, round(127.5 + 42 * draw(column / width, y)))) for column in range(width))
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    return _chunk(b"IHDR", header), _chunk(b"IDAT", zlib.compress(bytes(rows), 6))


#: One turn of a cosine in brightness steps. With the middles below, no sum leaves the range of a byte.
_TURN = tuple(round(82 * math.cos(math.tau * place / 1024)) for place in range(1024))


def _palette(digest: bytes) -> bytes:
    """256 colours along a cosine for each channel, so that neighbouring indices stay close."""
    colours = bytearray(3 * 256)
    for channel in range(3):
        # Between a third and three quarters of a turn over the whole palette.
        step = 88 + digest[channel] * 104 // 255
        phase = digest[3 + channel] * 4
        middle = 107 + digest[6 + channel] * 51 // 255
        colours[channel::3] = bytes(middle + _TURN[(phase + index * step // 64) & 1023] for index in range(256))
    return bytes(colours)


def _fit(width: int, height: int) -> tuple[int, int]:
    """The shape in steps of 16 pixels, so that the number of cached patterns stays small."""
    longest = max(width, height, 1)
    scale = LONGEST_SIDE / longest
    return max(16, round(width * scale / 16) * 16), max(16, round(height * scale / 16) * 16)


@lru_cache(maxsize=128)
def png(words: str, variation: str = "", width: int = 1024, height: int = 1024) -> bytes:
    """A PNG for a prompt. The same arguments give the same bytes; another variation gives a sibling."""
    digest = hashlib.sha256(words.encode()).digest()
    sibling = hashlib.sha256(f"{words}\0{variation}".encode()).digest()
    # The prompt chooses pattern and curve, the variation shifts the colours along it.
    mixed = digest[:3] + bytes((one + two // 6) % 256 for one, two in zip(digest[3:6], sibling, strict=False))
    header, pixels = _pixels(digest[9] % len(_PATTERNS), *_fit(width, height))
    text = b"Description\0" + words[:500].encode("latin-1", "replace").replace(b"\0", b"?")
    note = b"Variation\0" + sibling.hex()[:16].encode()
    chunks = header + _chunk(b"PLTE", _palette(mixed + digest[6:9])) + _chunk(b"tEXt", text)
    return _SIGNATURE + chunks + _chunk(b"tEXt", note) + pixels + _chunk(b"IEND", b"")
