"""Reading a native output: as JSON, and at a pointer."""

from __future__ import annotations

import json

from runner.core.filetypes import essence, sniff
from runner.core.types import Document


def escape(name: str) -> str:
    """One reference token of a JSON Pointer (RFC 6901, section 3)."""
    return name.replace("~", "~0").replace("/", "~1")


def is_json(document: Document) -> bool:
    """Whether the body is to be read as JSON, by its `Content-Type` or, where that says nothing, its start."""
    declared = essence(document.content_type)
    if declared in ("application/json", "text/json") or (
        declared.endswith("+json") and not declared.startswith("model/")
    ):
        return True
    if declared not in ("", "text/plain", "application/octet-stream", "binary/octet-stream"):
        return False
    return document.body[:64].lstrip()[:1] in (b"{", b"[") and sniff(document.body[:4096]) is None


def load(document: Document) -> object:
    """The parsed output. Raises ValueError when it is no JSON, or nested past what can be read."""
    if not is_json(document):
        raise ValueError("the output is not JSON")
    try:
        parsed: object = json.loads(document.body)
    except RecursionError:
        raise ValueError("the output is nested too deeply") from None
    return parsed


def read_pointer(document: Document, pointer: str) -> object:
    """The value at a JSON Pointer (RFC 6901) of the output; a body of bytes has one value, at the empty pointer.

    Raises ValueError when the output is not JSON or the pointer is malformed, LookupError when nothing stands there.
    """
    if not pointer and not is_json(document):
        return document.body
    if pointer and not pointer.startswith("/"):
        raise ValueError("a JSON Pointer begins with a slash")
    node = load(document)
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and name in node:
            node = node[name]
        elif isinstance(node, list) and _is_index(name) and int(name) < len(node):
            node = node[int(name)]
        else:
            raise LookupError(f"nothing stands at {pointer}")
    return node


def _is_index(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) < 12 and (name == "0" or name[0] != "0")
