"""What the names of an output's fields say about the values under them.

A name is cut into words (`rigged_character_glb_url`, `PreviewImageUrl`, `audioContent`), each also without
its plural's `s` or trailing digits, and judged by them. The lists hold what partner APIs use in public; a
new model is expected to use the same words in another order, not to need a line of its own.
"""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import unquote, urlsplit

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z0-9]+")

IMAGE, VIDEO, AUDIO, SHAPE, SIDECAR = "image", "video", "audio", "3d", "sidecar"

_FORMATS = {
    IMAGE: "png jpg jpeg webp gif svg avif heic heif bmp tiff tif psd exr hdr tga jxl ktx2",
    VIDEO: "mp4 mov webm mkv avi m4v mpeg mpg ogv",
    AUDIO: "mp3 wav flac ogg opus aac m4a aiff aif pcm midi mid",
    SHAPE: "glb gltf fbx obj usdz usd usda usdc stl ply blend 3mf dae spz splat 3d",
    SIDECAR: "mtl srt vtt lrc",
}
#: A file format named in a key or an extension ─▶ what kind of thing it holds.
FORMATS = {word: kind for kind, words in _FORMATS.items() for word in words.split()}

_NOUNS = {
    IMAGE: "image picture photo pic img texture frame still thumbnail thumb cover poster sticker matte",
    VIDEO: "video clip movie film",
    AUDIO: "audio sound speech song music voice vocal stem",
    SHAPE: "mesh",
}
_KINDS = {word: kind for kind, words in _NOUNS.items() for word in words.split()}


def vocabulary(text: str) -> frozenset[str]:
    """The words of a list written as one text."""
    return frozenset(text.split())


#: Say that a file is meant without saying of what kind.
NEUTRAL = vocabulary(
    "url uri output result sample generated generation asset file media artifact download render rendered "
    "creation data binary bytes b64 base64 layer attachment variation variant upscaled enhanced edited final "
    "watermark watermarked zip pdf model alpha mask preview track response map archive"
)
#: Say where a file is, not what it is: the name of the object around it says that.
GENERIC = vocabulary(
    "url uri data b64 base64 json bytes encoded binary content value result output file download src href link"
)
#: Say that text under them is base64.
ENCODED = vocabulary("b64 base64 bytes encoded binary")
#: Words a payload may stand under when a media type is named beside it.
PAYLOAD = vocabulary("data content value result body payload base64 b64 bytes encoded binary file output")

#: Roles of texture maps: parts of a 3D result, not previews of it.
TEXTURES = vocabulary(
    "texture basecolor albedo diffuse metallic metalness normal roughness emission emissive occlusion "
    "displacement specular opacity orm"
)

#: The caller's own things, sent back; nothing below them was made by the run.
_ECHO = vocabulary(
    "input source request original origin reference ref init initial user caller guide guidance conditioning "
    "uploaded param parameter payload setting config configuration option arg argument meta metadata keyframe "
    "driving driver parent citation annotation grounding search retrieval webhook callback author creator owner "
    "account provider usage history"
)
#: Pictures of these, and clips, are shown to a model, not made by it.
_GUIDES = vocabulary("style subject garment cloth person human control start end first tail driving target seed")
#: Links that lead to a page or an endpoint, whatever else the name says.
_ENDPOINT = vocabulary("status poll polling cancel callback webhook html dashboard page doc docs documentation schema")
#: Links of that sort, unless the name speaks of media too.
_LINK = vocabulary(
    "task self next prev previous stream streaming help web website homepage site share edit editor console "
    "support terms policy privacy license licence profile log head delete retry type upload websocket ws sse "
    "billing pricing permalink get request response"
)
#: Values that look like base64 and mean something only to their issuer.
_OPAQUE = vocabulary(
    "id token hash signature sig encrypted key checksum sha256 sha1 md5 etag nonce cursor embedding secret password"
)
#: Read by people: a link in them is part of what was written.
_PROSE = vocabulary(
    "text content transcript message msg description title reason reasoning thinking thought summary lyric "
    "query instruction answer note comment warning error detail caption tag refusal"
)
_ALWAYS_PROSE = vocabulary("prompt name label")
#: Undo the verdict "prose": `caption_url`, `content_file`.
_FILE = vocabulary("url uri file")

#: Shown before or around the thing itself.
PREVIEWS = vocabulary("thumbnail thumb preview cover poster progress storyboard waveform spectrogram")
SIDECARS = vocabulary("mtl srt vtt lrc subtitle caption")
#: Another copy of the thing beside it.
COPIES = vocabulary(
    "watermark watermarked backup proxy compressed stream streaming lowres min small alternate alternative"
)
#: Made on the way to the thing, or as an extra.
EXTRAS = vocabulary("alpha mask matte depth trimap skeleton extra")
#: Lists and objects of such.
EXTRA_GROUPS = vocabulary("animation preview thumbnail extra")

