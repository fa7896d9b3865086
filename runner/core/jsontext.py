"""JSON whose numbers stay as they were written.

A seed of nineteen digits, `1.10` and `1e5` must reach the Router digit for digit, so a number is kept as its
text (`Number`) from the manifest to the body and never becomes a float. What other readers would take
differently is refused: keys given twice, `NaN` and infinities, numbers beyond a double, lone surrogates.
"""

from __future__ import annotations

import json
import math
from typing import Final, TypeAlias

#: Deeper nesting is refused: every reader of the body has a limit, and none needs this much.
MAX_DEPTH: Final = 100


class Number(str):
    """A JSON number as its text, `1e5` or `9007199254740993`."""

    __slots__ = ()


JSON: TypeAlias = "bool | int | float | str | Number | list[JSON] | dict[str, JSON] | None"


class JsonFault(ValueError):
    """Text that is no JSON the Router could read one way only.

    `position` counts characters from 0 and is `None` where the fault is of the value, not of a place;
    `lineno` and `colno` count from 1.
    """

    def __init__(self, message: str, *, position: int | None = None, lineno: int = 1, colno: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.position = position
        self.lineno = lineno
        self.colno = colno


def _object(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise JsonFault(f"the key {key!r} stands twice in one object")
            seen.add(key)
    return result


def _number(text: str) -> Number:
    # Whole numbers too: beyond a double they are infinity for some readers and more digits than others take.
    if math.isinf(float(text)):
        raise JsonFault(f"{clip(text)} is beyond what a number can hold (infinity for most readers)")
    return Number(text)


def _constant(name: str) -> JSON:
    raise JsonFault(f"{name} is not a number in JSON")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_number, parse_int=_number, parse_constant=_constant
)

#: A text as a JSON string, in quotes, everything beyond ASCII as it is.
quote: Final = json.JSONEncoder(ensure_ascii=False).encode


def clip(text: str, width: int = 40) -> str:
    """The text for a message: in one line and not longer than `width` characters or so."""
    shown = text if len(text) <= width else text[:width] + "..."
    return shown if shown.isprintable() else ascii(shown)[1:-1]


def parse(text: str) -> JSON:
    """The value that the text holds, its numbers as `Number`; `JsonFault` when there is not exactly one."""
    try:
        value: JSON = _DECODER.decode(text)
    except json.JSONDecodeError as fault:
        raise JsonFault(fault.msg, position=fault.pos, lineno=fault.lineno, colno=fault.colno) from None
    except RecursionError:
        raise JsonFault("nested too deeply") from None
    if "\\u" in text:
        # Only an escape can bring half a surrogate pair; it has no UTF-8 form and cannot be sent.
        encode(value)
    return value


def dump(value: JSON, depth: int = 0) -> str:
    """Compact JSON text, numbers as they were written; `JsonFault` for what JSON cannot say."""
    if isinstance(value, str):
        return value if type(value) is Number else quote(value)
    if isinstance(value, dict | list):
        if depth == MAX_DEPTH:
            raise JsonFault("nested too deeply")
        if isinstance(value, list):
            return "[" + ",".join([dump(item, depth + 1) for item in value]) + "]"
        return "{" + ",".join([f"{quote(key)}:{dump(item, depth + 1)}" for key, item in value.items()]) + "}"
    if isinstance(value, float) and not math.isfinite(value):
        raise JsonFault(f"{value} is not a number in JSON")
    return json.dumps(value)


def encode(value: JSON) -> bytes:
    """`dump` in UTF-8; `JsonFault` also for half a surrogate pair, which has no UTF-8 form."""
    try:
        return dump(value).encode()
    except UnicodeEncodeError as fault:
        half = fault.object[fault.start]
        raise JsonFault(f"\\u{ord(half):04x} is half a character (a lone surrogate)") from None
