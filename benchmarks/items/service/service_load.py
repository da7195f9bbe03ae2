"""The service under load: ratios to /healthz, open streams, and three replicas."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
from harness.serving import asked, load, quantile, scratch, serving, sqlite_in
from harness.shapes import EVERYTHING, Evidence, Item, Row, judged, reported, unmeasured
from harness.work import Work
from service import postgres
from service import request_bodies as posted
from service.services import Service, database

SMALL, SLOW = posted.QUESTION, {**posted.SLOW, "deadline_s": 60}
LONG_S = 600.0
"""Longer than a measurement: a worker has its job, and no core goes to it."""
BODY = json.dumps({**SMALL, "deadline_s": LONG_S}).encode()
CONNECTIONS, TOKENS, STREAMS = 16, 200, 200
REPLICAS, SLEPT_S, LOOK_S = 3, 1.0, 0.2
AWAKE = 4
"""Jobs a service before others are timed: most workers have started their children then."""
SLEEPER = """import pathlib, sys, time
if "shardwright.api.server.compute.child" in sys.orig_argv:
    import shardwright.api.server.compute.operations
    seconds, whole = pathlib.Path(__file__).with_name("seconds"), operations.run_operation
    def run_operation(operation, *rest):
        if operation == "plan" and seconds.exists():
            time.sleep(float(seconds.read_text()))
        return whole(operation, *rest)
    operations.run_operation = run_operation
"""
"""Python that a child runs as it starts: once a file says how long, its searches sleep first."""


def run(work: Work) -> Evidence:
    """Load, hold streams, and share one database among replicas."""
    seconds = work.sized(10.0, 2.0)
    kinds = ["rates while jobs sleep", "rates while jobs compute"]
    rates, busy = work.pieces(kinds, lambda kind: _rates(seconds, kind == kinds[0]))
    streams = work.pieces(["streams"], lambda _: _streams(work.sized(STREAMS, 20)))[0]
    rows = [*_rate_rows(rates, busy), *_held_rows(streams, work.sized(STREAMS, 20))]
    if postgres.server() is None:
        why = "PostgreSQL is not installed (make system-deps)"
        return Evidence(rows=[*rows, unmeasured("replicas on one PostgreSQL", why)])
    jobs = work.sized(60, 12)
    for kind in ("sleep", "cpu"):
        replicas = work.pieces([f"{kind} 1", f"{kind} {REPLICAS}"], lambda n: _replicas(n, jobs))
        rows += _replica_rows(kind, replicas)
    return Evidence(rows=rows)


def _rates(seconds: float, sleeps: bool) -> dict[str, Any]:
    """Answers a second of three request kinds, each twice.

    Args:
        seconds: of each measurement.
        sleeps: whether the posted jobs only sleep. Else each is a search of two seconds, and the
            workers take what cores they get.
    """
    folder = scratch("rates")
    tokens = [f"0123456789abcdef-{number}" for number in range(TOKENS)]
    (folder / "tokens").write_text("\n".join(tokens))
    bearer = [("Authorization", f"Bearer {tokens[0]}")]
    rates: dict[str, list[float]] = {}
    p99_s, statuses = 0.0, Counter[str]()
    with (
        _sleepers(folder) as naps,
        serving(folder, *sqlite_in(folder), "--token-file", "tokens") as service,
    ):
        headers = {"Prefer": "wait=30", **dict(bearer)}
        done = httpx.post(f"{service.url}/v1/plans", content=BODY, timeout=60,
                          headers={**headers, "Content-Type": "application/json"})  # fmt: skip
        plan = asked("GET", done.headers["location"], headers=bearer)
        health = asked("GET", "/healthz")
        if sleeps:
            naps.write_text(str(LONG_S))
        for _ in range(2):
            for name, request in (
                ("healthz", lambda _: health),
                ("plan", lambda _: plan),
                ("post", lambda n: asked("POST", "/v1/plans", BODY, _token(tokens, n))),
            ):
                outcome = load(service.address, request, CONNECTIONS, seconds)
                rates.setdefault(name, []).append(outcome.rate)
                statuses.update({f"{name} {status}": n for status, n in outcome.statuses.items()})
                if name == "post":
                    p99_s = max(p99_s, quantile(outcome.seconds, 0.99))
                    time.sleep(2.0)
    best = {name: max(values) for name, values in rates.items()}
    return {"rates": best, "post_p99_s": p99_s, "statuses": statuses}


def _token(tokens: list[str], number: int) -> list[tuple[str, str]]:
    return [("Authorization", f"Bearer {tokens[number % len(tokens)]}")]


def _rate_rows(load_figures: dict[str, Any], busy: dict[str, Any]) -> list[Row]:
    rates = load_figures["rates"]
    plan, post = (rates[name] / rates["healthz"] for name in ("plan", "post"))
    good = {"healthz 200", "plan 200", "post 202"}
    counts = Counter(load_figures["statuses"]) + Counter(busy["statuses"])
    bad = {name: count for name, count in counts.items() if name not in good}
    under = busy["rates"]["post"] / busy["rates"]["healthz"]
    absolute = ", ".join(f"{name} {rate:.0f}/s" for name, rate in rates.items())
    return [
        judged("R6: GET of a plan over GET /healthz", f"{plan:.2f} ({absolute})", "≥ 0.7",
               plan >= 0.7, ratio=plan, **rates),
        judged("R6: durable POST over GET /healthz, posted jobs asleep", f"{post:.3f}", "≥ 0.1",
               post >= 0.1, ratio=post),
        judged("R6: durable POST, posted jobs asleep",
               f"p99 {load_figures['post_p99_s'] * 1000:.0f} ms", "p99 ≤ 150 ms",
               load_figures["post_p99_s"] <= 0.15, p99_s=load_figures["post_p99_s"]),
        reported("R6: durable POST while two searches take the cores",
                 f"{under:.3f} of GET /healthz ({busy['rates']['post']:.0f}/s), "
                 f"p99 {busy['post_p99_s'] * 1000:.0f} ms", ratio=under),
        judged("R6: other answers under load", f"{sum(bad.values())} {bad or ''}".strip(), "0",
               not bad, count=sum(bad.values())),
    ]  # fmt: skip


def _streams(count: int) -> dict[str, Any]:
    """Streams of one job, open at once, each read to its end."""
    folder = scratch("streams")
    ended: list[str] = []
    waits: list[float] = []

    async def one(client: httpx.AsyncClient, location: str) -> None:
        name = ""
        async with client.stream("GET", location + "/events") as answer:
            async for line in answer.aiter_lines():
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
        ended.append(name)

    async def run(service: Service) -> None:
        limits = httpx.Limits(max_connections=count + 10)
        async with httpx.AsyncClient(
            base_url=service.url, timeout=120, limits=limits
        ) as client, anyio.create_task_group() as group:  # fmt: skip
            location = (await client.post("/v1/plans", json=SLOW)).headers["location"]
            for _ in range(count):
                group.start_soon(one, client, location)
            await anyio.sleep(5)
            for _ in range(20):
                start_s = time.perf_counter()
                await client.get("/healthz")
                waits.append(time.perf_counter() - start_s)
                await anyio.sleep(0.1)
            await client.delete(location)

    with serving(folder, *sqlite_in(folder)) as service:
        anyio.run(run, service)
    return {"ended": ended.count("done"), "healthz_p95_s": quantile(waits, 0.95)}


def _held_rows(streams: dict[str, Any], count: int) -> list[Row]:
    shown = f"{streams['ended']} of {count}, /healthz p95 {streams['healthz_p95_s'] * 1000:.0f} ms"
    return [
        judged("R6: event streams held at once, each read to its end", shown, f"{count}",
               streams["ended"] == count, **streams),
    ]  # fmt: skip


def _replicas(name: str, jobs: int) -> dict[str, Any]:
    """Seconds of services on one database for some jobs, once awake."""
    kind, _, count = name.partition(" ")
    folder = scratch("replicas")
    with database("postgresql", folder) as url, ExitStack() as stack:
        naps = stack.enter_context(_sleepers(folder))
        if kind == "sleep":
            naps.write_text(str(SLEPT_S))
        services = [stack.enter_context(serving(folder, "--db", url)) for _ in range(int(count))]
        clients = [stack.enter_context(httpx.Client(base_url=s.url, timeout=60)) for s in services]
        body = posted.PLAN if kind == "sleep" else SMALL
        _done(clients, body, AWAKE * len(clients))
        start_s = time.perf_counter()
        locations = _done(clients, body, jobs)
        seconds = time.perf_counter() - start_s
        ended = [clients[-1].get(location).json() for location in locations]
    attempts = [job["attempt"] for job in ended]
    done = sum(job["state"] == "done" for job in ended)
    return {"seconds": seconds, "done": done, "jobs": jobs, "again": sum(attempts) - jobs}


def _done(clients: Sequence[httpx.Client], body: Any, jobs: int) -> list[str]:
    locations = [
        clients[n % len(clients)].post("/v1/plans", json=body).headers["location"]
        for n in range(jobs)
    ]
    while _open_ones(clients[0]):
        time.sleep(LOOK_S)
    return locations


def _open_ones(client: httpx.Client) -> bool:
    """True if a job runs; one request, to spare the workers' core."""
    items = client.get("/v1/plans", params={"limit": 100}).json()["items"]
    return any(item["state"] not in ("done", "failed") for item in items)


