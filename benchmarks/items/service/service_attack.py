"""The service under attack: hostile bodies, slow readers, held connections, a greedy token."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
from harness.serving import quantile, scratch, serving, sqlite_in
from harness.shapes import EVERYTHING, Evidence, Item, Row, judged, reported
from harness.work import Work
from service import attackers, hostile, hostile_bodies
from service import request_bodies as posted
from service.services import Service

GREEDY, OTHER = "0123456789abcdef-greedy", "0123456789abcdef-other"
WRONG = "0123456789abcdef-nobody"
BODIES, READERS, SOCKETS = 3_000, 240, 300
JOBS, SWEEPS, ROWS, STREAMS = 98, 2, 5_000, 230
REJECT_S, HEALTH_S, START_S = 0.5, 0.05, 5.0
RSS_LIMIT = 2**30
PROBED_S = 8.0
TRACED: dict[str, Any] = {
    "model": "gpt2-xl",
    "cluster": "8xH100",
    "workload": {"global_batch": 900, "seq_len": 1024},
    "constraints": {
        "pins": ["pp=8", "tp=1", "dp=1", "micro_batch=1", "recompute=none", "shard=zero0",
                 "schedule=1f1b"],
    },
}  # fmt: skip
"""A plan whose timeline has about 8 MB."""


def run(work: Work) -> Evidence:
    """Attack a service with each of them, and watch ``/healthz``."""
    [bodies] = work.pieces(["bodies"], lambda _: _bodies(work.sized(BODIES, 60), work.seed))
    [readers] = work.pieces(["readers"], lambda _: _readers(work.sized(READERS, 10)))
    probed_s, sockets = work.sized(PROBED_S, 1.0), work.sized(SOCKETS, 20)
    [held] = work.pieces(["held"], lambda _: _held(probed_s, sockets))
    jobs, rows = work.sized(JOBS, 4), work.sized(ROWS, 20)
    [greed] = work.pieces(["greed"], lambda _: _greed(jobs, rows, work.sized(STREAMS, 5)))
    health = {"slow readers": readers["health"], **held, "a greedy token": greed["health"]}
    return Evidence(
        rows=[
            *_body_rows(bodies),
            _reader_row(readers),
            *[_health_row(name, probed) for name, probed in health.items()],
            *_greed_rows(greed),
        ]
    )


def _bodies(count: int, seed: int) -> dict[str, Any]:
    """Hostile bodies, one after the other, so that seconds are their own."""
    folder = scratch("bodies")
    faults, slow, statuses = [], [0.0], Counter[int]()
    with serving(folder, *sqlite_in(folder), "--allow-execute") as service:
        for name, request in hostile_bodies.sample(count, seed):
            start_s = time.perf_counter()
            reply = hostile.sent(service.address, request)
            if reply.status >= 400:
                slow.append(time.perf_counter() - start_s)
            statuses[reply.status] += 1
            wrong = hostile.fault(request, reply)
            if wrong or reply.status >= 500:
                faults.append(f"{name}: {wrong or reply.status}")
    return {"faults": faults, "slow": slow, "sent": statuses.total()}


def _body_rows(bodies: dict[str, Any]) -> list[Row]:
    faults, slow = bodies["faults"], bodies["slow"]
    return [
        judged("hostile bodies: 5xx, undocumented statuses, answers that repeat what was sent",
               f"{len(faults)} of {bodies['sent']:,}" + (f" ({faults[0]})" if faults else ""), "0",
               not faults, faults=len(faults), requests=bodies["sent"]),
        judged("hostile bodies: seconds of a reject",
               f"p99 {quantile(slow, 0.99):.3f}, most {max(slow):.3f}", f"most ≤ {REJECT_S:g}",
               max(slow) <= REJECT_S, most_s=max(slow)),
    ]  # fmt: skip


def _readers(count: int) -> dict[str, Any]:
    """Slow readers of one timeline: the most memory of the service's process."""
    folder = scratch("readers")
    with serving(folder, *sqlite_in(folder)) as service:
        client = httpx.Client(base_url=service.url, timeout=60)
        made = client.post("/v1/plans", json=TRACED, headers={"Prefer": "wait=30"})
        path = made.headers["location"] + "/trace"
        size = len(client.get(path).content)
        with attackers.slow_readers(service.address, path, count) as statuses:
            probed = attackers.probe(service.address, PROBED_S)
            seen = Counter(statuses.values())
        peak = _peak_bytes(service)
    return {"peak": peak, "bytes": size, "statuses": {str(key): n for key, n in seen.items()},
            "health": _figures(probed)}  # fmt: skip


