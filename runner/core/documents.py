"""The Router's own JSON documents, read field by field; anything may stand in them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

#: Longest detail that is kept, in characters: enough to understand a refusal, too little to hold a prompt.
DETAIL_LIMIT = 2000
#: What no database takes as text: NUL, and halves of surrogate pairs, which JSON can spell.
_UNWRITABLE = re.compile("[\x00\ud800-\udfff]")


def is_json(body: bytes) -> bool:
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return True


def json_object(body: bytes) -> Mapping[str, object] | None:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def text_of(document: Mapping[str, object] | None, name: str) -> str | None:
    value = document.get(name) if document else None
    return _writable(value) if isinstance(value, str) and value.strip() else None


def _writable(text: str) -> str:
    return _UNWRITABLE.sub("\ufffd", text)


def integer_of(document: Mapping[str, object] | None, name: str) -> int | None:
    value = document.get(name) if document else None
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value < 2**31 else None


def detail_of(document: Mapping[str, object] | None) -> str | None:
    """The error's own words: a sentence, or the entries of `detail[]` without the echo of the input."""
    detail = document.get("detail") if document else None
    if isinstance(detail, list):
        entries = [
            {name: entry[name] for name in ("loc", "msg", "type", "ctx") if name in entry}
            for entry in detail
            if isinstance(entry, dict)
        ]
        return _entries(entries) if entries else None
    return _writable(detail[:DETAIL_LIMIT]) if isinstance(detail, str) and detail else None


def _entries(entries: list[dict[str, object]]) -> str:
    """As many whole entries as there is room for, at least a part of the first."""
    told = [_writable(json.dumps(entry, ensure_ascii=False)) for entry in entries]
    while len(told) > 1 and sum(len(text) + 2 for text in told) > DETAIL_LIMIT:
        told.pop()
    if len(told[0]) > DETAIL_LIMIT:
        words = {"loc": [], "msg": str(entries[0].get("msg", ""))[: DETAIL_LIMIT // 2], "type": "too_long"}
        return json.dumps([words], ensure_ascii=True)
    return f"[{', '.join(told)}]"