@contextmanager
def _sleepers(folder: Path) -> Iterator[Path]:
    """Services whose children sleep once this file gives the seconds."""
    site = folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SLEEPER)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{site}:{before}" if before else str(site)
    try:
        yield site / "seconds"
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _replica_rows(kind: str, replicas: list[dict[str, Any]]) -> list[Row]:
    one, three = replicas
    gain, least = one["seconds"] / three["seconds"], {"sleep": 2.5, "cpu": 0.9}[kind]
    wrong = [f"{f['jobs'] - f['done']} not done, {f['again']} twice" for f in replicas
             if f["done"] != f["jobs"] or f["again"]]  # fmt: skip
    bound = {"sleep": f"jobs that sleep {SLEPT_S:g} s", "cpu": "jobs that compute"}[kind]
    return [
        judged(f"{REPLICAS} replicas on one PostgreSQL over one: {bound}", f"{gain:.2f}×",
               f"≥ {least:g}×", gain >= least, ratio=gain, one_s=one["seconds"],
               three_s=three["seconds"]),
        judged(f"{bound} done twice or not at all", "; ".join(wrong) or "0", "0", not wrong),
        reported(f"{bound}, one replica", f"{one['jobs'] / one['seconds']:.1f}/s"),
    ]  # fmt: skip


ITEM = Item(
    name="service_load",
    shows="The service under load, with many who watch, and as three on one database.",
    target=(
        "R6 of the issue, while posted jobs sleep; replicas ≥ 2.5× for jobs that sleep, ≥ 0.9× for "
        "those that compute."
    ),
    run=run,
    reads=(*EVERYTHING, "benchmarks/harness/serving.py", "tests/support/service/services.py",
           "tests/support/service/postgres.py", "tests/support/service/request_bodies.py"),
    timed=True,
)  # fmt: skip
