"""A model's native output ─▶ what to fetch or decode.

There is no common envelope: each model returns its own document. Media are found by the model's output schema
where it marks them, and by the document's shape where it does not (`walk`); the names of fields carry most of what
is known (`words`).
"""

from __future__ import annotations

from collections.abc import Mapping

from runner.core.filetypes import essence, sniff
from runner.core.media.answer import is_text_answer, why_empty
from runner.core.media.inline import decode_inline
from runner.core.media.pointer import is_json, load, read_pointer
from runner.core.media.rank import secondary
from runner.core.media.schema import OutputSchema
from runner.core.media.walk import Walk, strings_of
from runner.core.types import Document, MediaSource

__all__ = ["decode_inline", "find_media", "is_text_answer", "read_pointer", "why_empty"]


def find_media(
    document: Document,
    *,
    output_schema: Mapping[str, object] | None = None,
    model: str = "",
    inputs: bytes = b"",
) -> tuple[MediaSource, ...]:
    """All media that an output holds, in document order.

    `output_schema` is the model's (a JSON Schema, or the OpenAPI document around it); `model` its id; `inputs` the
    exact body of the request, whose own links and strings are echoes wherever the output repeats them. A source without
    a `url` stands in the output: `read_pointer` and `decode_inline` give its bytes; at the empty pointer the body is
    the file. `gs://` and `s3://` names are listed though they cannot be fetched. Never raises on any body.
    """
    if not is_json(document):
        return _whole_body(document)
    try:
        output = load(document)
    except ValueError:
        return ()
    found = list(Walk(OutputSchema(output_schema), strings_of(inputs)).over(output))
    behind = secondary(found, model)
    return tuple(
        MediaSource(
            pointer=item.pointer,
            url=item.url,
            secondary=item.pointer in behind,
            declared_type=item.declared_type,
        )
        for item in found
    )


def _whole_body(document: Document) -> tuple[MediaSource, ...]:
    """The body as one file, unless it is nothing, words or a page."""
    declared = essence(document.content_type)
    if not document.body or declared.startswith(("text/", "multipart/", "message/")):
        return ()
    if declared in ("application/xml", "application/xhtml+xml", "application/x-ndjson", "application/jsonl"):
        return ()
    told = sniff(document.body)
    if told is not None and told.media_type in ("text/html", "application/xml"):
        return ()
    if not declared and told is None:
        return ()
    return (MediaSource(pointer="", url=None, declared_type=declared or None),)
