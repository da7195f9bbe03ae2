"""Transport that hands over received bytes in small steps and closes without a reset.

A kilobyte can hold hundreds of chunks, each as dear to parse as a request's line. So a connection's
bytes are parsed a little at a time, in turn with those of all others, and between two turns the
event loop does everything else.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any

TURN_S = 0.001
"""Seconds of parsing, after which the event loop does something else for at least as long."""
LINGER_S, LINGER_BYTES, LINGER_PAUSE_S = 3.0, 4 * 2**20, 0.01
"""Of what still comes after a refusal; it is thrown away unparsed, a piece and then a pause.

Closing at once would reset the connection, and the client might never see its answer.
"""


class ReadQueue:
    """Connections whose bytes wait to be parsed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[SteppedTransport] = deque()
        self._is_scheduled = False

    def add(self, transport: SteppedTransport) -> None:
        """Give a connection its turn, after all who wait already."""
        self._waiting.append(transport)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._take_turns)

    def _take_turns(self) -> None:
        ends_s = self._loop.time() + TURN_S
        while self._waiting and self._loop.time() < ends_s:
            self._waiting.popleft().take_turn()
        self._is_scheduled = bool(self._waiting)
        if self._waiting:
            self._loop.call_later(TURN_S, self._take_turns)


class SteppedTransport(asyncio.Transport):
    """A connection's transport, as its protocol sees it.

    Args:
        inner: of the event loop.
        queue: of all connections.
        parse: takes some bytes.
        step_bytes: how many may be parsed at once now.
        may_close: whether nothing is to come that the client has begun to send.
    """

    def __init__(
        self,
        inner: asyncio.Transport,
        queue: ReadQueue,
        parse: Callable[[bytes], None],
        step_bytes: Callable[[], int],
        may_close: Callable[[], bool],
    ) -> None:
        super().__init__()
        self._inner, self._queue, self._loop = inner, queue, asyncio.get_running_loop()
        self._parse, self._step_bytes, self._may_close = parse, step_bytes, may_close
        self._unparsed = b""
        self._is_paused = self._is_queued = False
        self._lingering: asyncio.TimerHandle | None = None
        self._thrown_bytes = 0

    def receive(self, data: bytes, at_once: bool) -> None:
        """Take received bytes; the first step is parsed ``at_once`` or in its turn."""
        if self._lingering is not None:
            self._throw_away(data)
            return
        self._unparsed += data
        if at_once and not self._is_queued:
            self.take_turn()
        elif not self._is_queued:
            self._wait_for_turn()

    def _throw_away(self, data: bytes) -> None:
        self._thrown_bytes += len(data)
        if self._thrown_bytes > LINGER_BYTES:
            self._inner.abort()
            return
        self._inner.pause_reading()
        self._loop.call_later(LINGER_PAUSE_S, self._inner.resume_reading)

    def take_turn(self) -> None:
        """Parse a step; wait for another turn if there is more."""
        self._is_queued = False
        if self._is_paused or self.is_closing():
            return
        step = self._step_bytes()
        now, self._unparsed = self._unparsed[:step], self._unparsed[step:]
        self._parse(now)
        if self._unparsed:
            self._wait_for_turn()
        elif not self._is_paused:
            self._inner.resume_reading()

    def _wait_for_turn(self) -> None:
        self._inner.pause_reading()
        if not self._is_queued and not self._is_paused:
            self._is_queued = True
            self._queue.add(self)

    def pause_reading(self) -> None:
        """Parse no more for now."""
        self._is_paused = True
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        """Parse on."""
        self._is_paused = False
        if self._unparsed and not self.is_closing():
            self._wait_for_turn()
        else:
            self._inner.resume_reading()

    def close(self) -> None:
        """Close, once the client has sent what it began to, or soon."""
        if self.is_closing():
            return
        if self._may_close():
            self._inner.close()
            return
        self._unparsed = b""
        self._lingering = self._loop.call_later(LINGER_S, self._inner.abort)
        with contextlib.suppress(OSError):  # it is gone
            self._inner.write_eof()
        self._inner.resume_reading()

    def lost(self) -> None:
        """Forget what is left; the connection has ended."""
        self._unparsed = b""
        if self._lingering is not None:
            self._lingering.cancel()

    def abort(self) -> None:
        """Close at once."""
        self._inner.abort()

    def is_closing(self) -> bool:
        """Whether nothing more is read or written."""
        return self._lingering is not None or self._inner.is_closing()

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Send bytes, unless it closes."""
        if self._lingering is None:
            self._inner.write(data)

    def get_write_buffer_size(self) -> int:
        """Bytes that the client has not taken yet."""
        return self._inner.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Facts about the connection."""
        return self._inner.get_extra_info(name, default)
