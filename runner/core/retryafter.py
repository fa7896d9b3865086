"""`Retry-After`, as servers write it and as they should."""

from __future__ import annotations

import math
import re
from datetime import UTC
from email.utils import parsedate_to_datetime

#: Shorter waits than this are not worth a call (contract: whole seconds, at least 1).
FLOOR = 1.0
#: Longer waits than this outlive every key and every result, so nothing is won by waiting them out.
CEILING = 24 * 3600.0

_NUMBER = re.compile(r"[+-]?\d{1,32}(\.\d{1,32})?\Z", re.ASCII)


def parse_retry_after(value: str | None, now: float) -> float | None:
    """Seconds to wait, from `FLOOR` to `CEILING`, or `None` where `value` names no wait that can be used.

    Whole seconds are the contract's form; a fraction is rounded up, an HTTP date (RFC 9110, 10.2.3) is taken from
    `now`, zero and the past are the floor. Anything else is junk, and the caller's backoff decides.
    """
    text = (value or "").strip()
    if _NUMBER.match(text):
        return _clamp(math.ceil(float(text)))
    if not text or not text[0].isalpha():
        return None
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, IndexError, TypeError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return _clamp(math.ceil(moment.timestamp() - now))


def _clamp(seconds: float) -> float:
    return min(max(float(seconds), FLOOR), CEILING)
