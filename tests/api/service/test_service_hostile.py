"""Bodies, headers and paths that nobody means well by: refused quickly, briefly, as problems.

None may cost the service more than the one request, none is repeated in the answer.
"""

from __future__ import annotations

import gzip
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from service.request_bodies import MODEL
from service.request_bodies import QUESTION as BASE

MARK = "ZyzzyvaMark"
MIB = 1024 * 1024
JSON = {"Content-Type": "application/json"}


def _with(**changes: Any) -> bytes:
    return json.dumps({**BASE, **changes}).encode()


def _workload(**changes: Any) -> bytes:
    return _with(workload={**BASE["workload"], **changes})


def _model(**changes: Any) -> bytes:
    return _with(model={**MODEL, **changes})


def _raw(value: str) -> bytes:
    """The base body with ``value`` in the place of the batch, as it stands."""
    return json.dumps(BASE).replace('"global_batch": 4', f'"global_batch": {value}').encode()


REFUSED = {
    "nothing": b"",
    "null": b"null",
    "list": b"[]",
    "number": b"3",
    "text": b'"model"',
    "half": b'{"model":',
    "missing value": b'{"model":}',
    "trailing comma": b'{"model": "gpt2",}',
    "trailing text": json.dumps(BASE).encode() + b"{}",
    "empty object": b"{}",
    "NaN": _raw("NaN"),
    "Infinity": _raw("Infinity"),
    "minus Infinity": _raw("-Infinity"),
    "1e999": _raw("1e999"),
    "1e3": _raw("1e3"),
    "4.0": _raw("4.0"),
    "true": _raw("true"),
    "a text for a number": _raw('"4"'),
    "negative": _raw("-4"),
    "zero": _raw("0"),
    "too large": _raw(str(2**63)),
    "5000 digits": _raw("9" * 5000),
    "hexadecimal": _raw("0x10"),
    "octal": _raw("007"),
    "single quotes": b"{'model': 'gpt2'}",
    "comment": b'{"model": "gpt2" /* */}',
    "key twice": b'{"model": "gpt2", "model": "gpt2-xl"}',
    "inner key twice": _raw('4, "global_batch": 8'),
    "unknown key": _with(**{MARK: 1}),
    "prototype": _with(__proto__={"x": 1}),
    "200 unknown keys": _with(**{f"{MARK}{n}": n for n in range(200)}),
    "100000 keys": _with(**{f"k{n}": n for n in range(60_000)}),
    "deep lists": b"[" * 100_000 + b"]" * 100_000,
    "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "deep inside": _raw("[" * 100_000 + "]" * 100_000),
    "bad UTF-8": b'{"model": "\xff\xfe"}',
    "overlong UTF-8": b'{"model": "\xc0\xaf"}',
    "UTF-16": json.dumps(BASE).encode("utf-16"),
    "byte order mark": b"\xef\xbb\xbf" + json.dumps(BASE).encode(),
    "NUL": b"\x00" * 100,
    "NUL in a text": _with(model="gpt2\x00"),
    "lone surrogate": b'{"model": "\\ud800", "cluster": "2xH100", "workload": {}}',
    "long text": _with(model="x" * 1_000_000),
    "markup": _with(model=f"<script>{MARK}</script>"),
    "path": _with(model=f"/etc/{MARK}"),
    "path upwards": _with(model="../../../../etc/passwd"),
    "file of this machine": _with(model="/proc/self/environ"),
    "home": _with(model="~/config.json"),
    "model address": _with(model=f"http://127.0.0.1:1/{MARK}.json"),
    "hub name": _with(model="meta-llama/Llama-3.1-8B"),
    "cluster path": _with(cluster=f"/etc/{MARK}.yaml"),
    "cluster file": _with(cluster="cluster.json"),
    "cluster with a newline": _with(cluster="2xH100\n8xH100"),
    "cluster of nothing": _with(cluster="0xH100"),
    "too many devices": _with(cluster="99999999999xH100"),
    "contradictory cluster": _with(
        cluster={"nodes": 2, "devices_per_node": 8, "device": "H100", "node": "DGX-1"}
    ),
    "link faster than memory": _with(
        cluster={
            "nodes": 1,
            "devices_per_node": 2,
            "device": "H100",
            "intra_node_bandwidth_gb_per_s": 1e30,
        }
    ),
    "levels that do not nest": _with(cluster={"groups": [], "levels": []}),
    "experts": _model(experts=100_000),
    "a trillion layers": _model(layers=10**12),
    "uneven heads": _model(heads=3),
    "layers as a text": _model(layers="2"),
    "another optimizer": _workload(optimizer=MARK),
    "another format": _workload(dtype=MARK),
    "batch not divisible": _workload(global_batch=5),
    "towers of nothing": _with(model={"name": MARK, "towers": []}),
    "config of nobody": _with(model={"model_type": MARK}),
    "plan and model": _with(plan={}),
}
SIMULATION_ONLY = ("batch not divisible", "plan and model")
PLAN_BODIES = {
    "empty plan": {"plan": {}},
    "plan of nulls": {"plan": {"models": None, "cluster": None}},
    "newer plan": {"plan": {"schema_version": 99}},
    "plan in a plan": {"plan": {"plan": {"plan": {}}}},
    "giant plan": {
        "plan": {"models": {"main": {"towers": [{"layers": [{"count": 10**15}]}]}}},
    },
}


def check_refusal(answer: httpx.Response, statuses: tuple[int, ...]) -> None:
    """A problem: short, typed, without what was sent."""
    assert answer.status_code in statuses, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert len(answer.content) <= 8192
    document = answer.json()
    assert document["status"] == answer.status_code
    assert {"type", "title", "detail"} <= set(document)
    assert len(document.get("errors", ())) <= 20
    assert "Traceback" not in answer.text


