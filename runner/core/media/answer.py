"""A result without media: why, or whether it is a text model's answer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from runner.core.filetypes import essence
from runner.core.media import words
from runner.core.media.pointer import load
from runner.core.media.walk import DEEPEST
from runner.core.types import Document

LONGEST_REASON = 200

#: Names that give a reason, squeezed to small letters ─▶ how much they say; the least number is shown.
_TELLING = {
    word: rank
    for rank, told in enumerate(
        (
            "blockreasonmessage blockreason raimediafilteredreasons raimediafilteredreason raifilteredreason "
            "filteredreason filterreason moderationreason refusal",
            "failure failurereason failreason failuremessage failmsg errormessage errormsg errmsg error taskstatusmsg "
            "statusmsg taskerror statusmessage",
            "finishmessage finishreason",
            "message msg reason detail details warning",
            "status state taskstatus",
            "errorcode failurecode code",
        )
    )
    for word in told.split()
}
#: The last of those ranks whose values are sentences; inside an error they are the error's own.
_IN_WORDS = 3
#: Flags that explain an absence: name ─▶ the value that does.
_FLAGS = {
    "contentviolation": True,
    "hasnsfwconcepts": True,
    "hasnsfwcontents": True,
    "nsfwcontentdetected": True,
    "nsfw": True,
    "filtered": True,
    "isimagesafe": False,
    "respectmoderation": False,
}
_FINE = words.vocabulary(
    "success succeed succeeded successful ok okay completed complete done ready finished processed stop end_turn "
    "max_tokens length none null normal finish_reason_unspecified"
)
_ANSWERS = frozenset({"text", "content", "output_text", "transcript", "completion", "answer", "generated_text"})
_QUERY = re.compile(r"(\w+://[^\s?#]+)[?#]\S*")


def why_empty(document: Document) -> str | None:
    """The reason a result without media gives for itself, such as `blockReason: SAFETY`.

    At most 200 characters on one line, without a prompt that the output repeats or the query of a link;
    `None` where the output gives none.
    """
    if essence(document.content_type) in ("text/html", "application/xhtml+xml"):
        return "the answer is a web page"
    try:
        output = load(document)
    except ValueError:
        return None
    best: tuple[int, str] | None = None
    prompts: list[str] = []
    for name, value, in_error in _leaves(output):
        if "prompt" in words.words_of(name):
            if isinstance(value, str) and len(value) > 12:
                prompts.append(value)
            continue
        told = _tells(name, value, in_error)
        if told is not None and (best is None or told[0] < best[0]):
            best = told
    return _one_line(best[1], prompts) if best else None


def is_text_answer(document: Document) -> bool:
    """Whether the output reads as a text model's answer: words under the names that answers stand under."""
    declared = essence(document.content_type)
    try:
        output = load(document)
    except ValueError:
        return declared.startswith("text/") and declared != "text/html" and bool(document.body.strip())
    return any(name in _ANSWERS and isinstance(value, str) and value.strip() for name, value, _ in _leaves(output))


def _leaves(output: object) -> Iterator[tuple[str, object, bool]]:
    """Name, value, and whether an error is around it, of every scalar that is not the caller's own."""
    waiting: list[tuple[str, object, bool, int]] = [("", output, False, 0)]
    while waiting:
        name, node, in_error, depth = waiting.pop()
        if depth > DEEPEST:
            continue
        if isinstance(node, Mapping):
            error = in_error or "error" in words.words_of(name)
            waiting += [
                (key, child, error, depth + 1)
                for key, child in reversed(list(node.items()))
                if not _is_callers(key, child)
            ]
        elif isinstance(node, list):
            waiting += [(name, child, in_error, depth + 1) for child in reversed(node)]
        else:
            yield name, node, in_error


def _is_callers(name: str, child: object) -> bool:
    own = words.words_of(name)
    # `promptFeedback` is about the prompt, and says why it was blocked.
    return isinstance(child, (Mapping, list)) and words.is_echo(name) and own.isdisjoint({"error", "feedback"})


def _tells(name: str, value: object, in_error: bool) -> tuple[int, str] | None:
    squeezed = re.sub(r"[^a-z]", "", name[:100].lower())
    if isinstance(value, bool):
        return (2, f"{name}: {str(value).lower()}") if _FLAGS.get(squeezed) is value else None
    rank = _TELLING.get(squeezed)
    if rank is None or not isinstance(value, str):
        return None
    text = value.strip()
    if not text or text.lower() in _FINE or text.isdigit():
        return None
    return (1 if in_error and rank <= _IN_WORDS else rank), f"{name}: {text}"


def _one_line(text: str, prompts: list[str]) -> str:
    for prompt in prompts:
        text = text.replace(prompt, "...")
    line = " ".join(_QUERY.sub(r"\1", text).split())
    line = "".join(c for c in line if c.isprintable())
    return line if len(line) <= LONGEST_REASON else f"{line[: LONGEST_REASON - 3]}..."
