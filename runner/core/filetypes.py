"""What to call a file: its bytes, what was declared of it, and its link, weighed in that order."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from runner.core.signatures import HEAD_BYTES, FileType, sniff

__all__ = [
    "EXTENSIONS",
    "HEAD_BYTES",
    "MEDIA_TYPES",
    "FileType",
    "choose_type",
    "essence",
    "looks_like_error_page",
    "sniff",
    "url_extension",
]

#: Extension ─▶ media type (IANA where it has one); the first extension of a type is the one we write.
MEDIA_TYPES = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "webp": "image/webp",
    "gif": "image/gif",
    "svg": "image/svg+xml",
    "avif": "image/avif",
    "heic": "image/heic",
    "heif": "image/heif",
    "bmp": "image/bmp",
    "tiff": "image/tiff",
    "tif": "image/tiff",
    "psd": "image/vnd.adobe.photoshop",
    "exr": "image/x-exr",
    "hdr": "image/vnd.radiance",
    "tga": "image/x-tga",
    "jxl": "image/jxl",
    "ktx2": "image/ktx2",
    "mp4": "video/mp4",
    "mov": "video/quicktime",
    "m4v": "video/x-m4v",
    "webm": "video/webm",
    "mkv": "video/x-matroska",
    "avi": "video/x-msvideo",
    "flv": "video/x-flv",
    "ogv": "video/ogg",
    "mp3": "audio/mpeg",
    "wav": "audio/wav",
    "flac": "audio/flac",
    "ogg": "audio/ogg",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "m4a": "audio/mp4",
    "aiff": "audio/aiff",
    "aif": "audio/aiff",
    "mid": "audio/midi",
    "pcm": "audio/pcm",
    "glb": "model/gltf-binary",
    "gltf": "model/gltf+json",
    "fbx": "application/vnd.autodesk.fbx",
    "obj": "model/obj",
    "mtl": "model/mtl",
    "usdz": "model/vnd.usdz+zip",
    "usdc": "model/vnd.usd",
    "usda": "model/vnd.usd",
    "usd": "model/vnd.usd",
    "3mf": "model/3mf",
    "ply": "model/ply",
    "stl": "model/stl",
    "blend": "application/x-blender",
    "dae": "model/vnd.collada+xml",
    "spz": "model/x-spz",
    "splat": "model/x-splat",
    "zip": "application/zip",
    "gz": "application/gzip",
    "pdf": "application/pdf",
    "srt": "application/x-subrip",
    "vtt": "text/vtt",
    "lrc": "text/x-lrc",
    "json": "application/json",
    "txt": "text/plain",
}
EXTENSIONS = {media_type: extension for extension, media_type in reversed(MEDIA_TYPES.items())}

#: Other names of the same types, as servers send them.
_ALIASES = {
    "image/jpg": "image/jpeg",
    "image/pjpeg": "image/jpeg",
    "image/x-png": "image/png",
    "image/svg": "image/svg+xml",
    "image/x-ms-bmp": "image/bmp",
    "image/x-photoshop": "image/vnd.adobe.photoshop",
    "audio/mp3": "audio/mpeg",
    "audio/x-mp3": "audio/mpeg",
    "audio/wave": "audio/wav",
    "audio/x-wav": "audio/wav",
    "audio/vnd.wave": "audio/wav",
    "audio/x-flac": "audio/flac",
    "audio/x-aac": "audio/aac",
    "audio/aacp": "audio/aac",
    "audio/m4a": "audio/mp4",
    "audio/x-m4a": "audio/mp4",
    "audio/x-aiff": "audio/aiff",
    "audio/opus": "audio/ogg",
    "audio/l16": "audio/pcm",
    "application/ogg": "audio/ogg",
    "video/avi": "video/x-msvideo",
    "application/x-zip-compressed": "application/zip",
    "model/x.stl-binary": "model/stl",
    "application/sla": "model/stl",
    "application/vnd.ms-pki.stl": "model/stl",
    "model/usd": "model/vnd.usd",
}
#: Say no more than "bytes".
_NOTHING = frozenset({"", "application/octet-stream", "binary/octet-stream", "application/binary", "*/*"})
#: One container, several names: which of them it is called is no mismatch.
_FAMILIES = (
    frozenset({"video/mp4", "video/quicktime", "video/x-m4v", "audio/mp4"}),
    frozenset({"video/webm", "audio/webm", "video/x-matroska"}),
    frozenset({"audio/ogg", "video/ogg"}),
    frozenset({"image/heic", "image/heif"}),
    frozenset({"application/zip", "model/vnd.usdz+zip", "model/3mf"}),
    frozenset({"application/json", "model/gltf+json"}),
    frozenset({"application/xml", "text/xml", "image/svg+xml", "model/vnd.collada+xml"}),
)
#: Formats made of text, which honest servers label so.
_TEXTUAL = frozenset({"obj", "mtl", "stl", "ply", "gltf", "svg", "dae", "srt", "vtt", "usda", "fbx"})


def essence(declared: str | None) -> str:
    """A `Content-Type` without parameters, in lower case, by its usual name (RFC 9110, section 8.3.1)."""
    bare = (declared or "").partition(";")[0].strip().lower()
    return _ALIASES.get(bare, bare)


def url_extension(url: str | None) -> str:
    """The extension of a link's last path segment, lower case, without the dot; empty when it has none."""
    try:
        path = urlsplit(url or "").path
    except ValueError:
        return ""
    name = unquote(path).rpartition("/")[2]
    stem, dot, extension = name.rpartition(".")
    return extension.lower() if dot and stem and re.fullmatch(r"[A-Za-z0-9]{1,8}", extension) else ""


