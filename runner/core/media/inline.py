"""Media that stand in the output itself: data URIs, base64, hexadecimal, drawings as text."""

from __future__ import annotations

import binascii
import re
from urllib.parse import unquote_to_bytes

from runner.core.media.words import vocabulary
from runner.core.signatures import sniff

#: Formats whose signature is long enough to be believed under a name that says nothing.
_UNMISTAKABLE = vocabulary(
    "png jpg gif webp avif heic psd tiff mp4 mov m4a webm mkv avi mp3 wav flac ogg opus aiff glb fbx usdz zip pdf svg"
)
_ALPHABET = re.compile(r"[A-Za-z0-9+/_\r\n-]*={0,2}[\r\n]*\Z")
_HEX = frozenset("0123456789abcdefABCDEF")


def decode_inline(value: str) -> tuple[bytes, str | None]:
    """The bytes of a data URI (RFC 2397), base64 (RFC 4648, either alphabet), hexadecimal or SVG text.

    Also gives the media type that a data URI names. Line breaks and missing padding are forgiven,
    nothing else. Raises ValueError with a plain reason.
    """
    if value[:5].lower() == "data:":
        return _decode_data_uri(value)
    if is_drawing(value):
        return value.encode("utf-8"), "image/svg+xml"
    if _is_hex(value):
        return bytes.fromhex(value), None
    return _decode_base64(value), None


def data_uri_type(value: str) -> str | None:
    """The media type of a data URI, lower case, `text/plain` where it names none; `None` for anything else."""
    if value[:5].lower() != "data:":
        return None
    header, comma, _ = value[:1024].partition(",")
    return (header[5:].partition(";")[0].strip().lower() or "text/plain") if comma else None


def is_drawing(value: str) -> bool:
    """Whether a string is an SVG document."""
    begin = value[:512].lstrip("\ufeff \t\r\n")
    if not begin.startswith(("<svg", "<?xml", "<!--", "<!DOCTYPE svg")):
        return False
    found = sniff(value[:4096].lstrip("\ufeff \t\r\n").encode("utf-8", "replace"))
    return found is not None and found.extension == "svg"


def is_media_payload(value: str, *, certain: bool, likely: bool) -> bool:
    """Whether a string is the base64 or hexadecimal text of a file.

    `certain`: the name or a media type beside it says so, and valid base64 is enough. `likely`: the name
    speaks of media; then a known signature, base64's own padding, or length with mixed characters is
    needed. Otherwise only a signature that cannot be an accident counts.
    """
    if len(value) < (4 if certain else 8) or not _ALPHABET.match(value[:256].rstrip("=") or "?"):
        return False
    if _is_hex(value):
        return certain or likely
    found = sniff(_head(value))
    if certain:
        return _is_base64(value)
    signed = found is not None and found.extension in _UNMISTAKABLE
    if not likely:
        return signed and len(value) >= 64 and _is_base64(value)
    if not (signed or value.endswith("=") or _is_mixed(value)):
        return False
    return _is_base64(value)


def _head(value: str) -> bytes:
    try:
        return _decode_base64(value[:4096][: len(value[:4096]) // 4 * 4])
    except ValueError:
        return b""


def _is_base64(value: str) -> bool:
    try:
        return bool(_decode_base64(value))
    except ValueError:
        return False


def _is_mixed(value: str) -> bool:
    """Long, with capitals, small letters and digits: no word, and no identifier anybody would write."""
    begin = value[:512]
    return (
        len(value) >= 256
        and any(c.isupper() for c in begin)
        and any(c.islower() for c in begin)
        and any(c.isdigit() for c in begin)
    )


def _is_hex(value: str) -> bool:
    """Hexadecimal text of a file: recognised by the file's signature, or too long to be base64 by accident."""
    if len(value) < 64 or len(value) % 2 or not set(value[:1024]) <= _HEX:
        return False
    if len(value) < 512 and sniff(bytes.fromhex(value)) is None:
        return False
    try:
        bytes.fromhex(value)
    except ValueError:
        return False
    return True


def _decode_base64(value: str) -> bytes:
    try:
        raw = value.encode("ascii")
    except UnicodeEncodeError:
        raise ValueError("not base64: a character outside its alphabet") from None
    if b"\n" in raw or b"\r" in raw:
        raw = raw.replace(b"\r", b"").replace(b"\n", b"")
    if b"-" in raw or b"_" in raw:
        if b"+" in raw or b"/" in raw:
            raise ValueError("not base64: two alphabets mixed")
        raw = raw.translate(bytes.maketrans(b"-_", b"+/"))
    if len(raw) % 4 == 1:
        raise ValueError("not base64: cut short")
    if not raw.endswith(b"="):
        raw += b"=" * (-len(raw) % 4)
    try:
        # Works in C: ten megabytes take some hundredths of a second.
        return binascii.a2b_base64(raw, strict_mode=True)
    except binascii.Error as error:
        raise ValueError(f"not base64: {str(error).lower()}") from None


def _decode_data_uri(value: str) -> tuple[bytes, str | None]:
    header, comma, payload = value.partition(",")
    if not comma:
        raise ValueError("a data URI without a comma")
    media_type, *parameters = (part.strip().lower() for part in header[5:].split(";"))
    if "base64" not in parameters:
        return unquote_to_bytes(payload), media_type or None
    if "%" in payload:
        payload = unquote_to_bytes(payload).decode("latin-1")
    return _decode_base64(payload), media_type or None
