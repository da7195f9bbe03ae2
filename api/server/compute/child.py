"""Service child: serves requests on standard input, under limits.

Message in: one JSON line ``{"operation", "limit_s", "cpu_s", "length", "events"?, "lent"?}`` and
the body; ``lent`` holds the requester's calibrations.
Message out: one JSON line ``{"status", "length"}`` and the body; before it, where ``events`` is
true, any number with ``event`` in place of ``status``. SIGINT ends a search with its best plan so
far. It does not use the network, runs no received code, and lives in an empty folder. Its exit
code tells, once it ended, whether it met a limit of its own (:func:`met_own_limit`).
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import signal
import sys
from functools import partial
from typing import BinaryIO

from ..lifeline import when_input_closes

MEMORY_BYTES = 1024**3
FILE_BYTES = 1024**2
OPEN_FILES = 64
OUT_OF_MEMORY = 70
"""Exit code of a child whose memory did not suffice for an answer."""


def main() -> None:
    """Answer until the input ends."""
    limit_resources()
    when_input_closes(lambda: os._exit(0))
    source = os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    target = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # Whatever a library prints must not reach the channel.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    from ...problem.stored_calibrations import lending
    from .lending import lent_from
    from .operations import run_operation

    _warm_up()
    stops = _InterruptGuard()
    _send(target, {"status": 0}, b"")
    while line := source.readline():
        header = json.loads(line)
        body = source.read(header["length"])
        _allow_seconds(header["cpu_s"])
        emit = partial(stops.send_event, target) if header.get("events") else None
        with stops, lending(lent_from(header.get("lent"))):
            status, reply = run_operation(header["operation"], body, header["limit_s"], emit)
        _send(target, {"status": status}, reply)
        if header.get("events"):  # it was a job
            gc.collect()  # after the answer: what a search that failed has left is old by now


class _InterruptGuard:
    """SIGINT as KeyboardInterrupt inside a request, never inside a message."""

    def __init__(self) -> None:
        self._inside = self._sending = self._pending = False
        signal.signal(signal.SIGINT, self._on_sigint)

    def __enter__(self) -> None:
        self._inside, self._pending = True, False

    def __exit__(self, *error: object) -> None:
        self._inside = False

    def _on_sigint(self, number: int, frame: object) -> None:
        if not self._inside:
            return
        if self._sending:
            self._pending = True
        else:
            self._inside = False  # once is enough: the answer is being written now
            raise KeyboardInterrupt

    def send_event(self, target: BinaryIO, event: str, body: bytes) -> None:
        """Send an event whole."""
        self._sending = True
        try:
            _send(target, {"event": event}, body)
        finally:
            self._sending = False
        if self._pending and self._inside:
            self._inside = False
            raise KeyboardInterrupt


def _send(target: BinaryIO, header: dict[str, object], body: bytes) -> None:
    line = json.dumps({**header, "length": len(body)}).encode() + b"\n"
    target.write(line + body)
    target.flush()


def met_own_limit(exit_code: int | None) -> bool:
    """Return True if a child ended by its limit of memory or processor time.

    Any other end came from outside, or is a fault of ours.
    """
    return exit_code in (OUT_OF_MEMORY, -signal.SIGXCPU)


def limit_resources() -> None:
    """Cap memory, file sizes and open files; disable core files."""
    for what, amount in (
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_FSIZE, FILE_BYTES),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(what)
        most = amount if hard == resource.RLIM_INFINITY else min(amount, hard)
        resource.setrlimit(what, (most, most))


def _allow_seconds(more_s: float) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    most = int(used.ru_utime + used.ru_stime + more_s) + 1
    with contextlib.suppress(ValueError):  # the hard limit of the service's own starter is lower
        resource.setrlimit(resource.RLIMIT_CPU, (most, hard))


def _warm_up() -> None:
    from ....datasets.catalogue.device import devices
    from ....datasets.models.load import presets

    presets()
    devices()


if __name__ == "__main__":
    try:
        main()
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
