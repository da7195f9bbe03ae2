"""Clients that hold on to a service: slow readers, senders of single bytes, half-open sockets."""

from __future__ import annotations

import os
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

Address = tuple[str, int]
ONE_BYTE_CHUNKS = b"1\r\n \r\n" * 10_000
HALF_HEAD = b"GET /healthz HTTP/1.1\r\nHost: local"
READ_BYTES, READ_S = 4096, 0.5
"""What a slow reader takes at a time, and how often."""
BUFFER_BYTES = 16384
ANSWER_S = 10.0


@dataclass(slots=True)
class Probed:
    """Seconds of each answer of ``/healthz``, over a new connection, and those that were none."""

    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def request_head(method: str, path: str, token: str, *lines: str) -> bytes:
    """The head of a request."""
    bearer = [f"Authorization: Bearer {token}"] if token else []
    return "\r\n".join(
        [f"{method} {path} HTTP/1.1", "Host: localhost", *bearer, *lines, "", ""]
    ).encode()


@contextmanager
def half_open(address: Address, count: int) -> Iterator[list[socket.socket]]:
    """Sockets that have sent half a head, or nothing, by turns."""
    with ExitStack() as stack:
        made = []
        for number in range(count):
            one = stack.enter_context(socket.create_connection(address, timeout=ANSWER_S))
            if number % 2:
                with suppress(OSError):  # it is refused already
                    one.sendall(HALF_HEAD)
            made.append(one)
        yield made


@contextmanager
def chunk_senders(address: Address, tokens: Sequence[str]) -> Iterator[None]:
    """A process for each token that sends bodies in chunks of a byte, one after the other.

    Processes, so that they take no time from who measures; an empty token is none.
    """
    host, port = address
    running = [
        subprocess.Popen([sys.executable, __file__, host, str(port), token], stdout=subprocess.PIPE)
        for token in tokens
    ]
    try:
        for process in running:
            assert process.stdout is not None
            process.stdout.read(1)  # it sends
        yield
    finally:
        for process in running:
            process.kill()
            process.communicate()


def _send_chunks(address: Address, token: str) -> None:
    lines = "Content-Type: application/json", "Transfer-Encoding: chunked"
    while True:
        with suppress(OSError), socket.create_connection(address, timeout=0.5) as one:
            one.sendall(request_head("POST", "/v1/simulations", token, *lines))
            os.write(1, b".")
            while True:
                one.sendall(ONE_BYTE_CHUNKS)


@contextmanager
def slow_readers(
    address: Address, path: str, count: int, token: str = ""
) -> Iterator[dict[int, int]]:
    """Clients that ask for an answer and take a few bytes of it now and then.

    Yields the status of each answer that has begun, by the number of its socket.
    """
    ending = threading.Event()
    statuses: dict[int, int] = {}
    with ExitStack() as stack:
        made = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in made:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
            one.settimeout(ANSWER_S)
            with suppress(OSError):
                one.connect(address)
                one.sendall(request_head("GET", path, token))

        def read() -> None:
            with selectors.DefaultSelector() as selector:
                for one in made:
                    selector.register(one, selectors.EVENT_READ)
                while not ending.wait(READ_S):
                    for key, _events in selector.select(0):
                        if not (taken := _taken(key.fileobj)):
                            selector.unregister(key.fileobj)
                        elif key.fd not in statuses:
                            statuses[key.fd] = int(taken.split(b" ", 2)[1])

        thread = threading.Thread(target=read)
        thread.start()
        try:
            yield statuses
        finally:
            ending.set()
            thread.join()


def _taken(one: object) -> bytes:
    assert isinstance(one, socket.socket)
    try:
        return one.recv(READ_BYTES)
    except OSError:
        return b""


def probe(address: Address, seconds: float, every_s: float = 0.02) -> Probed:
    """Ask ``/healthz`` again and again."""
    found, ends_s = Probed(), time.monotonic() + seconds
    while time.monotonic() < ends_s:
        start_s = time.perf_counter()
        try:
            with socket.create_connection(address, timeout=ANSWER_S) as one:
                one.sendall(request_head("GET", "/healthz", "", "Connection: close"))
                answer = b""
                while chunk := one.recv(65536):
                    answer += chunk
            if answer.split(b" ", 2)[1:2] != [b"200"]:
                found.failures.append(answer[:40].decode("latin-1"))
        except OSError as error:
            found.failures.append(type(error).__name__)
        found.seconds.append(time.perf_counter() - start_s)
        time.sleep(every_s)
    return found


if __name__ == "__main__":
    _send_chunks((sys.argv[1], int(sys.argv[2])), sys.argv[3])
