"""The media host: serves the files that results point at, as an object store with signed links does."""

from __future__ import annotations

import hashlib
import hmac
import re

from starlette.requests import Request
from starlette.responses import Response

from runner.simulator.answers import (
    DroppedConnection,
    TruncatedAnswer,
    bare_answer,
    html_answer,
    xml_refusal,
)
from runner.simulator.outputs import Finished, media_file, signature

_RANGE = re.compile(r"bytes=(\d*)-(\d*)\Z")


def signed_until(secret: str, path: str, sig: str, exp: str) -> float | None:
    """Until when a link works; `None` for one that the simulator did not give out."""
    if not exp.isascii() or not exp.isdigit():
        return None
    wanted = signature(secret, path, int(exp))
    return float(exp) if hmac.compare_digest(wanted.encode(), sig.encode()) else None


def dead_link() -> Response:
    """The answer for a link whose time is over."""
    return xml_refusal(403, "AccessDenied", "Request has expired")


def _part(header: str, size: int) -> tuple[int, int] | None:
    """First and last byte that a `Range` names; `None` where it names none (RFC 9110, 14.1.2)."""
    found = _RANGE.match(header.strip())
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        return max(0, size - int(found[2])), size - 1
    return int(found[1]), min(int(found[2]) if found[2] else size - 1, size - 1)


def _whole_or_part(request: Request, body: bytes, content_type: str) -> Response:
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Accept-Ranges": "bytes"}
    wanted = request.headers.get("range")
    if wanted is None or request.headers.get("if-range", tag) != tag:
        return Response(body, 200, headers, content_type)
    part = _part(wanted, len(body))
    if part is None:
        return Response(body, 200, headers, content_type)
    first, last = part
    if first > last:
        refused = xml_refusal(416, "InvalidRange", "The requested range is not satisfiable")
        refused.headers["Content-Range"] = f"bytes */{len(body)}"
        return refused
    headers["Content-Range"] = f"bytes {first}-{last}/{len(body)}"
    return Response(body[first : last + 1], 206, headers, content_type)


def deliver(request: Request, run: Finished, name: str, fault: str | None) -> Response:
    """One file of a finished run, or what the fault makes of it."""
    found = media_file(run, name)
    if found is None:
        return xml_refusal(404, "NoSuchKey", "The specified key does not exist.")
    body, content_type = found
    if fault == "media_wrong_type":
        return _whole_or_part(request, body, "application/octet-stream")
    if fault == "media_truncated":
        return TruncatedAnswer(body, 200, media_type=content_type)
    if fault == "media_empty":
        return Response(b"", 200, media_type=content_type)
    return _whole_or_part(request, body, content_type)


def broken(request: Request, fault: str | None) -> Response | None:
    """The answers of a media host that does not get as far as the file."""
    if fault == "dead_links":
        return dead_link()
    if fault == "media_500":
        return bare_answer(500)
    if fault == "media_drop":
        return DroppedConnection()
    if fault == "media_redirect":
        other = "127.0.0.1" if request.url.hostname == "localhost" else "localhost"
        return Response(b"", 302, {"Location": str(request.url.replace(hostname=other))})
    return html_answer() if fault == "media_html" else None
