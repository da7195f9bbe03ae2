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

import pytest
import uvicorn

from shardwright.api.server import protocol
from shardwright.api.server.logs import JsonLines
from shardwright.api.server.protocol import ProblemProtocol

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


async def _early(scope: Any, receive: Any, send: Any) -> None:
    """Answers at once, whatever of the body is still to come; ``/wait`` never does."""
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
