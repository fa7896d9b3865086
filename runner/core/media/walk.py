"""A native output ─▶ every string in it that is media, in document order."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from runner.core.media import inline, words
from runner.core.media.pointer import escape
from runner.core.media.schema import OutputSchema, Schema, marks_bytes, marks_link, media_type

#: Levels below which nobody puts a result; bounds the work on hostile documents.
DEEPEST = 100

_LINK_IN_TEXT = re.compile(r"(?:https?|gs|s3)://[^\s\"'<>\\)\]}]+", re.I)
_TYPE_NAMES = ("mime_type", "mimeType", "media_type", "mediaType", "content_type", "contentType", "MimeType")
_MEDIA = ("image/", "video/", "audio/", "model/")
_MEDIA_APPLICATIONS = re.compile(
    r"application/(?:octet-stream|pdf|zip|gzip|x-.*|vnd\..*|ogg|mp4|sla|fbx|obj)|binary/octet-stream|font/.*"
)
#: Values of `NAME_mode` with which `NAME` is something the caller brought.
_BROUGHT = frozenset({"custom", "select", "selected", "manual", "provided", "user", "upload", "uploaded"})


@dataclass(frozen=True, slots=True)
class Found:
    """One string that is media, with what the ranking needs to know about its place."""

    pointer: str
    #: `None` when the bytes stand in the output.
    url: str | None
    declared_type: str | None
    name: str
    #: Names on the way to it, outermost first, its own last.
    names: tuple[str, ...]
    #: Pointer of the object, or list, that it stands in.
    owner: str
    #: Pointer of the object that holds that one by name, where it seems to be a file object: `video: {url}`.
    holder: str | None
    kind: str | None
    #: Words of the file's own name beside it or in its link.
    file_words: frozenset[str]
    #: The output itself calls the block an interim thought.
    thought: bool


@dataclass(frozen=True, slots=True)
class _Place:
    pointer: str = ""
    #: Names of the members on the way here; elements of a list go by the list's name.
    names: tuple[str, ...] = ()
    #: The nearest object, its pointer, and the pointer of the object that holds it by name.
    around: Mapping[str, object] | None = None
    object_at: str = ""
    holder: str | None = None
    in_list: bool = False
    schemas: tuple[Schema, ...] = ()
    brought: frozenset[str] = frozenset()
    thought: bool = False
    depth: int = 0

    @property
    def name(self) -> str:
        return self.near[-1]

    @property
    def near(self) -> tuple[str, ...]:
        """The last two names; what stands outside any object is the output."""
        return self.names[-2:] or ("output",)


def strings_of(inputs: bytes) -> frozenset[str]:
    """Every string of a request body and every link inside one: what an output may merely repeat."""
    try:
        waiting: list[object] = [json.loads(inputs)]
    except (ValueError, RecursionError):
        return frozenset(_LINK_IN_TEXT.findall(inputs.decode("utf-8", "replace")))
    found: set[str] = set()
    while waiting:
        node = waiting.pop()
        if isinstance(node, Mapping):
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
        elif isinstance(node, str):
            found.add(node)
            if "://" in node and not words.is_link(node):
                found.update(link.rstrip(".,;:!?") for link in _LINK_IN_TEXT.findall(node))
    return frozenset(found)


class Walk:
    """One pass over one output."""

    def __init__(self, schema: OutputSchema, echoes: frozenset[str]) -> None:
        self._schema = schema
        self._echoes = echoes

    def over(self, output: object) -> Iterator[Found]:
        """Every media string, in document order."""
        return self._visit(output, _Place(schemas=self._schema.root()))

    def _visit(self, node: object, place: _Place) -> Iterator[Found]:
        if place.depth > DEEPEST:
            return
        if isinstance(node, Mapping):
            yield from self._visit_object(node, place)
        elif isinstance(node, list):
            for index, child in enumerate(node):
                if not _is_worth_a_visit(child):
                    continue
                schemas = self._schema.element(place.schemas, index)
                here = replace(
                    place, pointer=f"{place.pointer}/{index}", in_list=True, schemas=schemas, depth=place.depth + 1
                )
                yield from self._visit(child, here)
        elif isinstance(node, str):
            found = self._judge(node, place)
            if found is not None:
                yield found

    def _visit_object(self, node: Mapping[str, object], place: _Place) -> Iterator[Found]:
        if _is_foreign(node):
            return
        inside = replace(
            place,
            around=node,
            object_at=place.pointer,
            holder=None if place.in_list or not place.names else place.object_at,
            in_list=False,
            brought=place.brought | _brought(node),
            thought=place.thought or node.get("thought") is True or node.get("type") == "thought",
            depth=place.depth + 1,
        )
        for name, child in node.items():
            if not _is_worth_a_visit(child) or self._is_closed(name, child, inside):
                continue
            yield from self._visit(
                child,
                replace(
                    inside,
                    pointer=f"{place.pointer}/{escape(name)}",
                    names=(*place.names, name),
                    schemas=self._schema.field(place.schemas, name),
                ),
            )

    def _is_closed(self, name: str, child: object, place: _Place) -> bool:
        """Whether nothing under this name can be the run's media."""
        if name.lower() in place.brought:
            return True
        if isinstance(child, str):
            return words.never_media(name)
        # `source: {type: base64, media_type, data}` is an envelope of bytes, not a source of anything.
        envelope = isinstance(child, Mapping) and "data" in child and _declared(child) is not None
        return words.is_echo(name) and not envelope

    def _judge(self, value: str, place: _Place) -> Found | None:
        if value in self._echoes:
            return None
        name = place.name
        beside = _beside(place)
        is_content = "content" in words.words_of(name) and beside is not None
        if words.never_media(name) or (words.is_prose(name) and not is_content):
            return None
        declared = media_type(place.schemas) or (_declared(place.around) if place.around else None)
        if words.is_link(value):
            return self._found(value, declared, place) if _link_counts(value, place, beside) else None
        named = inline.data_uri_type(value)
        if named is not None:
            return self._found(None, named, place) if _is_media_type(named) else None
        if inline.is_drawing(value):
            return self._found(None, "image/svg+xml", place)
        certain = _is_certainly_bytes(name, beside, place.schemas)
        if inline.is_media_payload(value, certain=certain, likely=_is_likely(place)):
            return self._found(None, declared, place)
        return None

    def _found(self, url: str | None, declared: str | None, place: _Place) -> Found:
        generic = words.words_of(place.name) <= words.GENERIC
        is_file_object = generic and not place.in_list
        stem, extension = words.link_parts(url) if url else ("", "")
        beside = place.around or {}
        titles = [beside.get(key) for key in ("name", "file_name", "fileName", "filename", "map_type")]
        file_words = frozenset().union(*(words.words_of(t) for t in (stem, *titles) if isinstance(t, str)))
        kind = words.kind_of(place.name) or _kind_beside(place, generic) or words.FORMATS.get(extension)
        if kind is None and url and "model" in words.words_of(place.name):
            # Models that go by a name are numbers and words; one with a link is a shape.
            kind = words.SHAPE
        fits = declared is None or kind is None or declared.partition("/")[0] in (kind, "model", "application")
        return Found(
            pointer=place.pointer,
            url=url,
            declared_type=declared if fits else None,
            name=place.name,
            names=place.names,
            owner=place.pointer.rpartition("/")[0] if place.in_list else place.object_at,
            holder=place.holder if is_file_object else None,
            kind=kind,
            file_words=file_words,
            thought=place.thought,
        )


