"""Replies about jobs: owner, waiting, conditional requests, problems."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...problems import problem_response
from ..database import StoreError
from ..ids import KEY
from ..recent import TaggedDocument, tagged

MAX_WAIT_S = 30
PREFERENCE = re.compile(r'^wait\s*=\s*"?(\d{1,6})"?$', re.IGNORECASE)
RETRY_S = 1
RouteHandler = Callable[..., Awaitable[Response]]


def wait_s(request: Request) -> int | None:
    """Return the seconds of ``Prefer: wait=N`` (RFC 7240), at most 30.

    None without a usable one.
    """
    for part in request.headers.get("prefer", "").split(","):
        if match := PREFERENCE.match(part.split(";")[0].strip()):
            return min(MAX_WAIT_S, int(match[1]))
    return None


def answers_later(request: Request) -> bool:
    """True if a request asks for a job at once: ``Prefer: respond-async`` (RFC 7240)."""
    parts = request.headers.get("prefer", "").casefold().split(",")
    return any(part.split(";")[0].strip() == "respond-async" for part in parts)


def owner_of(request: Request) -> str:
    """Owner of a request, whose token the gate has checked."""
    owner: str = request.scope.get("owner", "")
    return owner


def idempotency_key(request: Request) -> str | None:
    """The idempotency key of a request.

    Raises:
        ValueError: an invalid key.
    """
    keys = request.headers.getlist("idempotency-key")
    if not keys:
        return None
    key = keys[0].strip()
    if len(keys) > 1 or not KEY.fullmatch(key):
        raise ValueError(key)
    return key


def conditional(
    request: Request,
    document: bytes | TaggedDocument,
    final: bool,
    media_type: str = "application/json",
    more: dict[str, str] | None = None,
) -> Response:
    """Return a document, or 304 where the client has it.

    A ``final`` document changes no more; ``more`` are further headers.
    """
    if not final:
        headers = {"Retry-After": str(RETRY_S)}
        body = document if isinstance(document, bytes) else document.body
        return Response(body, 200, headers, media_type=media_type)
    known = tagged(document) if isinstance(document, bytes) else document
    body, tag = known.body, known.tag
    headers = {"Cache-Control": "private, no-cache", **(more or {}), "ETag": tag}
    if_none_match = request.headers.get("if-none-match", "")
    tags = [part.strip().removeprefix("W/") for part in if_none_match.split(",")]
    if tag in tags or "*" in tags:
        return Response(status_code=304, headers=headers)
    return Response(body, 200, headers, media_type=media_type)


def not_found() -> Response:
    """Problem for a job that does not exist or is someone else's."""
    return problem_response(404, "there is no such job")


def with_store_errors(route: RouteHandler) -> RouteHandler:
    """Wrap a route to answer 503 where the database fails."""

    @wraps(route)
    async def answered(*arguments: Any, **named: Any) -> Response:
        try:
            return await route(*arguments, **named)
        except StoreError:
            detail = "the jobs' database cannot be read or written now; GET /readyz tells more"
            return problem_response(503, detail, headers={"Retry-After": "5"})

    return answered