def choose_type(head: bytes, declared: str | None = None, url: str | None = None) -> FileType:
    """What a file is: its bytes decide; what was declared, where they say nothing; the link comes last.

    `application/octet-stream` declares nothing. `mismatch` is set when the bytes contradict the declared
    type or a known extension of the link.
    """
    claimed = essence(declared)
    if claimed in _NOTHING:
        claimed = ""
    extension = url_extension(url)
    found = sniff(head)
    if found is not None:
        wrong = _contradicts(found, claimed) or _contradicts(found, MEDIA_TYPES.get(extension, ""))
        return FileType(found.media_type, found.extension, mismatch=wrong)
    named = MEDIA_TYPES.get(extension)
    if claimed:
        known = EXTENSIONS.get(claimed)
        if known is not None and named == claimed:
            known = extension
        return FileType(claimed, known or extension or "bin")
    return FileType(named or "application/octet-stream", extension or "bin")


def _contradicts(found: FileType, claim: str) -> bool:
    if claim in ("", found.media_type) or (claim.startswith("text/") and found.extension in _TEXTUAL):
        return False
    return not any(claim in family and found.media_type in family for family in _FAMILIES)


_ERROR_KEY = re.compile(rb'"(?:errors?|message|msg|detail|code|fault|reason|status|error_code|errorMessage)"\s*:', re.I)
_ERROR_WORDS = re.compile(
    rb"\s*(?:error\b|access ?denied|not found|forbidden|unauthorized|expired|request has expired|bad request|"
    rb"invalid\b|internal server error|service unavailable|bad gateway|gateway time-?out|too many requests|"
    rb"no such (?:key|file|object)|40[0-9]\b|50[0-9]\b)",
    re.I,
)


def looks_like_error_page(head: bytes, declared: str | None = None) -> bool:
    """Whether a web page or an error document came where media was expected.

    The bytes decide: a picture labelled `text/html` is a picture. HTML, XML that is no drawing, JSON that
    speaks of an error, and a short sentence of refusal are none.
    """
    found = sniff(head)
    if found is not None:
        return found.media_type in ("text/html", "application/xml")
    text = head.removeprefix(b"\xef\xbb\xbf").strip()
    if text[:1] in (b"{", b"["):
        return len(text) <= 2 or _ERROR_KEY.search(text[:2048]) is not None
    claimed = essence(declared)
    if claimed in ("text/html", "application/xhtml+xml", "text/xml", "application/xml", "application/json"):
        return True
    return len(text) < 512 and _ERROR_WORDS.match(text) is not None
