"""Large answers, sent in steps and with a cap on the bytes of all that are under way.

A client that reads slowly costs one step of its own, beside the document, which all who read the
same share. Without room for its document a request is told to come again.
"""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .admission import Admission, FullError
from .problems import problem_response

STEP_BYTES = 65536
RETRY_S = 5


class AnswerStream:
    """ASGI middleware: hands large bodies on in steps."""

    def __init__(self, app: ASGIApp, admission: Admission) -> None:
        self._app, self._admission = app, admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and its answer back."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        held: list[Message] = []

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start" and _is_large(message):
                held.append(message)  # until there is room
                return
            body: bytes = message.get("body", b"")
            if len(body) <= STEP_BYTES:
                await send(message)
                return
            try:
                with self._admission.answer(scope, body):
                    for start in held:
                        await send(start)
                    await _send_in_steps(send, body, message.get("more_body", False))
            except FullError:
                detail = "too many bytes are being sent to clients already"
                refusal = problem_response(503, detail, headers={"Retry-After": str(RETRY_S)})
                await refusal(scope, receive, send)

        await self._app(scope, receive, sending)


def _is_large(start: Message) -> bool:
    lengths = [value for name, value in start.get("headers", ()) if name == b"content-length"]
    return bool(lengths) and int(lengths[0]) > STEP_BYTES


async def _send_in_steps(send: Send, body: bytes, more: bool) -> None:
    view: Any = memoryview(body)
    for first in range(0, len(view), STEP_BYTES):
        last = first + STEP_BYTES >= len(view)
        part = {"body": view[first : first + STEP_BYTES], "more_body": more or not last}
        await send({"type": "http.response.body", **part})
        await asyncio.sleep(0)  # a fast reader must not keep the others waiting
