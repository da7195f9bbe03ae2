"""HTTP/1.1 connections of uvicorn that answer faults with problems.

Invalid HTTP reaches no route, so it is refused here, in the same form as all else. It is the
sender's fault and not the operator's concern: no log line.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from http import HTTPStatus
from typing import Any
from weakref import WeakKeyDictionary

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from .problems import MEDIA_TYPE, encode, problem
from .stepped_transport import ReadQueue, SteppedTransport

MAX_CONNECTIONS = 768
"""More than requests may be answered at once, so that /healthz always finds one."""
MAX_RECEIVING = 128
"""Connections whose client has no whole request here: silent, idle, or sending slowly.

One more costs the oldest of the address that has most of them.
"""
HEAD_STEP, CHUNKED_STEP, SIZED_STEP = 1024, 256, 65536
"""Bytes parsed at once: 256 may be 43 chunks; a body of a stated length takes no parsing."""
EVENTS_SUFFIX = "/events"
HEAD_S = 10.0
"""Seconds for a request's head to arrive, and for a refused one's body to end."""
ANSWERED_S = 60.0
"""Seconds more for the whole exchange: the body, the answer, and the client that reads it."""
RETRY_S = 1
_QUEUES: WeakKeyDictionary[ServerState, ReadQueue] = WeakKeyDictionary()


class ProblemProtocol(H11Protocol):
    """A connection that answers invalid HTTP with a problem."""

    transport: SteppedTransport
    deadline_timer: asyncio.TimerHandle | None = None
    has_received = False
    waits_since_s = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, unless there are too many."""
        queue = _QUEUES.setdefault(self.server_state, ReadQueue(self.loop))
        stepped = SteppedTransport(
            transport, queue, self._parse, self._step_bytes, self._is_request_whole
        )
        super().connection_made(stepped)
        self.waits_since_s = self.loop.time()
        self._make_room()
        if len(self.connections) > MAX_CONNECTIONS:
            self.refuse(503, "too many connections are open")
        else:
            self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        if self.deadline_timer is not None:
            self.deadline_timer.cancel()
        self.transport.lost()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request: a head's at once, a body's in its turn."""
        self.has_received = True
        self.transport.receive(data, at_once=self.conn.their_state is h11.IDLE)

    def _parse(self, data: bytes) -> None:
        super().data_received(data)

    def _step_bytes(self) -> int:
        if self.conn.their_state is not h11.SEND_BODY:
            return HEAD_STEP
        sized = any(name == b"content-length" for name, _ in self.headers)
        return SIZED_STEP if sized else CHUNKED_STEP

    def _is_request_whole(self) -> bool:
        return not self.has_received or self.conn.their_state not in (
            h11.IDLE,
            h11.SEND_BODY,
            h11.ERROR,
        )

    @property
    def is_receiving(self) -> bool:
        """True while it is the client's turn."""
        cycle: Any = self.cycle  # None before the first request
        return (
            cycle is None
            or cycle.response_complete
            or (cycle.more_body and not cycle.response_started)
        )

    def _make_room(self) -> None:
        if len(self.connections) <= MAX_RECEIVING:
            return
        receiving = [
            other
            for other in self.connections
            if isinstance(other, ProblemProtocol) and other.is_receiving
        ]
        if len(receiving) <= MAX_RECEIVING:
            return
        (host, _), *_ = Counter(other.host for other in receiving).most_common(1)
        of_host = (other for other in receiving if other.host == host)
        min(of_host, key=lambda other: other.waits_since_s).transport.abort()

    @property
    def host(self) -> str:
        """The client's address."""
        return self.client[0] if self.client else ""

    def on_response_complete(self) -> None:
        """Wait for the next request, unless this one has not even arrived."""
        if self.conn.their_state is h11.SEND_BODY:
            self.transport.close()
        self.has_received = False
        self.waits_since_s = self.loop.time()
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
            if status == 503:
                headers["retry-after"] = str(RETRY_S)
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
        if self.transport.is_closing():  # the client has not read the end of its answer
            self.deadline_timer = self.loop.call_later(ANSWERED_S, self.transport.abort)
        elif self.conn.our_state in (h11.SEND_RESPONSE, h11.SEND_BODY):
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
