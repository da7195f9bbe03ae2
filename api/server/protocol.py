"""HTTP/1.1 connections of uvicorn that answer faults with problems.

Invalid HTTP reaches no route, so it is refused here, in the same form as all else. It is the
sender's fault and not the operator's concern: no log line.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from .problems import MEDIA_TYPE, encode, problem

MAX_CONNECTIONS = 256
EVENTS_SUFFIX = "/events"
HEAD_S = 10.0
"""Seconds for a request's head to arrive, and for a refused one's body to end."""
ANSWERED_S = 60.0
"""Seconds more for the whole exchange: the body, the answer, and the client that reads it."""


class ProblemProtocol(H11Protocol):
    """A connection that answers invalid HTTP with a problem."""

    deadline_timer: asyncio.TimerHandle | None = None
    has_received = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            self.refuse(503, "too many connections are open")
        else:
            self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        if self.deadline_timer is not None:
            self.deadline_timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request."""
        self.has_received = True
        if not self.transport.is_closing():  # what follows a refusal is not read
            super().data_received(data)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self.has_received = False
        super().on_response_complete()
        self._wait_for_head()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP (uvicorn calls this)."""
        self.refuse(400, "allowed: HTTP/1.1 with a head of at most 32 KiB and a length or chunks")

    def refuse(self, status: int, detail: str) -> None:
        """Answer with a problem, unless an answer has begun, and close."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = encode(problem(status, detail))
            headers = {
                "content-type": MEDIA_TYPE,
                "content-length": str(len(body)),
                "connection": "close",
            }
            head: Any = [(name.encode(), value.encode()) for name, value in headers.items()]
            reason = HTTPStatus(status).phrase.encode()
            for event in (
                h11.Response(status_code=status, headers=head, reason=reason),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        cycle: Any = self.cycle  # None before the first request
        if cycle is not None and not cycle.response_complete:
            # A route may be at work already, on a body that turned out to be none: its answer would
            # be a second one.
            cycle.disconnected = True
            cycle.message_event.set()
        self.transport.close()

    def _wait_for_head(self) -> None:
        if self.deadline_timer is not None:
            self.deadline_timer.cancel()
        self.deadline_timer = self.loop.call_later(HEAD_S, self._on_deadline)

    def _on_deadline(self) -> None:
        """Close, unless a request is being answered: that may take longer."""
        if self.transport.is_closing():
            return
        if self.conn.our_state in (h11.SEND_RESPONSE, h11.SEND_BODY):
            if self._is_event_stream():
                self.deadline_timer = self.loop.call_later(HEAD_S, self._on_deadline)
                return
            self.deadline_timer = self.loop.call_later(ANSWERED_S, self.transport.abort)
        elif self.has_received:
            self.refuse(408, f"allowed: a request's head within {HEAD_S:g} s")
        else:
            self.transport.close()

    def _is_event_stream(self) -> bool:
        return (
            self.scope["path"].endswith(EVENTS_SUFFIX)
            and not self.transport.get_write_buffer_size()
        )