def _is_worth_a_visit(node: object) -> bool:
    """Whether media may stand there; most of a large output is numbers and short words."""
    return len(node) >= 4 if isinstance(node, str) else isinstance(node, (Mapping, list))


def _is_foreign(node: Mapping[str, object]) -> bool:
    """Whether an object is the caller's turn, a tool's finding or plain words, by its `type` or `role`."""
    role = node.get("role")
    if isinstance(role, str) and role.lower() in ("user", "system", "tool", "developer"):
        return True
    kind = node.get("type")
    if not isinstance(kind, str):
        return False
    return kind.startswith(("user_", "input_")) or words.block_is_text(kind)


def _brought(node: Mapping[str, object]) -> frozenset[str]:
    """Names of what the caller brought, by `alpha_mode: custom` and the like."""
    return frozenset(
        key.lower().removesuffix("_mode")
        for key, value in node.items()
        if key.lower().endswith("_mode") and isinstance(value, str) and value.lower() in _BROUGHT
    )


def _declared(around: Mapping[str, object]) -> str | None:
    for key in _TYPE_NAMES:
        value = around.get(key)
        if isinstance(value, str) and 3 <= len(value) <= 200 and "/" in value:
            return value
    return None


def _is_media_type(name: str) -> bool:
    bare = name.partition(";")[0].strip().lower()
    return bare.startswith(_MEDIA) or _MEDIA_APPLICATIONS.fullmatch(bare) is not None


def _beside(place: _Place) -> str | None:
    """A media type or block type beside the string that says it is media."""
    if place.around is None or place.in_list:
        return None
    declared = _declared(place.around)
    if declared is not None and _is_media_type(declared):
        return declared
    for key in ("type", "Type", "format", "output_format", "encoding"):
        value = place.around.get(key)
        if isinstance(value, str) and (words.kind_of(value) is not None or value.lower() == "base64"):
            return value
    return None


def _kind_beside(place: _Place, generic: bool) -> str | None:
    if place.in_list or not generic or place.around is None:
        return None
    beside = _beside(place)
    if beside is not None:
        head, slash, _ = beside.partition("/")
        return ("3d" if head == "model" else words.kind_of(head)) if slash else words.kind_of(beside)
    # `video: {url}`, `images: [{url}]`: the name around it tells.
    return next((kind for name in reversed(place.names[-3:-1]) if (kind := words.kind_of(name))), None)


def _link_counts(url: str, place: _Place, beside: str | None) -> bool:
    """Whether a link under a name that forbids nothing is media: some sign must speak for it."""
    if words.leads_to_a_page(url):
        return False
    if words.link_parts(url)[1] in words.EXTENSIONS or marks_link(place.schemas) or beside is not None:
        return True
    return any(words.speaks_of_media(name) for name in place.near)


def _is_certainly_bytes(name: str, beside: str | None, schemas: tuple[Schema, ...]) -> bool:
    own = words.words_of(name)
    if marks_bytes(schemas) or not own.isdisjoint(words.ENCODED):
        return True
    return beside is not None and not own.isdisjoint(words.PAYLOAD)


def _is_likely(place: _Place) -> bool:
    return words.speaks_of_media(place.name) or any(words.kind_of(name) for name in place.near)
