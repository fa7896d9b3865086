"""Answers in the forms of the contract, and the broken ones that a fault asks for."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Sequence

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from runner.simulator.check import Problem

Headers = Sequence[tuple[str, str]]

#: Where a server puts the function that closes the present connection: `close(flush: bool)`.
CLOSE_EXTENSION = "comfy_batch.close"


class ConnectionDropped(Exception):
    """A fault closed the connection, under a server that cannot close one."""


class Refusal(Exception):
    """A call that is answered with an error of the Router."""

    def __init__(self, status: int, error_type: str, detail: str, headers: Headers = ()) -> None:
        super().__init__(detail)
        self.status = status
        self.error_type = error_type
        self.detail = detail
        self.headers = headers


class InvalidBody(Exception):
    """A body that the model's schema does not accept."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        super().__init__("the body is not valid")
        self.problems = list(problems)


def answer(status: int, body: bytes, content_type: str, headers: Headers = ()) -> Response:
    """Any answer of the Router; each carries an id of the call (contract: `RouterRequestIdHeader`)."""
    response = Response(body, status, media_type=content_type)
    response.headers["X-Comfy-Request-Id"] = str(uuid.uuid4())
    for name, value in headers:
        response.headers.append(name, value)
    return response


def json_answer(status: int, document: object, headers: Headers = ()) -> Response:
    """An answer with a JSON document."""
    return answer(status, json.dumps(document).encode(), "application/json", headers)


def error_answer(status: int, error_type: str, detail: str, headers: Headers = (), **more: str) -> Response:
    """Contract: `RouterErrorResponse`, with its bucket repeated in a header."""
    document = {"detail": detail, "error_type": error_type} | more
    return json_answer(status, document, [("X-Comfy-Error-Type", error_type), *headers])


def invalid_answer(problems: Sequence[Problem]) -> Response:
    """Contract: `RouterValidationErrorResponse`; only the header names the bucket."""
    return json_answer(422, {"detail": list(problems)}, [("X-Comfy-Error-Type", "invalid_input")])


def bare_answer(status: int) -> Response:
    """What a proxy in front of the Router says: no header and no body of the contract."""
    return Response(f"<html><body><h1>{status}</h1></body></html>", status, media_type="text/html")


def html_answer() -> Response:
    """A page for people where a program expects a document."""
    page = "<!doctype html><html><head><title>Sign in</title></head><body>Please sign in.</body></html>"
    return Response(page, 200, media_type="text/html")


def cut_answer(whole: Response) -> Response:
    """The same answer with its body cut off in the middle."""
    body = bytes(whole.body)
    headers = [
        (name, value) for name, value in whole.headers.items() if name.startswith("x-comfy") or name == "retry-after"
    ]
    return answer(whole.status_code, body[: len(body) // 2], "application/json", headers)


def xml_refusal(status: int, code: str, message: str) -> Response:
    """How an object store refuses a download."""
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>'
    return Response(text, status, media_type="application/xml")


async def _close(scope: Scope, receive: Receive, *, flush: bool) -> None:
    close = scope.get("extensions", {}).get(CLOSE_EXTENSION)
    if close is None:
        raise ConnectionDropped("the simulator closed the connection")
    close(flush)
    # The server must have noticed before this returns, or it would report an answer that never came.
    while (await receive())["type"] != "http.disconnect":
        pass


class DroppedConnection(Response):
    """No answer at all: the connection ends."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Close the connection."""
        await _close(scope, receive, flush=False)


class TruncatedAnswer(Response):
    """Announces the whole length, sends half, and closes the connection."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the first half of the body."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        half = bytes(self.body)[: len(self.body) // 2]
        await send({"type": "http.response.body", "body": half, "more_body": True})
        await _close(scope, receive, flush=True)
