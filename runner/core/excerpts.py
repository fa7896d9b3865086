"""The lines that problems speak of, cut to what a terminal shows, with the place to point at."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from runner.core.bodies import BODY_PREFIX
from runner.core.csvrows import CsvRecords, read_header
from runner.core.errors import Excerpt, Problem
from runner.core.jobspec import ManifestOptions
from runner.core.textlines import TextLines, Unreadable

_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")
_CUT: Final = "…"
#: Characters kept before the place that is pointed at, so that one sees what it belongs to.
_BEFORE: Final = 24


def excerpts_of(
    read: Callable[[], Iterable[bytes]], options: ManifestOptions, problems: Sequence[Problem], width: int
) -> list[Excerpt | None]:
    """For each problem its line, at most `width` characters of it; `None` where there is no such line to show.

    `read` gives the manifest's bytes from their beginning, each time it is called. Reads no further than the last of
    the problems.
    """
    lines = _lines(read(), options, {problem.line for problem in problems if problem.line is not None})
    header = _header(read(), options)
    found: list[Excerpt | None] = []
    for problem in problems:
        line = lines.get(problem.line or 0, "")
        if line.strip():
            start, length = _place(line, problem, header, options)
            found.append(_cut(problem.line or 0, line, start, length, width))
        else:
            found.append(None)
    return found


def _lines(chunks: Iterable[bytes], options: ManifestOptions, wanted: set[int]) -> dict[int, str]:
    lines = TextLines(chunks, options.encoding)
    found: dict[int, str] = {}
    last = max(wanted, default=0)
    try:
        while lines.number < last:
            line = next(lines, None)
            if line is None:
                break
            if lines.number in wanted:
                found[lines.number] = line.rstrip("\r\n")
            lines.faults.clear()
    except Unreadable:
        # What comes before can be shown all the same.
        return found
    return found


def _header(chunks: Iterable[bytes], options: ManifestOptions) -> list[str]:
    if options.format != "csv":
        return []
    try:
        return read_header(CsvRecords(TextLines(chunks, options.encoding), options.delimiter), options.delimiter)
    except Unreadable:
        return []


def _place(line: str, problem: Problem, header: list[str], options: ManifestOptions) -> tuple[int, int]:
    """Where in the line the problem is, in characters, and how many it is about."""
    if problem.byte is not None:
        return _character(line, problem.byte, options), 1
    if problem.field is None:
        return 0, 0
    place = _cell(line, problem.field, header, options) if options.format == "csv" else _value(line, problem.field)
    return place or (0, 0)


def _character(line: str, byte: int, options: ManifestOptions) -> int:
    """The character at a byte, from 1. A line that could not be decoded holds its bytes as surrogates."""
    if _is_escaped(line):
        return len(line.encode("utf-8", "surrogateescape")[: byte - 1].decode("utf-8", "surrogateescape"))
    encoding = options.encoding or "utf-8"
    # Files of two and four bytes a character are read as UTF-8, and their bytes told as of that.
    encoding = "utf-8" if encoding.lower().replace("_", "-").startswith(("utf-16", "utf-32")) else encoding
    return bisect_left(range(len(line)), byte - 1, key=lambda n: len(line[:n].encode(encoding, "ignore")))


def _is_escaped(line: str) -> bool:
    return any("\udc80" <= character <= "\udcff" for character in line)


def _plain(column: str) -> str:
    """`width` for `body.width:int`, `width` and `body.width`."""
    return column.removeprefix(BODY_PREFIX).rpartition(":")[0] or column.removeprefix(BODY_PREFIX)


def _cell(line: str, field: str, header: list[str], options: ManifestOptions) -> tuple[int, int] | None:
    """The cell of a column, quotes and all, where the record has it on its first line."""
    names = header if field in header else [_plain(name) for name in header]
    field = field if field in names else _plain(field)
    if field not in names:
        return None
    begin = 0
    for number in range(len(names)):
        end = _end_of_cell(line, begin, options.delimiter)
        if number == names.index(field):
            return begin, max(end - begin, 1)
        if end >= len(line):
            return None
        begin = end + len(options.delimiter)
    return None


def _end_of_cell(line: str, begin: int, delimiter: str) -> int:
    if line.startswith('"', begin):
        begin += 1
        while True:
            quote = line.find('"', begin)
            if quote < 0:
                return len(line)
            begin = quote + 1
            if not line.startswith('"', begin):
                break
            begin += 1
    end = line.find(delimiter, begin)
    return len(line) if end < 0 else end


def _value(line: str, field: str) -> tuple[int, int] | None:
    """The value of a key, or of the last part of a path, where the line has it once or more; else the key."""
    for key in (field, *re.split(r"[.\[]", field)[:0:-1]):
        for spelt in {json.dumps(key, ensure_ascii=False), json.dumps(key)}:
            found = re.search(re.escape(spelt) + r"\s*:\s*", line)
            if found is not None:
                return found.end(), _length_of_value(line, found.end())
    return None


def _length_of_value(line: str, begin: int) -> int:
    try:
        _, end = json.JSONDecoder().raw_decode(line, begin)
    except (ValueError, RecursionError):
        return 1
    return end - begin


def _cut(number: int, line: str, start: int, length: int, width: int) -> Excerpt:
    """At most `width` characters of the line around the place, each of them safe on a terminal."""
    begin = 0 if len(line) <= width or start + length <= width - 1 else max(0, min(start - _BEFORE, len(line) - width))
    text = _UNPRINTABLE.sub("\ufffd", line[begin : begin + width].replace("\t", " "))
    if begin + width < len(line):
        text = text[: width - 1] + _CUT
    if begin:
        text = _CUT + text[1:]
    at = start - begin
    return Excerpt(number, text, at, max(0, min(length, len(text) - at)))
