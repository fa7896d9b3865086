"""Lines become CSV records (RFC 4180, any delimiter), strictly, each with the physical line it begins on.

The reader is ours because the standard one names the last line of a record only, keeps its limit on the length
of a cell for the whole process, and takes quotes that are never closed for text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from runner.core.errors import Problem
from runner.core.jsontext import clip
from runner.core.textlines import MAX_LINE_BYTES, TextLines, Unreadable

_OTHER_DELIMITERS: Final = (";", "\t", "|", ",")
_EXCEL_HINT: Final = re.compile(r'"?sep=([^\r\n"])"?[\r\n]*', re.IGNORECASE)


class CsvRecords:
    """The records of a CSV file.

    `line` is where the record given last begins. Iterating gives a record as its cells, or the problem that
    makes it unreadable; `Unreadable` ends the reading, as a quote that is never closed does.
    """

    def __init__(self, lines: TextLines, delimiter: str) -> None:
        self._lines = lines
        self._delimiter = delimiter
        self.line = 0

    def __iter__(self) -> Iterator[list[str] | Problem]:
        lines, delimiter = self._lines, self._delimiter
        for line in lines:
            self.line = lines.number
            cells = self._quoted(line) if '"' in line else line.rstrip("\r\n").split(delimiter)
            if lines.faults:
                yield from lines.faults
                lines.faults.clear()
            else:
                yield cells

    def _quoted(self, line: str) -> list[str] | Problem:
        """The cells of a record that has quotes; reads on while a quoted cell does."""
        delimiter, cells, begin = self._delimiter, list[str](), 0
        while True:
            if line.startswith('"', begin):
                opened = self._lines.number
                cell, line, begin = self._quoted_cell(line, begin + 1)
                cells.append(cell)
                if line[begin : begin + 2].rstrip("\r\n") == "":
                    return cells
                if not line.startswith(delimiter, begin):
                    return self._stray(line, begin, opened, len(cells))
                begin += len(delimiter)
                continue
            end = line.find(delimiter, begin)
            if end < 0:
                cells.append(line[begin:].rstrip("\r\n"))
                return cells
            cells.append(line[begin:end])
            begin = end + len(delimiter)

    def _quoted_cell(self, line: str, begin: int) -> tuple[str, str, int]:
        """The cell whose text begins at `begin`; the line it ends on, and the place after its quote."""
        opened, parts, size = self._lines.number, list[str](), 0
        while True:
            end = line.find('"', begin)
            if end < 0:
                parts.append(line[begin:])
                size += len(line) - begin
                line, begin = self._next_within_quotes(opened, size), 0
            elif line.startswith('"', end + 1):
                parts.append(line[begin : end + 1])
                begin = end + 2
            else:
                parts.append(line[begin:end])
                return "".join(parts), line, end + 1

    def _next_within_quotes(self, opened: int, size: int) -> str:
        advice = 'close it, or write a quote inside a quoted cell twice: ""'
        if size > MAX_LINE_BYTES:
            limit = f"{MAX_LINE_BYTES // 2**20} MiB"
            raise Unreadable(Problem(opened, f"the quote opened here is not closed within {limit}", advice=advice))
        line = next(self._lines, None)
        if line is None:
            raise Unreadable(Problem(opened, "the quote opened here is never closed", advice=advice))
        return line

    def _stray(self, line: str, begin: int, opened: int, column: int) -> Problem:
        here = self._lines.number
        where = "" if opened == here else f", opened on line {opened},"
        return Problem(
            here,
            f"after the closing quote of cell {column}{where} stands {line[begin]!r}",
            byte=self._lines.byte(line[:begin]),
            advice='write a quote inside a quoted cell twice: ""',
        )


def read_header(records: CsvRecords, delimiter: str) -> list[str]:
    """The names of the columns, without the white space around them; the records then go on after the header.

    `Unreadable` when the file cannot be read with this delimiter or a column cannot be told from another.
    """
    for cells in records:
        if isinstance(cells, Problem):
            raise Unreadable(cells)
        if records.line == 1 and (hint := _EXCEL_HINT.fullmatch(delimiter.join(cells))):
            _check_hint(hint[1], delimiter)
            continue
        names = [name.strip() for name in cells]
        if any(names):
            _check_delimiter(names, records.line)
            _check_names(names, records.line)
            return names
    raise Unreadable(Problem(None, "the file is empty", advice="its first line must name the columns"))


def _check_hint(hinted: str, delimiter: str) -> None:
    if hinted != delimiter:
        raise Unreadable(
            Problem(
                1,
                f"Excel's hint `sep={_shown(hinted)}` says that the delimiter is not {_shown(delimiter)!r}",
                advice=f"add --delimiter {_quoted(hinted)}",
            )
        )


def _check_delimiter(names: list[str], line: int) -> None:
    if len(names) != 1:
        return
    for other in _OTHER_DELIMITERS:
        if other in names[0]:
            raise Unreadable(
                Problem(
                    line,
                    f"the only column is `{clip(_shown(names[0]))}`",
                    advice=f"try --delimiter {_quoted(other)}",
                )
            )


def _check_names(names: list[str], line: int) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1 and name]
    if twice:
        listed = ", ".join(f"`{clip(name)}`" for name in twice)
        raise Unreadable(Problem(line, f"columns named more than once: {listed}", advice="rename them"))
    if "" in names:
        number = names.index("") + 1
        raise Unreadable(Problem(line, f"column {number} has no name", advice="name it or take it out"))


def _shown(text: str) -> str:
    return text.replace("\t", "\\t")


def _quoted(delimiter: str) -> str:
    return f"'{_shown(delimiter)}'"
