"""A local file becomes part of a body: base64 (RFC 4648) or a data URI (RFC 2397)."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Final, TypeAlias

from runner.core.cells import CellFault
from runner.core.filetypes import HEAD_BYTES, sniff
from runner.core.jsontext import clip

#: The types of placeholders and headers that stand for a file: `{{picture:base64}}`, `body.image:data-uri`.
FILE_TYPES: Final = {"base64": "base64", "data-uri": "data-uri"}
#: Gives the text that stands for the file of this name in one of `FILE_TYPES`; raises `CellFault`.
EmbedFile: TypeAlias = Callable[[str, str], str]
#: Base64 makes four bytes of three, and a body has 10 MiB at most (contract: `413`).
MAX_FILE_BYTES: Final = 10 * 1024 * 1024 // 4 * 3
#: What models take. A text file is not among them: what a manifest names by mistake stays on this machine.
_KINDS: Final = ("image/", "audio/", "video/", "model/", "application/pdf")


def embed(content: bytes, name: str, form: str) -> str:
    """The file's content as text in the form wanted. Raises `CellFault` for what is no media or can never fit."""
    check_size(len(content), name)
    found = sniff(content[:HEAD_BYTES])
    if found is None or not found.media_type.startswith(_KINDS):
        raise CellFault(f"{clip(name)!r} is no picture, sound, film, model or PDF by its bytes")
    text = base64.b64encode(content).decode("ascii")
    return f"data:{found.media_type};base64,{text}" if form == "data-uri" else text


def check_size(size: int, name: str) -> None:
    """Raises `CellFault` for a file that is empty, or too large for any body."""
    if not size:
        raise CellFault(f"{clip(name)!r} is empty")
    if size > MAX_FILE_BYTES:
        raise CellFault(
            f"{clip(name)!r} has {size:,} bytes; in a body of 10 MiB there is room for {MAX_FILE_BYTES:,}",
            "make it smaller, or give the model a link to it",
        )


def no_files(name: str, form: str) -> str:
    """Where there are no files."""
    raise CellFault(f"{clip(name)!r} cannot be read here as {form}")
