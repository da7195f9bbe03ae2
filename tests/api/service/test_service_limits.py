"""Slow readers, and peers that want everything."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import uvicorn
from service import attackers
from starlette.requests import Request
from starlette.responses import Response

from shardwright.api.server.admission import Admission, AdmissionRules, FullError
from shardwright.api.server.answer_stream import STEP_BYTES, AnswerStream
from shardwright.api.server.gate import Gate, GateRules, hash_token
from shardwright.api.server.jobs.recent import RecentDocuments
from shardwright.api.server.jobs.routes.views import ViewRoutes
from shardwright.api.server.protocol import ProblemProtocol

MIB = 2**20
READERS, ROOM = 40, 8
SAME = b"s" * MIB


async def _large(scope: Any, receive: Any, send: Any) -> None:
    """A document of a MiB: the same for all, or one of the request's own."""
    body = SAME if scope["path"] == "/same" else bytes(bytearray(b"o" * MIB))
    head = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def _served(app: Any) -> Iterator[tuple[str, int]]:
    config = uvicorn.Config(
        app, http=ProblemProtocol, log_config=None, lifespan="off", ws="none", access_log=False,
        timeout_graceful_shutdown=1,
    )  # fmt: skip
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as bound:
        # A kernel that would take the whole document hides how slowly it is read.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield bound.getsockname()
        server.should_exit = True
        thread.join()


def _statuses(address: tuple[str, int], path: str) -> Counter[int]:
    with attackers.slow_readers(address, path, READERS) as statuses:
        ends_s = time.monotonic() + 8
        while len(statuses) < READERS and time.monotonic() < ends_s:
            time.sleep(0.05)
        return Counter(statuses.values())


def test_bytes_of_slow_readers_are_bounded() -> None:
    admission = Admission(AdmissionRules(answer_bytes=ROOM * MIB, answer_bytes_of_peer=ROOM * MIB))
    with _served(AnswerStream(_large, admission)) as address:
        assert _statuses(address, "/own") == {200: ROOM, 503: READERS - ROOM}
        url = f"http://{address[0]}:{address[1]}/own"
        ends_s = time.monotonic() + 5
        while (answer := httpx.get(url)).status_code != 200 and time.monotonic() < ends_s:
            assert answer.headers["retry-after"]
            assert answer.headers["content-type"] == "application/problem+json"
            time.sleep(0.1)
        assert answer.content == b"o" * MIB  # room again, and nothing is lost on the way
        assert _statuses(address, "/same") == {200: READERS}  # one document, however many read it


def test_large_answers_are_handed_on_in_steps() -> None:
    sent: list[Any] = []
    turns: list[int] = []

    def others() -> None:
        turns.append(len(sent))
        asyncio.get_running_loop().call_soon(others)

    async def send(message: Any) -> None:
        if not turns:
            others()
        sent.append(message)

    scope: Any = {"type": "http", "path": "/same"}
    asyncio.run(AnswerStream(_large, Admission(AdmissionRules()))(scope, _never, send))
    assert len(turns) > 8  # a reader that takes all at once keeps nobody waiting
    bodies = [bytes(message["body"]) for message in sent[1:]]
    assert b"".join(bodies) == SAME
    assert max(map(len, bodies)) <= STEP_BYTES
    assert [message["more_body"] for message in sent[1:]] == [True] * (len(bodies) - 1) + [False]


async def _never() -> Any:
    await asyncio.Event().wait()


def test_a_view_that_many_ask_for_is_made_once() -> None:
    calls: list[str] = []

    async def call(request: Any, operation: str, body: bytes, limit_s: float) -> Response:
        calls.append(operation)
        await asyncio.sleep(0.01)
        return Response(b"a view")

    async def row(owner: str, kind: str, job_id: str) -> Any:
        return SimpleNamespace(status=200, answer="{}", outcome="done"), None

    async def submitted(job_id: str) -> Any:
        return SimpleNamespace(given_calibration=None, body="{}")

    jobs: Any = SimpleNamespace(recent=RecentDocuments(), row=row, submitted=submitted)

    async def run() -> set[bytes]:
        views = ViewRoutes(jobs, call)
        scope = {"type": "http", "headers": [], "owner": "a", "path_params": {"job_id": "0" * 32}}
        answers = await asyncio.gather(*(views.trace(Request(scope)) for _ in range(READERS)))
        return {bytes(answer.body) for answer in answers}

    assert asyncio.run(run()) == {b"a view"}
    assert calls == ["trace"]


def test_one_peer_leaves_room_for_others() -> None:
    rules = AdmissionRules(requests=3, requests_of_peer=2, answer_bytes=30, answer_bytes_of_peer=20)
    admission = Admission(rules)
    anna, ben = ({"owner": name, "client": ("127.0.0.1", 1)} for name in "ab")
    first, second, third = b"1" * 10, b"2" * 10, b"3" * 10
    with admission.request(anna), admission.request(anna):
        with pytest.raises(FullError), admission.request(anna):
            pass
        with admission.request(ben), pytest.raises(FullError), admission.request(ben):
            pass
    with admission.answer(anna, first), admission.answer(anna, second):
        with admission.answer(anna, first):  # counted once
            pass
        with pytest.raises(FullError), admission.answer(anna, third):
            pass
        with (
            admission.answer(ben, third),
            pytest.raises(FullError),
            admission.answer(ben, b"4" * 10),
        ):
            pass
    with admission.request(anna), admission.answer(anna, third):  # all was given back
        assert admission.answer is not None


def test_health_is_told_however_much_is_under_way() -> None:
    token = "a" * 20
    rules = GateRules(hosts=None, token_hashes=(hash_token(token),))

    async def run() -> dict[str, int]:
        held = asyncio.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            if scope["path"] == "/v1/models":
                await held.wait()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})

        gate = Gate(app, rules, Admission(AdmissionRules(requests=2, requests_of_peer=1)))

        async def ask(path: str) -> int:
            sent: list[Any] = []

            async def send(message: Any) -> None:
                sent.append(message)

            head = [(b"authorization", f"Bearer {token}".encode())]
            scope = {
                "type": "http",
                "method": "GET",
                "path": path,
                "raw_path": b"",
                "headers": head,
            }
            await gate(scope, _never, send)
            return int(sent[0]["status"])

        waiting = asyncio.create_task(ask("/v1/models"))
        await asyncio.sleep(0)
        found = {path: await ask(path) for path in ("/v1/models", "/v1/clusters", "/healthz")}
        held.set()
        return {**found, "first": await waiting}

    refused = {"/v1/models": 503, "/v1/clusters": 503}
    assert asyncio.run(run()) == {**refused, "/healthz": 200, "first": 200}
