"""Bytes become physical lines of text, in flat memory, with every byte accounted for.

No byte is ever replaced: what cannot be decoded is a problem with its line and byte. Line ends are `\\n`,
`\\r\\n` and a lone `\\r`, and stay on the lines, because a quoted CSV cell keeps the ones inside it.
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from runner.core.errors import Problem, UsageError

#: A body may have 10 MiB (contract: 413 above that), so a line may have that and some metadata.
MAX_LINE_BYTES: Final = 16 * 1024 * 1024

# UTF-32's mark begins with UTF-16's, so it is looked for first.
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_PIECE: Final = 256 * 1024
# These read escapes or host names, not files.
_NOT_FOR_FILES: Final = frozenset({"unicode-escape", "raw-unicode-escape", "unicode_escape", "idna", "punycode"})
_LINE: Final = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")


class Unreadable(Exception):
    """Reading cannot go on after this problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


class TextLines(Iterator[str]):
    """The lines of a file that comes as chunks of bytes.

    `number` is the physical line, from 1, of the line given last. `faults` gathers the problems of the lines
    given since the reader emptied it; such lines come with their bad bytes as surrogates, or cut, only so that
    a CSV reader can keep track of quotes, and nothing made of them may be used. `Unreadable` ends the reading.
    `UsageError` names an encoding that does not exist.
    """

    def __init__(self, chunks: Iterable[bytes], encoding: str | None) -> None:
        self._chunks = _whole(chunks)
        self._encoding = _known(encoding)
        self.number = 0
        #: Bytes of the file before the block in hand.
        self._offset = 0
        self.faults: list[Problem] = []
        self._lines = self._read()

    def __next__(self) -> str:
        line = next(self._lines)
        self.number += 1
        if "\0" in line:
            self._note_nul(line)
        return line

    def _note_nul(self, line: str) -> None:
        byte = self.byte(line[: line.index("\0")])
        advice = "save the file as UTF-8 text"
        if self.number == 1:
            # Every other byte of an unmarked UTF-16 text is NUL: one problem, not one a line.
            advice += ", or name its encoding: --encoding utf-16-le"
            raise Unreadable(Problem(1, "a NUL byte: this is not text", byte=byte, advice=advice))
        self.faults.append(Problem(self.number, "a NUL byte, which text cannot hold", byte=byte, advice=advice))

    def byte(self, before: str) -> int:
        """The byte, from 1, of what follows this beginning of a line."""
        return len(before.encode(self._encoding, "ignore")) + 1

    def _read(self) -> Iterator[str]:
        for block, dropped in _line_blocks(self._decodable()):
            if dropped:
                self._offset += dropped
                self.faults.append(Problem(self.number + 1, f"the line is longer than {MAX_LINE_BYTES // 2**20} MiB"))
                yield "\n"
                continue
            try:
                text = block.decode(self._encoding)
            except UnicodeDecodeError:
                yield from self._read_by_line(block)
            else:
                yield from io.StringIO(text, newline="")
            self._offset += len(block)

    def _read_by_line(self, block: bytes) -> Iterator[str]:
        for match in _LINE.finditer(block):
            try:
                yield match[0].decode(self._encoding)
            except UnicodeDecodeError as fault:
                self.faults.append(self._undecodable(fault, self._offset + match.start()))
                yield match[0].decode("utf-8", "surrogateescape")

    def _undecodable(self, fault: UnicodeDecodeError, offset: int) -> Problem:
        """The problem of a line that begins `offset` bytes into the file."""
        byte = fault.object[fault.start]
        message = f"0x{byte:02x} (byte {offset + fault.start} of the file, from 0) is not {self._encoding}"
        advice = "save the file as UTF-8"
        if self._encoding == "utf-8":
            advice = "if it comes from Windows or an older Excel, add --encoding cp1252"
        return Problem(self.number + 1, message, byte=fault.start + 1, advice=advice)

    def _decodable(self) -> Iterator[bytes]:
        """The bytes without their mark, in an encoding whose ASCII bytes are ASCII characters."""
        start = next(self._chunks, b"")
        mark, marked = next(((m, name) for m, name in _MARKS if start.startswith(m)), (b"", "utf-8"))
        encoding = self._encoding or marked
        if mark and not encoding.startswith(marked):
            raise Unreadable(
                Problem(
                    1,
                    f"the file begins with the mark of {marked}, which is not {encoding}",
                    advice="leave out --encoding",
                )
            )
        self._encoding = encoding
        if _is_ascii_superset(encoding):
            self._offset = len(mark)
            yield start[len(mark) :]
            yield from self._chunks
        else:
            self._encoding = "utf-8"
            # An encoding that names its byte order takes the mark for a character.
            names_order = encoding not in ("utf-16", "utf-32")
            yield from _transcoded(start[len(mark) :] if names_order else start, self._chunks, encoding)


