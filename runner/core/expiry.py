"""When what was generated is gone: results at the Router, and the links to their media."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from urllib.parse import parse_qsl, urlsplit

#: The Router keeps a finished result for so long (contract: retention of the queue's results), in seconds.
RETENTION = 24 * 3600.0
#: Nobody's link lives longer than this (contract: media links), in seconds.
LONGEST_LINK = 24 * 3600.0
#: Providers whose links die sooner (contract: media links): end of the host's name, seconds.
_SHORT_LIVED: Mapping[str, float] = {"bfl.ai": 600.0, "minimax.io": 12 * 3600.0, "minimaxi.com": 12 * 3600.0}


def result_deadline(accepted_at: float) -> float:
    """Until when the result of a request accepted at `accepted_at` can be read for certain; Unix seconds.

    The Router counts from the end of the run, which nobody tells: it may have been at once.
    """
    return accepted_at + RETENTION


def links_deadline(urls: Iterable[str], received_at: float) -> float | None:
    """When the first of these links dies, as Unix seconds; `None` without links."""
    return min((link_deadline(url, received_at) for url in urls), default=None)


def link_deadline(url: str, received_at: float) -> float:
    """When a link that came at `received_at` dies: as its signature says, or by what is known of its host."""
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").lower()
    except ValueError:
        return received_at + LONGEST_LINK
    signed = _signed_until(dict(parse_qsl(parts.query)))
    if signed is not None:
        return min(signed, received_at + LONGEST_LINK)
    lives = (seconds for name, seconds in _SHORT_LIVED.items() if host == name or host.endswith(f".{name}"))
    return received_at + next(lives, LONGEST_LINK)


def _signed_until(query: Mapping[str, str]) -> float | None:
    """What the parameters of a signed link say: Amazon's and Google's begin and length, an end in seconds, Azure's."""
    for name in ("X-Amz", "X-Goog"):
        begin, length = _moment(query.get(f"{name}-Date"), "%Y%m%dT%H%M%SZ"), _number(query.get(f"{name}-Expires"))
        if begin is not None and length is not None:
            return begin + length
    end = _number(query.get("Expires"))
    return end if end is not None else _moment(query.get("se"), "%Y-%m-%dT%H:%M:%SZ")


def _moment(text: str | None, form: str) -> float | None:
    try:
        return datetime.strptime(text or "", form).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _number(text: str | None) -> float | None:
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 12:
        return None
    return float(text)
