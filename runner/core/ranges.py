"""Going on with a download that broke off, where the host proves that it is the same file (RFC 9110, 13.1.5, 14)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

#: Smaller files are as quickly fetched whole.
WORTH_RESUMING = 4 * 1024 * 1024

#: A file that changed so many seconds before it came has not changed again in that second (RFC 9110, 8.8.2.2).
_SETTLED = 60.0
_STRONG = re.compile(r'"[\x21\x23-\x7e]{1,256}"')
_DATE = re.compile(r"[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT")
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})")


@dataclass(frozen=True, slots=True)
class Begun:
    """What is there of a file that did not come whole."""

    #: Bytes.
    size: int
    #: The strong validator under which they came.
    validator: str


def validator_to_resume_by(headers: Mapping[str, str], expected_size: int | None) -> str | None:
    """The strong validator of a whole answer (`200`) whose file is worth resuming, should it break off.

    It is an entity tag, or where there is none the date of the last change (RFC 9110, 13.1.5). Header names are in
    lower case. A weak tag, a date shortly before the answer, or a body that is encoded prove nothing of single bytes.
    """
    if expected_size is None or expected_size < WORTH_RESUMING or not _is_plain(headers):
        return None
    validator = _validator(headers)
    strong = _STRONG.fullmatch(validator) if "etag" in headers else _is_settled(validator, headers.get("date", ""))
    return validator if strong else None


def resuming_headers(begun: Begun) -> dict[str, str]:
    """What asks for the rest of the file, or for all of it where it has changed."""
    return {"Range": f"bytes={begun.size}-", "If-Range": begun.validator}


def size_if_continued(begun: Begun, status: int, headers: Mapping[str, str]) -> int | None:
    """The size of the whole file, where the answer proves that its body is the rest of it; `None` for any other."""
    found = _CONTENT_RANGE.fullmatch(headers.get("content-range", "").strip())
    if status != 206 or found is None or not _is_plain(headers) or _validator(headers) != begun.validator:
        return None
    first, last, size = (int(number) for number in found.groups())
    length = headers.get("content-length")
    if length is not None and length != str(last - first + 1):
        return None
    return size if first == begun.size and last == size - 1 and first <= last else None


def _validator(headers: Mapping[str, str]) -> str:
    return headers.get("etag", headers.get("last-modified", "")).strip()


def _is_settled(changed: str, answered: str) -> bool:
    if not (_DATE.fullmatch(changed) and _DATE.fullmatch(answered.strip())):
        return False
    try:
        age = parsedate_to_datetime(answered) - parsedate_to_datetime(changed)
    except ValueError:
        return False
    return age.total_seconds() >= _SETTLED


def _is_plain(headers: Mapping[str, str]) -> bool:
    return headers.get("content-encoding", "identity").strip().lower() in {"", "identity"}
