"""Running services for items, and tools that load and watch them."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream
from harness.paths import STATE
from harness.processes import resident_tree_bytes
from service.services import Service, start_service, stop_service

LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[Service]:
    """A service until the end of the block, however that ends."""
    service = start_service(folder, *arguments)
    try:
        yield service
    finally:
        if service.process.poll() is None:
            stop_service(service)


def sqlite_in(folder: Path) -> tuple[str, str]:
    """The flag of an SQLite database of its own."""
    return "--db", f"sqlite:///{folder}/jobs.sqlite"


def scratch(name: str) -> Path:
    """A folder for a run's files, new each time."""
    folder = STATE / "scratch" / f"{name}-{time.time_ns()}"
    folder.mkdir(parents=True)
    return folder


def tree_bytes(service: Service) -> int:
    """Resident bytes of a service and of all that it started."""
    return resident_tree_bytes(service.process.pid)


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that so many of all are at most."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def asked(
    method: str, path: str, body: bytes = b"", headers: Sequence[tuple[str, str]] = ()
) -> bytes:
    """A request as bytes."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


class Load:
    """Outcome of repeated requests to a service.

    ``seconds`` are those of each answer, in the order in which they came; ``statuses`` their count.
    """

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.statuses: dict[int, int] = {}
        self.wall_s = 0.0

    @property
    def rate(self) -> float:
        """Answers a second."""
        return len(self.seconds) / self.wall_s

    def note(self, status: int, seconds: float) -> None:
        """Count an answer."""
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self.seconds.append(seconds)


def load(
    address: tuple[str, int], request: Callable[[int], bytes], connections: int, seconds: float
) -> Load:
    """Ask over some connections at once for so many seconds.

    Args:
        address: of the service.
        request: the bytes of the next request, by its number.
        connections: that are kept open.
        seconds: after which no more is asked.
    """
    outcome = Load()

    async def one(counter: list[int], ends_s: float) -> None:
        stream = await anyio.connect_tcp(*address)
        async with stream:
            reader = BufferedByteReceiveStream(stream)
            while time.perf_counter() < ends_s:
                counter[0] += 1
                start_s = time.perf_counter()
                await stream.send(request(counter[0]))
                head = await reader.receive_until(b"\r\n\r\n", 65536)
                length = LENGTH.search(b"\r\n" + head)
                if length is not None and int(length[1]):
                    await reader.receive_exactly(int(length[1]))
                outcome.note(int(head.split(b" ", 2)[1]), time.perf_counter() - start_s)

    async def run() -> None:
        start_s = time.perf_counter()
        counter = [0]
        async with anyio.create_task_group() as group:
            for _ in range(connections):
                group.start_soon(one, counter, start_s + seconds)
        outcome.wall_s = time.perf_counter() - start_s

    anyio.run(run)
    return outcome
