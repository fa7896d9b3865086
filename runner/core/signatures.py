"""The first bytes of a file ─▶ what it is.

Signatures follow the formats' own specifications and, where those are silent, the WHATWG MIME Sniffing
Standard. Container formats that hold several media (ISO BMFF, EBML, RIFF, Ogg, ZIP) are opened far enough
to tell which.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass

#: How many bytes of a file are enough for every rule here.
HEAD_BYTES = 4096


@dataclass(frozen=True, slots=True)
class FileType:
    """What a file is."""

    media_type: str
    #: Lower case, without the dot.
    extension: str
    #: What was claimed about the file (`Content-Type`, the link's extension) is something else.
    mismatch: bool = False


#: Bytes at an offset that settle the matter alone.
_FIXED: tuple[tuple[int, bytes, str, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png", "png"),
    (0, b"\xff\xd8\xff", "image/jpeg", "jpg"),
    (0, b"GIF87a", "image/gif", "gif"),
    (0, b"GIF89a", "image/gif", "gif"),
    (0, b"II*\x00", "image/tiff", "tiff"),
    (0, b"MM\x00*", "image/tiff", "tiff"),
    (0, b"8BPS\x00", "image/vnd.adobe.photoshop", "psd"),
    (0, b"\x76\x2f\x31\x01", "image/x-exr", "exr"),
    (0, b"#?RADIANCE", "image/vnd.radiance", "hdr"),
    (0, b"\x00\x00\x00\x0cJXL \r\n\x87\n", "image/jxl", "jxl"),
    (0, b"\xabKTX 20\xbb\r\n\x1a\n", "image/ktx2", "ktx2"),
    (0, b"FLV\x01", "video/x-flv", "flv"),
    (0, b"fLaC", "audio/flac", "flac"),
    (0, b"ID3", "audio/mpeg", "mp3"),
    (0, b"MThd\x00\x00\x00\x06", "audio/midi", "mid"),
    (0, b"glTF\x01\x00\x00\x00", "model/gltf-binary", "glb"),
    (0, b"glTF\x02\x00\x00\x00", "model/gltf-binary", "glb"),
    (0, b"Kaydara FBX Binary  \x00", "application/vnd.autodesk.fbx", "fbx"),
    (0, b"; FBX ", "application/vnd.autodesk.fbx", "fbx"),
    (0, b"ply\n", "model/ply", "ply"),
    (0, b"ply\r\n", "model/ply", "ply"),
    (0, b"BLENDER", "application/x-blender", "blend"),
    (0, b"PXR-USDC", "model/vnd.usd", "usdc"),
    (0, b"#usda ", "model/vnd.usd", "usda"),
    (0, b"%PDF-", "application/pdf", "pdf"),
    (0, b"WEBVTT", "text/vtt", "vtt"),
    (0, b"\x1f\x8b\x08", "application/gzip", "gz"),
)

_ISO_BRANDS = {
    b"avif": ("image/avif", "avif"),
    b"avis": ("image/avif", "avif"),
    b"heic": ("image/heic", "heic"),
    b"heix": ("image/heic", "heic"),
    b"hevc": ("image/heic", "heic"),
    b"heim": ("image/heic", "heic"),
    b"mif1": ("image/heif", "heif"),
    b"msf1": ("image/heif", "heif"),
    b"qt  ": ("video/quicktime", "mov"),
    b"M4A ": ("audio/mp4", "m4a"),
    b"M4B ": ("audio/mp4", "m4a"),
    b"M4V ": ("video/x-m4v", "m4v"),
    b"M4VH": ("video/x-m4v", "m4v"),
    b"M4VP": ("video/x-m4v", "m4v"),
}


def sniff(head: bytes) -> FileType | None:
    """What the bytes say a file is; `None` when they say nothing.

    `head` is the file's beginning, `HEAD_BYTES` of it or more. HTML and XML that is not a picture come
    back as `text/html` and `application/xml`: known, and not media. Never raises.
    """
    for offset, mark, media_type, extension in _FIXED:
        if head.startswith(mark, offset):
            return FileType(media_type, extension)
    for look in _LOOKS:
        found = look(head[:HEAD_BYTES])
        if found is not None:
            return FileType(*found)
    return None


def _iso_media(head: bytes) -> tuple[str, str] | None:
    """ISO/IEC 14496-12: the major brand, and for pictures the compatible brands after it."""
    if head[4:8] != b"ftyp":
        # QuickTime files from before the box existed begin with their media or index.
        old = head[4:8] in (b"moov", b"mdat", b"wide") and head[:2] == b"\0\0"
        return ("video/quicktime", "mov") if old else None
    size = min(int.from_bytes(head[:4], "big"), len(head), 256)
    brands = [head[8:12], *(head[at : at + 4] for at in range(16, size, 4))]
    found = _ISO_BRANDS.get(brands[0])
    if found is not None and found[1] == "heif":
        return next((_ISO_BRANDS[b] for b in brands if b in (b"avif", b"heic", b"heix")), found)
    return found or ("video/mp4", "mp4")


def _riff(head: bytes) -> tuple[str, str] | None:
    if head[:4] in (b"RIFF", b"RF64"):
        return {
            b"WEBP": ("image/webp", "webp"),
            b"WAVE": ("audio/wav", "wav"),
            b"AVI ": ("video/x-msvideo", "avi"),
        }.get(head[8:12])
    if head[:4] == b"FORM" and head[8:12] in (b"AIFF", b"AIFC"):
        return ("audio/aiff", "aiff")
    return None


def _matroska(head: bytes) -> tuple[str, str] | None:
    if head[:4] != b"\x1a\x45\xdf\xa3":
        return None
    return ("video/webm", "webm") if b"webm" in head[:128] else ("video/x-matroska", "mkv")


def _ogg(head: bytes) -> tuple[str, str] | None:
    if head[:4] != b"OggS":
        return None
    if b"OpusHead" in head[:128]:
        return ("audio/ogg", "opus")
    return ("video/ogg", "ogv") if b"theora" in head[:128] else ("audio/ogg", "ogg")


def _mpeg_audio(head: bytes) -> tuple[str, str] | None:
    """A frame header of MPEG layer III (ISO 11172-3) or of ADTS (ISO 13818-7), no reserved value in it."""
    if len(head) < 7 or head[0] != 0xFF:
        return None
    second, third = head[1], head[2]
    if second & 0xF6 == 0xF0 and (third >> 2) & 0xF < 13:
        # Raw samples near zero begin so too: the next frame must follow where this one says it ends.
        size = (head[3] & 3) << 11 | head[4] << 3 | head[5] >> 5
        follows = size == len(head) or head[size : size + 2] == head[:2]
        return ("audio/aac", "aac") if size > 7 and follows else None
    layer_three = second & 0xE6 == 0xE2 and second & 0x18 != 0x08
    if layer_three and third >> 4 not in (0, 0xF) and third & 0x0C != 0x0C:
        return ("audio/mpeg", "mp3")
    return None


def _bitmap(head: bytes) -> tuple[str, str] | None:
    sizes = (12, 40, 52, 56, 108, 124)
    known = head[:2] == b"BM" and head[6:10] == bytes(4) and int.from_bytes(head[14:18], "little") in sizes
    return ("image/bmp", "bmp") if known else None


def _zip(head: bytes) -> tuple[str, str] | None:
    """USDZ begins with its layer (OpenUSD); 3MF holds a part below `3D/` (3MF core specification)."""
    if head[:4] not in (b"PK\x03\x04", b"PK\x05\x06"):
        return None
    first = head[30 : 30 + int.from_bytes(head[26:28], "little")].lower()
    if first.endswith((b".usdc", b".usda", b".usd")):
        return ("model/vnd.usdz+zip", "usdz")
    if b"3D/3dmodel.model" in head or first.startswith(b"3d/"):
        return ("model/3mf", "3mf")
    return ("application/zip", "zip")


_PROLOG = re.compile(rb"(?:\s+|<\?.*?\?>|<!--.*?-->|<!DOCTYPE\s+(?!html)[^\[>]*(?:\[.*?\]\s*)?>)*", re.S | re.I)
_HTML = re.compile(rb"<(?:!doctype\s+html|html|head|body|title|script|meta|h1|p|div|center|table)[\s>/]", re.I)


def _markup(head: bytes) -> tuple[str, str] | None:
    text = head.removeprefix(b"\xef\xbb\xbf")
    if text.lstrip()[:1] != b"<":
        return None
    begun = _PROLOG.match(text)
    rest = text[begun.end() :] if begun else text
    if re.match(rb"<(?:\w+:)?svg[\s>]", rest):
        return ("image/svg+xml", "svg")
    if rest.startswith(b"<COLLADA"):
        return ("model/vnd.collada+xml", "dae")
    if _HTML.match(rest):
        return ("text/html", "html")
    closed = b"</" in rest or b"/>" in rest
    if text.lstrip().startswith(b"<?xml") or (closed and re.match(rb"<[A-Za-z][\w.:-]*[\s/>]", rest)):
        return ("application/xml", "xml")
    return None


def _gltf_json(head: bytes) -> tuple[str, str] | None:
    """glTF 2.0, section 3.2: the one required property is `asset`, whose one required is `version`."""
    if head.lstrip()[:1] != b"{" or not re.search(rb'"asset"\s*:\s*\{', head):
        return None
    known = re.search(rb'"(?:scenes?|nodes|meshes|buffers|accessors|bufferViews|materials)"\s*:', head)
    return ("model/gltf+json", "gltf") if known else None


_LINES = re.compile(rb"^(?:v|vn|vt|vp|f|o|g|s|l|mtllib|usemtl)\s+\S", re.M)


def _model_text(head: bytes) -> tuple[str, str] | None:
    """Wavefront OBJ and MTL, STL as text: formats without a signature, told by how their lines begin."""
    if b"\0" in head or not head[:1].strip():
        return None
    if head.startswith(b"solid") and re.search(rb"^\s*(?:facet normal|endsolid)\b", head, re.M):
        return ("model/stl", "stl")
    if re.search(rb"^newmtl\s+\S", head, re.M):
        return ("model/mtl", "mtl")
    if re.search(rb"^v\s+-?[\d.]+\S*\s+-?[\d.]+\S*\s+-?[\d.]+", head, re.M) or (
        re.match(rb"(?:#|mtllib\s|o\s|g\s|v\s)", head) and len(_LINES.findall(head)) > 1
    ):
        return ("model/obj", "obj")
    return None


def _subtitles(head: bytes) -> tuple[str, str] | None:
    srt = rb"\A(?:\xef\xbb\xbf)?\s*\d+\r?\n\d\d:\d\d:\d\d[,.]\d{3} --> "
    return ("application/x-subrip", "srt") if re.match(srt, head) else None


def _stl_binary(head: bytes) -> tuple[str, str] | None:
    """80 free bytes, a count, then facets of 50 bytes: twelve finite numbers and (always) two zero bytes."""
    if len(head) < 134:
        return None
    count = int.from_bytes(head[80:84], "little")
    here = min(count, (len(head) - 84) // 50)
    exact = len(head) < HEAD_BYTES and len(head) == 84 + 50 * count
    if here < 1 or (here < 3 and not exact) or count > 100_000_000:
        return None
    for at in range(84, 84 + 50 * here, 50):
        numbers = struct.unpack_from("<12f", head, at)
        if head[at + 48 : at + 50] != b"\0\0" or not all(math.isfinite(n) and abs(n) < 1e7 for n in numbers):
            return None
        if sum(n * n for n in numbers[:3]) > 1.1:
            return None
    # A run of zeros satisfies all of that and is no shape.
    return ("model/stl", "stl") if any(head[84 : 84 + 50 * here]) else None


_LOOKS: tuple[Callable[[bytes], tuple[str, str] | None], ...] = (
    _iso_media,
    _riff,
    _matroska,
    _ogg,
    _bitmap,
    _zip,
    _markup,
    _gltf_json,
    _subtitles,
    _model_text,
    _mpeg_audio,
    _stl_binary,
)
