"""Which of an output's media were asked for, and which are previews, sidecars and extra renditions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from runner.core.media import words
from runner.core.media.walk import Found

#: Where one object holds several kinds, the later are made for, or taken from, the first.
_ORDER = (words.VIDEO, words.AUDIO, words.IMAGE)


def secondary(found: Sequence[Found], model: str) -> set[str]:
    """The pointers of the media that are not the thing asked for.

    `model` is the model's id: what a model is named for (`.../depth-map`, `.../text-to-audio`) is what was
    asked of it. Previews and sidecars are secondary always; the rest only beside something better.
    """
    named = model.rpartition("/")[2]
    asked = words.words_of(named)
    behind = {item.pointer for item in found if _is_preview(item) or _is_sidecar(item)}
    shapes = any(item.kind == words.SHAPE and item.pointer not in behind for item in found)
    if shapes:
        behind |= {i.pointer for i in found if i.kind in _ORDER and not _is_texture(i)}
    behind |= _lesser_kinds([i for i in found if i.pointer not in behind], words.kind_of(named))
    behind |= _copies([i for i in found if i.pointer not in behind])
    rest = [i for i in found if i.pointer not in behind]
    extras = {i.pointer for i in rest if _is_extra(i, asked)}
    # Alone, an extra is all there is, and so the result.
    return behind | extras if len(extras) < len(rest) else behind


def _own_words(item: Found) -> frozenset[str]:
    """The words of its name; where that says nothing of itself, with those of the name around it."""
    own = words.words_of(item.name)
    return own if words.names_a_thing(item.name) else own | _words_around(item)


def _words_around(item: Found) -> frozenset[str]:
    return words.words_of(item.names[-2]) if len(item.names) > 1 else frozenset()


def _is_texture(item: Found) -> bool:
    near = frozenset().union(item.file_words, *(words.words_of(name) for name in item.names[-2:]))
    return not near.isdisjoint(words.TEXTURES) or near >= {"base", "color"}


def _is_preview(item: Found) -> bool:
    """A thumbnail, cover or last frame. A voice's `previews` are the voices themselves."""
    if item.kind == words.AUDIO:
        return False
    own = _own_words(item)
    return not own.isdisjoint(words.PREVIEWS) or own >= {"last", "frame"}


def _is_sidecar(item: Found) -> bool:
    own = words.words_of(item.name)
    return item.kind == words.SIDECAR or (not own.isdisjoint(words.SIDECARS) and item.kind is None)


def _siblings(found: Sequence[Found]) -> list[list[Found]]:
    """Media that stand together: members of one object, file objects counted by the object that holds them."""
    alone = Counter(item.owner for item in found)
    together: dict[str, list[Found]] = {}
    for item in found:
        lifted = item.holder if item.holder is not None and alone[item.owner] == 1 else item.owner
        together.setdefault(lifted, []).append(item)
    return list(together.values())


def _lesser_kinds(found: Sequence[Found], asked: str | None) -> set[str]:
    """Sound taken from a clip, a still of it, the cover of a song: lesser kinds beside a greater in one object."""
    order = sorted(_ORDER, key=lambda kind: kind != asked)
    lesser: set[str] = set()
    for siblings in _siblings(found):
        here = [i for i in siblings if i.kind in _ORDER and not _is_texture(i)]
        present = [kind for kind in order if any(i.kind == kind for i in here)]
        lesser |= {i.pointer for i in here if i.kind != present[0]}
    return lesser


def _copies(found: Sequence[Found]) -> set[str]:
    """Watermarked, compressed and backup copies, where the same object holds the thing itself."""
    copies: set[str] = set()
    for here in _siblings(found):
        marked = {i.pointer for i in here if not _own_words(i).isdisjoint(words.COPIES)}
        copies |= marked if len(marked) < len(here) else set()
    return copies


def _is_extra(item: Found, asked: frozenset[str]) -> bool:
    if item.thought:
        return True
    extra = (_own_words(item) & words.EXTRAS) | (_words_around(item) & words.EXTRA_GROUPS)
    if item.kind in _ORDER:
        extra |= item.file_words & {"thumbnail", "preview"}
    # Models are called "preview" before they are released, not because they make previews.
    return bool(extra) and extra.isdisjoint(asked - {"preview"})
