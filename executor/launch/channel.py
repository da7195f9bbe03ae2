"""JSON lines between launcher and worker, over dedicated pipes.

Standard output and error stay free for whatever a worker or a library prints.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import threading
from typing import Any

Message = dict[str, Any]
READ_BYTES = 1 << 16


class Sender:
    """Thread-safe writer of messages to a pipe.

    Args:
        descriptor: the pipe's writing end.
        timeout_s: how long a reader may leave the pipe full; None for no limit.
    """

    def __init__(self, descriptor: int, timeout_s: float | None = None) -> None:
        self._descriptor = descriptor
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        os.set_blocking(descriptor, timeout_s is None)

    def send(self, message: Message) -> None:
        """Write one message whole.

        Raises:
            OSError: the other side is gone, or left the pipe full for too long.
        """
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            unsent = memoryview(line)
            while unsent:
                unsent = unsent[self._write(unsent) :]

    def _write(self, data: memoryview) -> int:
        try:
            return os.write(self._descriptor, data)
        except BlockingIOError:
            if not select.select([], [self._descriptor], [], self._timeout_s)[1]:
                raise TimeoutError("the reader left the pipe full") from None
            return 0

    def close(self) -> None:
        """Close this end; the reader sees the end of the stream."""
        os.close(self._descriptor)


class QueuedSender:
    """Sender whose messages leave from a thread: a stopped reader delays nobody.

    Args:
        descriptor: the pipe's writing end.
    """

    def __init__(self, descriptor: int) -> None:
        self._sender = Sender(descriptor)
        self._queue: queue.Queue[Message] = queue.Queue()
        threading.Thread(target=self._write, daemon=True).start()

    def send(self, message: Message) -> None:
        """Write a message after those before it."""
        self._queue.put(message)

    def offer(self, message: Message) -> None:
        """Write a message unless others wait to be read."""
        if self._queue.empty():
            self._queue.put(message)

    def flush(self) -> None:
        """Wait until all messages are written, or nobody reads them any more."""
        self._queue.join()

    def _write(self) -> None:
        while True:
            with contextlib.suppress(OSError):  # the reader is gone
                self._sender.send(self._queue.get())
            self._queue.task_done()


class Receiver:
    """Reads messages from a pipe."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._partial = b""

    def receive(self) -> list[Message] | None:
        """Messages of the next read, perhaps none; None at end of stream."""
        data = os.read(self.descriptor, READ_BYTES)
        if not data:
            return None
        *lines, self._partial = (self._partial + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        """Close this end; the writer gets an error at its next message."""
        os.close(self.descriptor)
