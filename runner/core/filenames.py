"""Names for media files, safe on every file system people keep them on."""

from __future__ import annotations

import hashlib
import re
import unicodedata

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


def _part(text: str, room: int) -> str:
    """`text` with every unsafe character replaced, and a hash of it at the end where anything was lost."""
    plain = unicodedata.normalize("NFC", text)
    safe = "".join(c if _is_safe(c) else "_" for c in plain)
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
