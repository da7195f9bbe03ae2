"""Requests that nobody means well by, sent as raw bytes to every route, and what may come back.

The cases are lines of ``hostile_requests.tsv``; the routes and the statuses that each may answer
with are those of ``docs/openapi.json``.
"""

from __future__ import annotations

import json
import random
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("hostile_requests.tsv")
DOCUMENT = Path(__file__).parents[3] / "docs" / "openapi.json"
MARK = "ZyzzyvaMark"
MOST_BYTES = 8192
PROBLEM = "application/problem+json"
PARTS = ("body", "type", "header", "target", "method", "raw")
REPEATED = re.compile(r'\{\{(\d+) x "(.*?)"\}\}')
EDGE = frozenset({0, 400, 401, 404, 405, 408, 413, 415, 421, 431, 503})
"""What a request is answered with that is for no route, or is no HTTP; 0: the line is closed."""
NAMED = {"job_id": "0" * 32, "name": "nothing", "target": "plan"}
WAIT_S, PATIENCE_S = 30.0, 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A line of the table."""

    name: str
    part: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """An operation of the service: its statuses as it documents them, its example."""

    method: str
    path: str
    pattern: re.Pattern[str]
    statuses: frozenset[int]
    body: bytes

    @property
    def is_post(self) -> bool:
        return self.method == "POST"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came back; status 0 where the line was closed without a word."""

    status: int
    headers: str
    body: bytes


@cache
def cases() -> tuple[Case, ...]:
    """Every case of the table."""
    found = []
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, part, text = line.split("\t")
            assert part in PARTS, line
            found.append(Case(name=name, part=part, text=text))
    return tuple(found)


@cache
def routes() -> tuple[Route, ...]:
    """Every operation of the committed description."""
    document = json.loads(DOCUMENT.read_text(encoding="utf-8"))
    found = []
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            filled = re.sub(r"\{(\w+)\}", lambda m: NAMED.get(m[1], m[1]), path)
            found.append(
                Route(
                    method=method.upper(),
                    path=filled,
                    pattern=re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path))),
                    statuses=frozenset(map(int, operation["responses"])),
                    body=_example(operation),
                )
            )
    return tuple(found)


def _example(operation: dict[str, Any]) -> bytes:
    kinds = operation.get("requestBody", {}).get("content", {})
    example = kinds.get("application/json", {}).get("example", {"model": "gpt2"})
    return json.dumps(example).encode()


def request_of(case: Case, route: Route) -> bytes:
    """The bytes of a case for a route."""
    text = _bytes(case.text, route)
    head = {"method": route.method.encode(), "target": route.path.encode(), "header": b""}
    kind, body = b"application/json", route.body if route.is_post else b""
    if case.part == "raw":
        return text
    if case.part == "body":
        body = text
    elif case.part == "type":
        kind = text
    else:
        head[case.part] = text
    lines = b"%b %b HTTP/1.1\r\nHost: localhost\r\n" % (head["method"], head["target"])
    typed = b"Content-Type: %b\r\n" % kind if kind else b""
    sized = b"Content-Length: %d\r\n" % len(body) if body or route.is_post else b""
    return lines + typed + sized + head["header"] + b"\r\n" + body


def _bytes(text: str, route: Route) -> bytes:
    """A cell of the table as bytes."""
    known = {
        "{{body}}": route.body,
        "{{opened}}": route.body[:-1],
        "{{method}}": route.method.encode(),
        "{{path}}": route.path.encode(),
    }
    found, rest = b"", text
    while rest:
        macro = next((name for name in known if rest.startswith(name)), None)
        if macro is not None:
            found, rest = found + known[macro], rest[len(macro) :]
        elif repeated := REPEATED.match(rest):
            found += _escaped(repeated[2]) * int(repeated[1])
            rest = rest[repeated.end() :]
        else:
            plain = re.match(r"\{?[^{]*", rest)
            assert plain is not None
            found, rest = found + _escaped(plain[0]), rest[plain.end() :]
    return found


def _escaped(text: str) -> bytes:
    return text.encode("latin-1").decode("unicode_escape").encode("latin-1")


def mutated(request: bytes, chance: random.Random) -> bytes:
    """A request with a few bytes changed, dropped or doubled."""
    made = bytearray(request[:20_000])
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(max(1, len(made)))
        kind = chance.randrange(4)
        if kind == 0 and made:
            made[place] = chance.randrange(256)
        elif kind == 1:
            made[place:place] = bytes(chance.choices(range(256), k=chance.randint(1, 8)))
        elif kind == 2:
            del made[place : place + chance.randint(1, 16)]
        else:
            made[place:place] = made[place : place + 64]
    return bytes(made)


