"""Names for media files, safe on every file system people keep them on."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from dataclasses import dataclass

#: Bytes of a whole name; file systems allow 255, and users add their own prefixes and copies.
LONGEST = 120
_LONGEST_EXTENSION = 8
_LONGEST_BATCH = 40
#: Device names of Windows, which stay devices whatever follows the first dot.
_RESERVED = re.compile(r"(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9\u00b9\u00b2\u00b3])(?=\.|\Z)", re.I)
#: Joins the hash to a name that had to change. Never kept from an id, so that no id can pose as another's.
_MARK = "~"


def asset_name(batch: str, row: int, custom_id: str, index: int, extension: str) -> str:
    """The file name of one media file, such as `prompts-000001-fox-1.png`.

    `row` and `index` count from 1. `custom_id` is left out when it is the default, `row-N`. An empty
    `extension` gives the stem alone, which is the same for every extension. Names of one batch differ
    whenever row, id or index do, and stay different where case is ignored as long as the row or index
    differs (a row has one id). At most 120 bytes of UTF-8 in NFC; the same arguments give the same name.
    """
    tail = f"-{index}"
    head = f"{_part(batch, _LONGEST_BATCH) or 'batch'}-{row:06d}"
    room = LONGEST - 1 - _LONGEST_EXTENSION - len(f"{head}{tail}".encode())
    middle = ""
    if custom_id != f"row-{row}":
        middle = f"-{_part(custom_id, room - 1) or _MARK + _digest(custom_id)}"
    stem = f"{head}{middle}{tail}"
    if _RESERVED.match(stem):
        stem = f"_{stem}"
    suffix = re.sub(r"[^a-z0-9]", "", extension.lower())[:_LONGEST_EXTENSION]
    return f"{stem}.{suffix}" if suffix else stem


#: What a template of names may hold in braces.
NAME_FIELDS = ("batch", "row", "custom_id", "model", "index", "ext")
_FIELD = re.compile(r"\{([^{}]*)\}")
_LONGEST_VALUE = 80
#: Folders below the output folder; with names of 120 bytes their path stays well below the 4,096 of most systems.
_MOST_FOLDERS = 16


class NameFault(ValueError):
    """A template of names that cannot be meant; its text says why."""


@dataclass(frozen=True, slots=True)
class NameTemplate:
    """How media files are named below the output folder, such as `{batch}/{custom_id}-{index}.{ext}`."""

    text: str

    @classmethod
    def parse(cls, text: str) -> NameTemplate:
        """The template, checked. Raises `NameFault` for one whose files could meet, or lie elsewhere."""
        fields = _FIELD.findall(text)
        for field in fields:
            if field not in NAME_FIELDS:
                raise NameFault(f"{{{field}}} is nothing; there are {', '.join(f'{{{name}}}' for name in NAME_FIELDS)}")
        if not text.endswith(".{ext}") or fields.count("ext") != 1:
            raise NameFault("it must end with .{ext}, which comes from the file's bytes")
        if "index" not in fields or not {"row", "custom_id"} & set(fields):
            raise NameFault("it must hold {index}, and {row} or {custom_id}, or files of one name would meet")
        parts = text.split("/")
        if len(parts) > _MOST_FOLDERS + 1:
            raise NameFault(f"it has {len(parts) - 1} folders, and {_MOST_FOLDERS} are the most")
        for part in parts:
            rest = _FIELD.sub("", part)
            if not part or part.startswith((".", "-")) or not all(_is_safe(c) for c in rest):
                raise NameFault(
                    "its folders and names hold letters, digits, - _ . and fields, do not begin with - or ., and are "
                    "parted by /"
                )
        return cls(text)

    def stem(self, batch: str, row: int, custom_id: str, model: str, index: int) -> str:
        """Folders and name without the extension, parted by `/`; each of them as safe and short as `asset_name`'s.

        Arguments are those of `asset_name`, and `model` is the model's id, whose slash becomes a low line.
        """
        values = {
            "batch": _part(batch, _LONGEST_VALUE) or "batch",
            "row": f"{row:06d}",
            "custom_id": _part(custom_id, _LONGEST_VALUE) or _MARK + _digest(custom_id),
            "model": model.replace("/", "_"),
            "index": str(index),
        }
        named = _FIELD.sub(lambda match: values[match[1]], self.text.removesuffix(".{ext}"))
        parts = (_part(part, LONGEST - 16 - _LONGEST_EXTENSION, kept=_MARK) for part in named.split("/"))
        return "/".join(_plain(part) for part in parts)


def _plain(part: str) -> str:
    """A folder or name that no file system takes for something else."""
    if part.endswith("."):
        part = f"{part.rstrip('.')}{_MARK}{_digest(part)}"
    return f"_{part}" if _RESERVED.match(part) else part


def _part(text: str, room: int, kept: str = "") -> str:
    """`text` with every unsafe character but those `kept` replaced, and a hash of it at the end where anything was
    lost."""
    plain = unicodedata.normalize("NFC", text)
    safe = "".join(c if c in kept or _is_safe(c) else "_" for c in plain)
    safe = re.sub(r"_{2,}", "_", safe) if safe != plain else safe
    safe = safe.lstrip(".-") if safe[:1] in (".", "-") else safe
    if safe == text and len(safe.encode()) <= room:
        return safe
    mark = _MARK + _digest(text)
    while len(safe.encode()) > room - len(mark):
        safe = safe[:-1]
    return f"{safe}{mark}"


def _is_safe(character: str) -> bool:
    # Letters, marks and digits of every script; no symbols, spaces, controls, surrogates or unassigned.
    return character in "-_." or unicodedata.category(character)[0] in "LMN"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:10]