@pytest.fixture(scope="module")
def client(service: Any) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=service.url, timeout=30) as made:
        yield made


@pytest.mark.parametrize("name", REFUSED)
def test_hostile_body(client: httpx.Client, name: str) -> None:
    for path in ("/v1/simulations", "/v1/plans", "/v1/what-ifs"):
        if path == "/v1/plans" and name in SIMULATION_ONLY:
            continue
        start_s = time.monotonic()
        answer = client.post(path, content=REFUSED[name], headers=JSON)
        assert time.monotonic() - start_s < 5
        check_refusal(answer, (422,))
        if name not in ("unknown key", "200 unknown keys"):  # a pointer names the key
            assert MARK not in answer.text


@pytest.mark.parametrize("name", PLAN_BODIES)
def test_hostile_plan(client: httpx.Client, name: str) -> None:
    answer = client.post("/v1/simulations", json=PLAN_BODIES[name])
    check_refusal(answer, (422,))


def test_large_bodies_are_refused_unread(client: httpx.Client) -> None:
    check_refusal(client.post("/v1/plans", content=b"x" * (MIB + 1), headers=JSON), (413,))

    def endless() -> Iterator[bytes]:
        for _ in range(64):
            yield b" " * 65536

    try:
        answer = client.post("/v1/plans", content=endless(), headers=JSON)
        check_refusal(answer, (413,))
    except httpx.TransportError:  # it closed before everything was sent
        assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "application/xml"},
        {"Content-Type": "application/jsonx"},
        {"Content-Type": "application/json", "Content-Encoding": "gzip"},
        {"Content-Type": "application/json", "Content-Encoding": "br"},
    ],
)
def test_what_is_no_plain_json_is_refused(client: httpx.Client, headers: dict[str, str]) -> None:
    body = gzip.compress(b"0" * 10_000_000)
    check_refusal(client.post("/v1/plans", content=body, headers=headers), (415,))


@pytest.mark.parametrize("prefer", ["wait", "wait=", "wait=-1", "wait=abc", "wait=1e9", MARK])
def test_odd_preferences_are_ignored(client: httpx.Client, prefer: str) -> None:
    answer = client.post("/v1/plans", content=b"{}", headers={**JSON, "Prefer": prefer})
    check_refusal(answer, (422,))


@pytest.mark.parametrize(
    "path",
    ["/v1/plans/..", "/v1//plans", "/v1/plans/%2e%2e", "/%00", "/v1/models/../../etc/passwd", "/é"],
)
def test_odd_paths_are_not_found(service: Any, path: str) -> None:
    status, text = _raw_request(service, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert status in (400, 404)
    assert "passwd" not in text


def _raw_request(service: Any, request: str | bytes) -> tuple[int, str]:
    """Status and body of a request that is sent as it stands; 0 where the line was closed."""
    with socket.create_connection(service.address, timeout=15) as client:
        client.sendall(request.encode() if isinstance(request, str) else request)
        client.shutdown(socket.SHUT_WR)
        answer = b""
        while chunk := client.recv(65536):
            answer += chunk
    head, _, body = answer.decode("latin-1").partition("\r\n\r\n")
    return (int(head.split()[1]) if head else 0), body


@pytest.mark.parametrize(
    ("request_head", "statuses"),
    [
        ("GET /healthz HTTP/1.0\r\n\r\n", (421,)),
        ("GET /healthz HTTP/1.1\r\n\r\n", (400, 421)),
        ("GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", (400, 421)),
        ("nonsense\r\n\r\n", (400,)),
        ("GET /" + "a" * 8000 + " HTTP/1.1\r\nHost: localhost\r\n\r\n", (404,)),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nX: " + "a" * 100_000 + "\r\n\r\n", (400, 431)),
        ("POST /v1/plans HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", (400,)),
        (
            "POST /v1/plans HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            "Content-Length: 99999999999999999999999999\r\n\r\n",
            (400, 413),
        ),
        (
            "POST /v1/plans HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
            (0, 400),
        ),
        (
            "POST /v1/plans HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            "Content-Length: 100\r\n\r\n{",
            (0, 400),
        ),
        (
            "POST /v1/plans HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
            (400,),
        ),
    ],
)
def test_odd_requests(service: Any, request_head: str, statuses: tuple[int, ...]) -> None:
    status, text = _raw_request(service, request_head)
    assert status in statuses
    assert len(text) <= 8192
    if status:
        assert {"type", "title", "status", "detail"} <= set(json.loads(text))
    assert httpx.get(service.url + "/healthz").status_code == 200


BOMBS = {
    "10000 layers": _model(layers=10_000),
    "2^40 tokens": _workload(seq_len=2**40),
    "2^40 samples": _workload(global_batch=2**40),
    "a million devices": _with(cluster="125000x8xH100"),
    "prime sizes": _model(hidden=7919, heads=7919, vocab=104_729, head_dim=2),
    "a vocabulary of 2^40": _model(vocab=2**40),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_cost_their_own_request_only(client: httpx.Client, name: str) -> None:
    start_s = time.monotonic()
    headers = {**JSON, "Prefer": "wait=1"}
    answer = client.post("/v1/plans", content=BOMBS[name], headers=headers)
    assert time.monotonic() - start_s < 15
    if answer.status_code == 202:
        assert client.delete(answer.headers["location"]).status_code in (202, 204)
    elif answer.status_code != 200:
        check_refusal(answer, (422, 503))
    assert client.get("/healthz").status_code == 200