def _peak_bytes(service: Service) -> int:
    text = Path(f"/proc/{service.process.pid}/status").read_text()
    [line] = [line for line in text.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def _reader_row(readers: dict[str, Any]) -> Row:
    count = sum(readers["statuses"].values())
    shown = (f"{readers['peak'] / 2**20:.0f} MiB, {count} readers of "
             f"{readers['bytes'] / 1e6:.1f} MB: {readers['statuses']}")  # fmt: skip
    return judged("slow readers: most resident bytes of the service's process", shown,
                  "≤ 1024 MiB", readers["peak"] <= RSS_LIMIT, bytes=readers["peak"])  # fmt: skip


def _figures(probed: attackers.Probed) -> dict[str, Any]:
    return {"p99_s": quantile(probed.seconds, 0.99), "most_s": max(probed.seconds),
            "count": len(probed.seconds), "failures": probed.failures[:3]}  # fmt: skip


def _held(seconds: float, sockets: int) -> dict[str, Any]:
    """``/healthz`` while senders of single bytes and half-open sockets hold on."""
    folder = scratch("held")
    (folder / "tokens").write_text(f"{GREEDY}\n{OTHER}\n")
    with serving(folder, *sqlite_in(folder), "--token-file", "tokens") as service:
        address = service.address
        found = {"no attack": _figures(attackers.probe(address, seconds))}
        with attackers.chunk_senders(address, (GREEDY, GREEDY)):
            found["bytes one by one, right token"] = _figures(attackers.probe(address, seconds))
        with attackers.chunk_senders(address, (WRONG, WRONG)):
            found["bytes one by one, wrong token"] = _figures(attackers.probe(address, seconds))
        with attackers.half_open(address, sockets):
            found["half-open sockets"] = _figures(attackers.probe(address, seconds))
    return found


def _health_row(name: str, probed: dict[str, Any]) -> Row:
    shown = (f"p99 {probed['p99_s'] * 1000:.0f} ms, most {probed['most_s'] * 1000:.0f} ms of "
             f"{probed['count']}, {len(probed['failures'])} refused")  # fmt: skip
    if name == "no attack":
        return reported("/healthz without an attack", shown, **probed)
    met = probed["p99_s"] <= HEALTH_S and not probed["failures"]
    return judged(f"/healthz under {name}", shown, "p99 ≤ 50 ms, 0 refused", met, **probed)


def _greed(jobs: int, rows: int, streams: int) -> dict[str, Any]:
    """Another token's first job, beside one that asks for all it may."""
    folder = scratch("greed")
    (folder / "tokens").write_text(f"{GREEDY}\n{OTHER}\n")
    with (
        serving(folder, *sqlite_in(folder), "--token-file", "tokens") as service,
        _client(service, GREEDY) as greedy,
        _client(service, OTHER) as other,
        ExitStack() as stack,
    ):
        plan = greedy.post("/v1/plans", json=posted.PLAN, headers={"Prefer": "wait=30"})
        values = [1.0 + number / rows for number in range(rows)]
        sweep = {
            "plan_id": plan.headers["location"].rpartition("/")[2],
            "deadline_s": 86400,
            "sweep": {"intra_node.bandwidth": [f"{value:.6f}x" for value in values]},
        }
        places = [_place(greedy.post("/v1/what-ifs", json=sweep)) for _ in range(SWEEPS)]
        slow = {**posted.SLOW, "deadline_s": 600}
        for number in range(jobs):
            slow["workload"] = {**posted.SLOW["workload"], "seq_len": 4096 + 64 * number}
            places.append(_place(greedy.post("/v1/plans", json=slow)))
        taken = [place for place in places if place]
        for number in range(streams):
            stack.enter_context(_stream(service, taken[number % len(taken)]))
        found = _first_job(other)
        health = _figures(attackers.probe(service.address, 2.0))
    return {**found, "taken": len(taken), "health": health}


def _client(service: Service, token: str) -> httpx.Client:
    bearer = {"Authorization": f"Bearer {token}"}
    return httpx.Client(base_url=service.url, timeout=60, headers=bearer)


def _place(answer: httpx.Response) -> str:
    return answer.headers["location"] if answer.status_code == 202 else ""


def _stream(service: Service, place: str) -> socket.socket:
    one = socket.create_connection(service.address, timeout=10)
    one.sendall(attackers.request_head("GET", f"{place}/events", GREEDY))
    return one


def _first_job(other: httpx.Client) -> dict[str, Any]:
    """Seconds until a job started and until its first event came."""
    start_s = time.monotonic()
    place = _until(lambda: _place(other.post("/v1/plans", json=posted.QUESTION)))
    event = [float("inf")]
    listening = threading.Thread(target=_listen, args=(other, place, start_s, event))
    listening.start()
    _until(lambda: other.get(place).json().get("state", "done") != "queued")
    started = time.monotonic() - start_s
    listening.join(60)
    return {"started_s": started, "event_s": min(event)}


def _until(ask: Callable[[], Any]) -> Any:
    ends_s = time.monotonic() + 60
    while not (found := ask()) and time.monotonic() < ends_s:
        time.sleep(0.1)
    return found


def _listen(client: httpx.Client, place: str, start_s: float, found: list[float]) -> None:
    ends_s = time.monotonic() + 50
    while time.monotonic() < ends_s:
        with client.stream("GET", f"{place}/events", timeout=50) as answer:
            for line in answer.iter_lines() if answer.status_code == 200 else ():
                if line.startswith("event: "):
                    found.append(time.monotonic() - start_s)
                    return
        time.sleep(0.2)


def _greed_rows(greed: dict[str, Any]) -> Sequence[Row]:
    started, event = greed["started_s"], greed["event_s"]
    beside = f"beside {greed['taken']} jobs of another token"
    return [
        judged("a token's first job", f"started after {started:.1f} s, {beside}",
               f"≤ {START_S:g} s", started <= START_S, started_s=started),
        judged("its first event", f"after {event:.1f} s, {beside}", f"≤ {START_S + 1:g} s",
               event <= START_S + 1, event_s=min(event, 1e9)),
    ]  # fmt: skip


ITEM = Item(
    name="service_attack",
    shows="Nothing that a client sends or holds back costs the service more than a little.",
    target="0 × 5xx of 3,000 hostile bodies, each reject ≤ 0.5 s; ≤ 1 GiB under 240 slow readers; "
           "/healthz p99 ≤ 50 ms under every attack; another token's first job within 5 s.",
    run=run,
    reads=(*EVERYTHING, "docs/openapi.json", "benchmarks/harness/serving.py",
           "tests/support/service/attackers.py", "tests/support/service/hostile.py",
           "tests/support/service/hostile_bodies.py", "tests/support/service/services.py",
           "tests/support/service/request_bodies.py"),
    timed=True,
)  # fmt: skip