def _known(encoding: str | None) -> str:
    """The encoding's own name, `""` for none; `UsageError` for one that Python does not know as a text encoding."""
    if encoding is None:
        return ""
    try:
        "a".encode(encoding)  # fails for a codec of bytes, like base64
        name = codecs.lookup(encoding).name
        if name in _NOT_FOR_FILES:
            raise LookupError(name)
    except (LookupError, ValueError):
        raise UsageError(f"{encoding!r} is no text encoding", advice="try --encoding utf-8, cp1252 or utf-16") from None
    return "utf-8" if name == "utf-8-sig" else name


def _is_ascii_superset(encoding: str) -> bool:
    every = bytes(range(128))
    return every.decode(encoding, "ignore") == every.decode("ascii")


def _whole(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of bounded size, the first long enough to show a mark."""
    start = b""
    rest = iter(chunks)
    for chunk in rest:
        start += chunk
        if len(start) >= 4:
            break
    for chunk in chain([start], rest):
        for begin in range(0, len(chunk), _PIECE):
            yield chunk[begin : begin + _PIECE]


def _transcoded(start: bytes, chunks: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)("strict")
    line = 1
    chunk, last = start, False
    while True:
        try:
            text = decoder.decode(chunk, last)
            block = text.encode()
        except (UnicodeError, ValueError) as fault:
            problem = Problem(line, f"on this line or below: not {encoding}: {fault}", advice="check --encoding")
            raise Unreadable(problem) from None
        line += text.count("\n")
        yield block
        if last:
            return
        following = next(chunks, None)
        chunk, last = (b"", True) if following is None else (following, False)


def _line_blocks(chunks: Iterable[bytes]) -> Iterator[tuple[bytes, int]]:
    """Blocks of whole lines; a number beside one stands for a line too long, of which so many bytes are dropped."""
    waiting: list[bytes] = []
    size = 0
    dropped = 0
    for chunk in chunks:
        # A `\r` at the very end may be half of `\r\n`: it waits.
        end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r", 0, max(len(chunk) - 1, 0))) + 1
        if end or size + len(chunk) <= MAX_LINE_BYTES:
            if end:
                head = b"".join([*waiting, chunk[:end]])
                yield from _after_drop(head, dropped) if dropped else ((head, 0),)
                waiting, size, dropped = [], 0, 0
            waiting.append(chunk[end:])
            size += len(chunk) - end
        else:
            dropped += size + len(chunk)
            waiting, size = [], 0
    rest = b"".join(waiting)
    if dropped:
        yield b"", dropped + len(rest)
    elif rest:
        yield rest, 0


def _after_drop(head: bytes, dropped: int) -> Iterator[tuple[bytes, int]]:
    """The end of a dropped line, and the whole lines that follow it in the same block."""
    match = _LINE.match(head)
    end = match.end() if match else 0
    yield b"", dropped + end
    if end < len(head):
        yield head[end:], 0
