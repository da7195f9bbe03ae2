"""Connections: what is no HTTP, what comes too slowly, too many at once, and the log's one line."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import h11
import pytest
import uvicorn
from service import attackers

from shardwright.api.server import protocol
from shardwright.api.server.logs import JsonLines
from shardwright.api.server.protocol import ProblemProtocol

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


async def _early(scope: Any, receive: Any, send: Any) -> None:
    """Answers at once, whatever of the body is still to come.

    ``/wait`` never does, ``/count`` says how many bytes the body had.
    """
    if scope["path"] == "/count":
        count, more = 0, True
        while more:
            message = await receive()
            count, more = count + len(message["body"]), message["more_body"]
        head = [(b"content-length", b"%d" % len(str(count)))]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": str(count).encode()})
        return
    if scope["path"] == "/wait":
        await receive()
        await receive()
        return
    head = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 415, "headers": head})
    await send({"type": "http.response.body", "body": b"{}"})


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """A server with short patience, in a thread of this process."""
    for name, value in (("HEAD_S", 0.3), ("ANSWERED_S", 0.3), ("MAX_CONNECTIONS", 3)):
        monkeypatch.setattr(protocol, name, value)
    config = uvicorn.Config(
        _early, http=ProblemProtocol, log_config=None, lifespan="off", ws="none", access_log=False,
        timeout_graceful_shutdown=1,
    )  # fmt: skip
    server = uvicorn.Server(config)
    bound = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield bound.getsockname()
    server.should_exit = True
    thread.join()
    bound.close()


def _talk(address: tuple[str, int], *parts: bytes) -> str:
    """Everything that is answered until the other side closes."""
    with socket.create_connection(address, timeout=5) as client:
        for part in parts:
            client.sendall(part)
            time.sleep(0.05)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while chunk := client.recv(65536):
                answer += chunk
    return answer.decode("latin-1")


def _problem(answer: str) -> Any:
    head, _, body = answer.partition("\r\n\r\n")
    assert "content-type: application/problem+json" in head
    document = json.loads(body)
    assert int(head.split()[1]) == document["status"]
    return document


def test_what_is_no_http_is_a_problem_and_no_log_line(
    address: tuple[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    for sent in (
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
        CHUNKED[:9] + b"\r\n\r\n",
    ):
        assert _problem(_talk(address, sent))["status"] == 400
    late = _talk(address, GET, b"nonsense\r\n\r\n")
    assert re.findall(r"HTTP/1\.1 (\d{3}) ", late) == ["415", "400"]
    assert [r for r in caplog.records if r.levelno >= logging.ERROR] == []


def test_a_body_that_breaks_after_its_answer_ends_quietly(
    address: tuple[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    answer = _talk(address, CHUNKED, b"zz\r\n")
    assert answer.count("HTTP/1.1") == 1
    assert answer.startswith("HTTP/1.1 415")
    assert [r for r in caplog.records if r.levelno >= logging.ERROR] == []


def test_silence_half_a_head_and_an_endless_body_are_cut_off(address: tuple[str, int]) -> None:
    assert _talk(address) == ""
    assert _problem(_talk(address, GET[:-2]))["status"] == 408
    with socket.create_connection(address, timeout=5) as client:
        client.sendall(CHUNKED)
        with pytest.raises(OSError, match=r"reset|pipe"):
            _send_on_and_on(client)


def _send_on_and_on(client: socket.socket) -> None:
    ends_s = time.monotonic() + 5
    while time.monotonic() < ends_s:
        client.sendall(b"1\r\na\r\n")
        time.sleep(0.02)


def test_an_exchange_without_an_end_is_cut_off(address: tuple[str, int]) -> None:
    start_s = time.monotonic()
    assert _talk(address, CHUNKED.replace(b" / ", b" /wait ")) == ""
    assert time.monotonic() - start_s < 4


def test_one_connection_too_many_is_refused(address: tuple[str, int]) -> None:
    with contextlib.ExitStack() as open_ones:
        for _ in range(3):
            open_ones.enter_context(socket.create_connection(address, timeout=5))
        time.sleep(0.05)
        assert _problem(_talk(address))["status"] == 503
    time.sleep(0.05)
    assert _talk(address, GET).startswith("HTTP/1.1 415")


def test_half_open_sockets_make_room_for_who_asks(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("HEAD_S", 30.0), ("MAX_CONNECTIONS", 100), ("MAX_RECEIVING", 5)):
        monkeypatch.setattr(protocol, name, value)
    with attackers.half_open(address, 20) as sockets:
        for _ in range(3):
            start_s = time.monotonic()
            with socket.create_connection(address, timeout=5) as client:
                client.sendall(GET)
                assert client.recv(15) == b"HTTP/1.1 415 Un"
            assert time.monotonic() - start_s < 1
        sockets[0].settimeout(5)
        with contextlib.suppress(ConnectionResetError):
            assert sockets[0].recv(1) == b""  # the oldest went first
        sockets[-1].settimeout(0.05)
        with pytest.raises(TimeoutError):
            sockets[-1].recv(1)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of each step that is parsed."""
    sizes, parse = [], h11.Connection.receive_data

    def counted(self: h11.Connection, data: bytes) -> None:
        sizes.append(len(data))
        parse(self, data)

    monkeypatch.setattr(h11.Connection, "receive_data", counted)
    return sizes


def test_what_follows_an_early_answer_is_not_parsed(
    address: tuple[str, int], parsed: list[int]
) -> None:
    with socket.create_connection(address, timeout=5) as client:
        client.sendall(CHUNKED)
        time.sleep(0.1)
        client.sendall(attackers.ONE_BYTE_CHUNKS * 5)  # all of it: the line is still open
        answer = b""
        while chunk := client.recv(65536):
            answer += chunk
    assert answer.startswith(b"HTTP/1.1 415")
    assert answer.endswith(b"{}")
    assert sum(parsed) <= len(CHUNKED) + protocol.CHUNKED_STEP


def test_bytes_are_parsed_a_little_at_a_time(address: tuple[str, int], parsed: list[int]) -> None:
    head = CHUNKED.replace(b" / ", b" /count ").replace(
        b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"
    )
    answer = _talk(address, head + attackers.ONE_BYTE_CHUNKS[:30_000] + b"0\r\n\r\n")
    assert answer.endswith("\r\n\r\n5000")
    assert max(parsed) <= protocol.HEAD_STEP
    parsed.clear()
    body = b"x" * 2**20
    sized = head.replace(b"Transfer-Encoding: chunked", b"Content-Length: %d" % len(body))
    assert _talk(address, sized + body).endswith(f"\r\n\r\n{len(body)}")
    assert max(parsed) <= protocol.SIZED_STEP


def test_a_fault_is_logged_as_one_line_without_what_was_sent() -> None:
    try:
        raise ValueError("secret\nsecond line")
    except ValueError:
        record = logging.LogRecord(
            "uvicorn.error", logging.ERROR, __file__, 1, "Exception in %s\n", ("app",),
            sys.exc_info(),
        )  # fmt: skip
    line = JsonLines().format(record)
    found = json.loads(line)
    assert (found["event"], found["level"], found["error"]) == ("fault", "error", "ValueError")
    assert found["message"] == "Exception in app"
    assert found["place"].startswith("test_service_protocol.py:")
    assert "secret" not in line
    assert "\n" not in line