#: Extensions that name media, for links under names that say nothing.
EXTENSIONS = frozenset(FORMATS) - {"3d"} | {"zip"}
_WEB = vocabulary("html htm php asp aspx jsp js css md")

#: Types of content blocks that hold words only.
_TEXT_BLOCKS = vocabulary("text output_text summary_text reasoning thinking redacted_thinking refusal")
_OTHER_BLOCKS = vocabulary("search citation function computer mcp tool")


@lru_cache(maxsize=4096)
def split(name: str) -> tuple[str, ...]:
    """The words of a field's name, lower case, in order."""
    words: list[str] = []
    for word in _WORD.findall(name[:200]):
        low = word.lower()
        stem = low.removesuffix("s").removesuffix("url")
        if stem and low.endswith(("url", "urls")):
            words += [stem, "url"]
        else:
            words.append(low)
    return tuple(words)


@lru_cache(maxsize=4096)
def words_of(name: str) -> frozenset[str]:
    """The words of a name, each also in the singular and without a number at its end."""
    found = set(split(name))
    for word in tuple(found):
        if word not in FORMATS:
            found.add(word.rstrip("0123456789") or word)
        found.add(word.removesuffix("s"))
    if {"base", "64"} <= found:
        found.add("base64")
    return frozenset(found)


@lru_cache(maxsize=4096)
def kind_of(name: str) -> str | None:
    """`image`, `video`, `audio`, `3d`, `sidecar`, or `None`: a format's name counts before a noun."""
    words = split(name)
    for table in (FORMATS, _KINDS):
        for word in reversed(words):
            kind = table.get(word) or table.get(word.removesuffix("s")) or table.get(word.rstrip("0123456789"))
            if kind is not None:
                return kind
    return None


def speaks_of_media(name: str) -> bool:
    """Whether a name says that a file is meant."""
    return kind_of(name) is not None or not words_of(name).isdisjoint(NEUTRAL | TEXTURES)


def names_a_thing(name: str) -> bool:
    """Whether a name says what a file is (`video_url`, `mask`), not just that there is one (`url`, `0`, `front`)."""
    return speaks_of_media(name) and not words_of(name) <= GENERIC


@lru_cache(maxsize=4096)
def is_echo(name: str) -> bool:
    """Whether what stands under this name came from the caller, or is not the run's work at all."""
    words = words_of(name)
    if name[:1] in "@$" or "prompt" in words or not words.isdisjoint(_ECHO):
        return True
    if words >= {"task", "info"} or name in ("error", "errors"):
        return True
    pictured = words & {"image", "frame", "video", "audio"}
    if pictured and not words.isdisjoint(_GUIDES):
        return True
    # `texture_image_url` guides a texture; `texture_images` and `texture_urls` are textures.
    return "texture" in words and "image" in split(name)


@lru_cache(maxsize=4096)
def never_media(name: str) -> bool:
    """Whether a string under this name is no media whatever it looks like: an endpoint, an id, an echo."""
    words = words_of(name)
    if is_echo(name) or not words.isdisjoint(_ENDPOINT | _OPAQUE):
        return True
    firm = (words & (NEUTRAL - {"url", "uri", "response", "model"})) or kind_of(name)
    return not firm and not words.isdisjoint(_LINK)


@lru_cache(maxsize=4096)
def is_prose(name: str) -> bool:
    """Whether a string under this name was written to be read."""
    words = words_of(name)
    if not words.isdisjoint(_ALWAYS_PROSE):
        return True
    return not words.isdisjoint(_PROSE) and words.isdisjoint(_FILE) and kind_of(name) is None


def block_is_text(block_type: str) -> bool:
    """Whether a content block of this type holds words, or what a tool looked up."""
    return block_type in _TEXT_BLOCKS or not words_of(block_type).isdisjoint(_OTHER_BLOCKS)


def is_link(text: str) -> bool:
    """Whether the whole string is one absolute link to a file: `http`, `https`, `gs` or `s3`."""
    if text[:8].lower().startswith(("https://", "http://", "gs://", "s3://")) and len(text) <= 16384:
        return not re.search(r"[\s\"<>\x00-\x1f]", text)
    return False


def link_parts(url: str) -> tuple[str, str]:
    """The last path segment of a link without its extension, and the extension in lower case."""
    try:
        path = urlsplit(url).path
    except ValueError:
        return "", ""
    name = unquote(path).rpartition("/")[2]
    stem, dot, extension = name.rpartition(".")
    return (stem, extension.lower()) if dot else (name, "")


def leads_to_a_page(url: str) -> bool:
    """A bare host, or a web page by its extension."""
    stem, extension = link_parts(url)
    return extension in _WEB or not (stem or extension or url.partition("?")[2])