def sent(address: tuple[str, int], request: bytes) -> Reply:
    """Send bytes as they stand and read the first answer; half a request is ended after a while."""
    answer = b""
    with socket.create_connection(address, timeout=WAIT_S) as client:
        with suppress(OSError):  # it may answer, and close, before everything was sent
            client.sendall(request)
        client.settimeout(PATIENCE_S)
        ended = False
        while not _is_whole(request, answer):
            try:
                chunk = client.recv(65536)
            except TimeoutError:
                if ended:
                    raise
                ended = True  # it waits for more, or computes
                client.settimeout(WAIT_S)
                if not is_ended(request):
                    client.shutdown(socket.SHUT_WR)
                continue
            except ConnectionError:
                break  # what it did not read is thrown away with the line
            if not chunk:
                break
            answer += chunk
            if answer.startswith(b"HTTP/1.1 100"):  # it asks for what was sent already
                answer = answer.partition(b"\r\n\r\n")[2]
    head, _, body = answer.partition(b"\r\n\r\n")
    first = head.split(b" ", 2)
    status = int(first[1]) if len(first) > 1 else 0
    return Reply(status=status, headers=head.decode("latin-1").casefold(), body=body)


def is_ended(request: bytes) -> bool:
    """Whether it is a whole request, so that only its answer is waited for."""
    head, found, body = request.partition(b"\r\n\r\n")
    length = re.search(rb"\ncontent-length[ \t]*:[ \t]*(\d{1,8})(?!\d)", head, re.IGNORECASE)
    chunked = b"chunked" in head.lower()
    return bool(found) and not chunked and len(body) >= (int(length[1]) if length else 0)


def _is_whole(request: bytes, answer: bytes) -> bool:
    """Whether the first answer is here."""
    head, found, body = answer.partition(b"\r\n\r\n")
    if not found:
        return False
    length = re.search(rb"\r\ncontent-length: (\d+)", head, re.IGNORECASE)
    bare = request.startswith(b"HEAD ") or head.split(b" ", 2)[1] in (b"204", b"304")
    return bare or (length is not None and len(body) >= int(length[1]))


def fault(request: bytes, reply: Reply) -> str | None:
    """What is wrong with a reply; None where nothing is."""
    status = reply.status
    if status >= 500 and status != 503:
        return f"status {status}"
    allowed = _allowed(request)
    if status not in allowed:
        return f"status {status} is not documented"
    if status < 400:
        return None
    # A pointer names a key that is out of place, and nothing else of what was sent.
    if MARK.encode() in reply.body.replace(b"/" + MARK.encode(), b""):
        return "it repeats what was sent"
    return _form_fault(request, reply)


def _form_fault(request: bytes, reply: Reply) -> str | None:
    body = reply.body
    if len(body) > MOST_BYTES:
        return f"{len(body)} bytes"
    if request.startswith(b"HEAD "):
        return None
    if f"content-type: {PROBLEM}" not in reply.headers:
        return "no problem document"
    first, _ = json.JSONDecoder().raw_decode(body.decode("ascii"))  # a second answer may follow
    if first["status"] != reply.status or not {"type", "title", "detail"} <= set(first):
        return "no whole problem document"
    return "a traceback" if b"Traceback" in body else None


def _allowed(request: bytes) -> frozenset[int]:
    """What may be answered: what the route documents, or what the edge says of all else."""
    method, _, rest = request.partition(b" ")
    path = re.split(rb"[ ?]", rest, maxsplit=1)[0].decode("latin-1")
    verb = method.decode("latin-1")
    for route in routes():
        if route.method == verb and route.pattern.fullmatch(path):
            return route.statuses | {0}
    return EDGE


def sample(count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """So many requests: all cases over all routes first, in a random order, then changed ones."""
    chance = random.Random(seed)
    every = [(case, route) for case in cases() for route in routes()]
    chance.shuffle(every)
    for number in range(count):
        case, route = every[number % len(every)]
        request = request_of(case, route)
        if number >= len(every):
            request = mutated(request, chance)
        yield f"{case.name}: {route.method} {route.path}", request


def faults(address: tuple[str, int], some: Sequence[tuple[str, bytes]]) -> list[str]:
    """What was wrong with the replies to some requests."""
    found = []
    for name, request in some:
        wrong = fault(request, sent(address, request))
        if wrong is not None:
            found.append(f"{name}: {wrong}")
    return found
