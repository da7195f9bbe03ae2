"""ASGI gate before any route: host, token, type, size.

The Host check keeps web pages that the user visits from reaching a service on the user's own
machine under a name of the page's choosing (DNS rebinding). Bodies are read here, whole and
bounded, so that no route ever waits for one.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .admission import EVERYONE, Admission, FullError
from .problems import problem_response

MAX_BODY_BYTES = 1024 * 1024
BODY_S = 10.0
MAX_PATH = 2048
MAX_HEADER_BYTES = 16384
BODY_METHODS = ("POST", "PUT", "PATCH")
OPEN_PATHS = ("/healthz", "/readyz")
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
ALWAYS_PATH = "/healthz"
"""Answered however much is under way."""
PAGE_FILES, API_PATH = "/page/", "/docs"
BASIC = 'Basic realm="Shardwright: any name, and a token as the password", charset="UTF-8"'
SAFE_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRules:
    """Admission rules.

    ``hosts``: names that a request may be for, None for any. ``token_hashes``: sha256 of the
    tokens, one of which a request must bear; empty for none.
    """

    hosts: tuple[str, ...] | None = LOOPBACK_HOSTS
    token_hashes: tuple[bytes, ...] = ()


def hash_token(token: str) -> bytes:
    """Hash a token for storage."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


class _RefusedError(Exception):
    def __init__(self, response: Response) -> None:
        super().__init__(response.status_code)
        self.response = response


class Gate:
    """ASGI middleware that refuses what no route should see."""

    def __init__(self, app: ASGIApp, rules: GateRules, admission: Admission) -> None:
        self._app, self._rules, self._admission = app, rules, admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it with a problem."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {
            key.decode("latin-1").lower(): v.decode("latin-1") for key, v in scope["headers"]
        }
        try:
            self._check_host(headers)
            scope["owner"] = self._owner(scope["path"], headers)
            if len(scope["raw_path"] or b"") > MAX_PATH:
                raise _refused(404, "the path is too long")
            if sum(len(name) + len(value) for name, value in scope["headers"]) > MAX_HEADER_BYTES:
                raise _refused(431, f"allowed: headers of at most {MAX_HEADER_BYTES} bytes")
            inner = receive
            if scope["method"] in BODY_METHODS:
                _check_type(headers)
                _check_length(headers)
                inner = _replayed(await _body(receive), receive)
        except _RefusedError as refused:
            if scope["method"] in BODY_METHODS:  # the rest of it is not read
                refused.response.headers["Connection"] = "close"
            await refused.response(scope, receive, _with_headers(send))
            return
        await self._pass(scope, inner, _with_headers(send))

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == ALWAYS_PATH:
            await self._app(scope, receive, send)
            return
        try:
            with self._admission.request(scope):
                await self._app(scope, receive, send)
        except FullError:
            detail = "too many requests are under way"
            refusal = problem_response(503, detail, headers={"Retry-After": "1"})
            await refusal(scope, receive, send)

    def _check_host(self, headers: MutableMapping[str, str]) -> None:
        if self._rules.hosts is None:
            return
        host = headers.get("host", "").strip()
        name = host[1 : host.find("]")] if host.startswith("[") else host.rpartition(":")[0] or host
        if name.casefold() not in self._rules.hosts:
            raise _refused(421, "allowed: requests for this machine by its own name or address")

    def _owner(self, path: str, headers: MutableMapping[str, str]) -> str:
        """Return the owner of a request: a token's hash, or everyone."""
        if not self._rules.token_hashes or path in OPEN_PATHS:
            return EVERYONE
        token_hash = hash_token(_token(headers.get("authorization", "")))
        # Every stored token is compared, so that the time tells nothing.
        matches = [hmac.compare_digest(token_hash, allowed) for allowed in self._rules.token_hashes]
        if not any(matches):
            detail = "send the header Authorization: Bearer TOKEN"
            # A browser asks its user for a name and the token, if only this scheme is offered.
            paged = path in ("/", API_PATH) or path.startswith(PAGE_FILES)
            scheme = BASIC if paged else "Bearer"
            raise _refused(401, detail, {"WWW-Authenticate": scheme})
        return hashlib.sha256(token_hash).hexdigest()[:32]


def _token(header: str) -> str:
    scheme, _, value = header.partition(" ")
    if scheme.casefold() == "bearer":
        return value.strip()
    if scheme.casefold() != "basic":
        return ""
    try:
        pair = base64.b64decode(value.strip(), validate=True).decode("utf-8", "surrogateescape")
    except ValueError:
        return ""
    return pair.partition(":")[2]


def _refused(status: int, detail: str, headers: dict[str, str] | None = None) -> _RefusedError:
    return _RefusedError(problem_response(status, detail, headers=headers))


def _check_type(headers: MutableMapping[str, str]) -> None:
    kind = headers.get("content-type", "").partition(";")[0].strip().casefold()
    if kind != "application/json":
        raise _refused(415, "allowed: Content-Type: application/json")
    if headers.get("content-encoding", "identity").strip().casefold() not in ("identity", ""):
        raise _refused(415, "allowed: a body without Content-Encoding")


def _check_length(headers: MutableMapping[str, str]) -> None:
    length = headers.get("content-length")
    if length is not None and "transfer-encoding" in headers:  # two readers might differ
        detail = "allowed: either Content-Length or Transfer-Encoding"
        raise _refused(400, detail)
    if length is not None and not (length.isdecimal() and int(length[:20]) <= MAX_BODY_BYTES):
        raise _too_large()


def _too_large() -> _RefusedError:
    return _refused(413, f"allowed: a body of at most {MAX_BODY_BYTES} bytes")


async def _body(receive: Receive) -> bytes:
    try:
        return await asyncio.wait_for(_read(receive), BODY_S)
    except TimeoutError:
        detail = f"allowed: a body that arrives within {BODY_S:g} s"
        raise _refused(408, detail) from None


async def _read(receive: Receive) -> bytes:
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise _refused(400, "the client went away")
        part = message.get("body", b"")
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise _too_large()
        parts.append(part)
        if not message.get("more_body"):
            return b"".join(parts)


def _replayed(body: bytes, receive: Receive) -> Receive:
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return pending.pop() if pending else await receive()

    return replay


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            have: list[Any] = list(message.get("headers", []))
            names = {name.lower() for name, _ in have}
            safe = [(k.encode(), v.encode()) for k, v in SAFE_HEADERS.items()]
            have += [(name, value) for name, value in safe if name not in names]
            message = {**message, "headers": have}
        await send(message)

    return sending
