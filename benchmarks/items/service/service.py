"""Jobs of the service: first event, best plan, ends, and bombs."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import httpx
from harness.processes import children_peak_bytes, plan_command
from harness.serving import quantile, scratch, serving, sqlite_in
from harness.shapes import EVERYTHING, Evidence, Item, Row, judged
from harness.work import Work
from service import request_bodies as posted

from shardwright.spec.plan.plan import load_plan

LLAMA: dict[str, Any] = {
    "model": "llama-3-70b",
    "cluster": "8x8xH100-80GB",
    "workload": {"global_batch": 512, "seq_len": 8192},
    "deadline_s": 60,
}
BLOCK, SMALL = posted.MODEL, posted.QUESTION
BOMBS: dict[str, dict[str, Any]] = {
    "16,384 layers": {**SMALL, "model": {**BLOCK, "layers": 16_000}},
    "a million layers": {**SMALL, "model": {**BLOCK, "layers": 10**6}},
    "a million devices": {**LLAMA, "cluster": "125000x8xH100"},
    "sizes that are primes": {**LLAMA, "model": {"layers": 97, "hidden": 7919, "heads": 7919,
                                                 "head_dim": 2, "vocab": 104_729}},
    "a sequence of 10^9": {**SMALL, "workload": {"global_batch": 4, "seq_len": 10**9}},
    "a batch of 2^40": {**SMALL, "workload": {"global_batch": 2**40, "seq_len": 64}},
    "a hundred thousand experts": {**LLAMA, "model": {**BLOCK, "experts": 100_000, "topk": 2}},
    "a vocabulary of 5 TB": {**SMALL, "model": {**BLOCK, "hidden": 8192, "heads": 64,
                                                "vocab": 305_000_000}},
    "nested mappings": {**SMALL, "model": {"towers": [{"layers": [{"count": 10**15}]}]}},
    "a contradictory cluster": {**SMALL, "cluster": {"nodes": 2, "devices_per_node": 8,
                                                     "device": "H100", "node": "DGX-1"}},
    "many groups": {**LLAMA, "cluster": "+".join(["8xH100-80GB", "8xA100-80GB"] * 16)},
}  # fmt: skip
BOMB_S = 5.0


def run(work: Work) -> Evidence:
    """Ask, watch, cancel; then bombs beside a watch on /healthz."""
    first = work.pieces(["first words"], lambda _: _first_words(work.sized(40, 3)))[0]
    ends = work.pieces(["ends"], lambda _: _ends(work.sized(12, 2)))[0]
    names = list(BOMBS)[: work.sized(len(BOMBS), 3)]
    bombs = work.pieces(names, _bomb)
    return Evidence(rows=[*_first_rows(first), *_end_rows(ends), *_bomb_rows(names, bombs)])


def _events(client: httpx.Client, location: str) -> Iterator[tuple[str, dict[str, Any]]]:
    name = ""
    with client.stream("GET", location + "/events") as answer:
        for line in answer.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield name, json.loads(line.removeprefix("data: "))


def _first_words(count: int) -> dict[str, Any]:
    """Seconds from POST to first events, on an idle service."""
    folder, counted, tried, best = scratch("first"), [], [], []
    with serving(folder, *sqlite_in(folder)) as service, _client(service.url) as client:
        _warm(client)
        for _ in range(count):
            start_s = time.perf_counter()
            location = client.post("/v1/plans", json=LLAMA).headers["location"]
            seen: set[str] = set()
            for name, data in _events(client, location):
                now_s = time.perf_counter() - start_s
                if "candidates" in data and "counted" not in seen:
                    seen.add("counted")
                    counted.append(now_s)
                if data.get("candidates", 0) > 0 and "tried" not in seen:
                    seen.add("tried")
                    tried.append(now_s)
                if name == "best":
                    best.append(now_s)
                    break
            client.delete(location)
            _await_end(client, location)
            time.sleep(0.3)
    return {"counted": counted, "tried": tried, "best": best, "asked": count}


def _first_rows(delays: dict[str, Any]) -> list[Row]:
    counted, tried, best = (delays[name] for name in ("counted", "tried", "best"))
    shown = f"{len(best)} of {delays['asked']} had one"
    p95, late = quantile(counted, 0.95), quantile(best, 0.95)
    return [
        judged("U11: POST to the first event with a candidate count",
               f"p95 {p95:.3f} s, p95 {quantile(tried, 0.95):.3f} s until it is above 0",
               "p95 ≤ 0.3 s", p95 <= 0.3, p95_s=p95),
        judged("U11: POST to the first best-so-far plan", f"p95 {late:.2f} s; {shown}",
               "≤ 2 s", max(best) <= 2.0 and len(best) == delays["asked"], p95_s=late,
               most_s=max(best)),
    ]  # fmt: skip


def _ends(count: int) -> dict[str, Any]:
    """Plans and gaps of searches cancelled, late or interrupted."""
    chance, folder, ends = random.Random(12), scratch("ends"), []
    with serving(folder, *sqlite_in(folder)) as service, _client(service.url) as client:
        whole = client.post("/v1/plans", json=LLAMA).headers["location"]
        best_s = _await_end(client, whole)["answer"]["prediction"]["step_time_s"]
        for _ in range(count):
            location = client.post("/v1/plans", json=LLAMA).headers["location"]
            _await_best(client, location)
            time.sleep(chance.uniform(0.0, 2.0))
            client.delete(location)
            ends.append(_judged(_await_end(client, location), best_s))
            late = {**LLAMA, "deadline_s": round(chance.uniform(1.0, 5.0), 2)}
            location = client.post("/v1/plans", json=late).headers["location"]
            ends.append(_judged(_await_end(client, location), best_s))
    ends += [_interrupted(chance.uniform(2.0, 4.0), best_s) for _ in range(count)]
    return {"best_s": best_s, "faults": [fault for fault in ends if fault], "asked": len(ends)}


def _interrupted(after_s: float, best_s: float) -> str | None:
    """``plan`` on the command line, after Ctrl-C."""
    words = ["--model", LLAMA["model"], "--cluster", LLAMA["cluster"], "--global-batch", "512",
             "--seq-len", "8192", "--json", "-"]  # fmt: skip
    with subprocess.Popen(
        [*plan_command(), *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        time.sleep(after_s)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    if process.returncode != 0:
        return f"Ctrl-C after {after_s:.1f} s: exit code {process.returncode}"
    return _sound(json.loads(out), best_s)


def _judged(job: dict[str, Any], best_s: float) -> str | None:
    """Fault of an ended job, in its answer or best plan."""
    if job["answer"] is not None:
        return _sound(job["answer"], best_s)
    if job["best"] is None:
        return f"{job['state']} without a plan"
    load_plan(json.dumps(job["best"]["plan"]), "best")
    return _sound_gap(job["best"], job["best"]["step_time_s"], best_s)


def _sound(report: dict[str, Any], best_s: float) -> str | None:
    if not report["prediction"]["feasible"]:
        return "a plan that does not fit"
    load_plan(json.dumps(report["plan"]), "plan")
    return _sound_gap(report["search"], report["prediction"]["step_time_s"], best_s)


def _sound_gap(search: dict[str, Any], step_s: float, best_s: float) -> str | None:
    if search["gap"] is None or search["lower_bound_s"] > best_s * (1 + 1e-9):
        return f"bound {search['lower_bound_s']} above {best_s}"
    if abs(step_s / search["lower_bound_s"] - 1 - search["gap"]) > 1e-6 * (1 + search["gap"]):
        return f"gap {search['gap']} of {step_s} over {search['lower_bound_s']}"
    return None


def _end_rows(ends: dict[str, Any]) -> list[Row]:
    faults = ends["faults"]
    figure = f"{ends['asked'] - len(faults)} of {ends['asked']}"
    return [
        judged("U12: cancelled, late or interrupted searches that left a legal plan, sound gap",
               figure + (f" ({faults[0]})" if faults else ""), "all", not faults,
               faults=len(faults)),
    ]  # fmt: skip


def _bomb(name: str) -> dict[str, Any]:
    """A bomb with a deadline, a small job and /healthz beside it."""
    folder, waits, peak = scratch("bomb"), [], [0]
    over = threading.Event()
    with serving(folder, *sqlite_in(folder)) as service, _client(service.url) as client:

        def watch() -> None:
            with _client(service.url) as poller:
                while not over.wait(0.02):
                    start_s = time.perf_counter()
                    poller.get("/healthz")
                    waits.append(time.perf_counter() - start_s)
                    peak[0] = max(peak[0], children_peak_bytes(service.process.pid))

        _warm(client)
        watching = threading.Thread(target=watch)
        watching.start()
        body = {**BOMBS[name], "deadline_s": BOMB_S}
        start_s = time.perf_counter()
        answer = client.post("/v1/plans", json=body)
        seconds = time.perf_counter() - start_s
        beside = client.post("/v1/plans", json={**SMALL, "deadline_s": BOMB_S})
        outcome = f"{answer.status_code}"
        if answer.status_code == 202:
            job = _await_end(client, answer.headers["location"])
            outcome = job["state"] if job["problem"] is None else str(job["problem"]["status"])
            seconds = _between(job["created_at"], job["finished_at"])
        other = _await_end(client, beside.headers["location"])
        beside_s = time.perf_counter() - start_s
        over.set()
        watching.join()
    return {"outcome": outcome, "seconds": seconds, "beside": other["state"],
            "beside_s": beside_s, "healthz_p99_s": quantile(waits, 0.99),
            "peak_bytes": peak[0]}  # fmt: skip


def _bomb_rows(names: list[str], bombs: list[dict[str, Any]]) -> list[Row]:
    late, most, slow = (
        max(zip((piece[key] for piece in bombs), names, strict=True))
        for key in ("seconds", "peak_bytes", "healthz_p99_s")
    )
    stopped = [n for n, p in zip(names, bombs, strict=True) if p["beside"] != "done"]
    odd = [p["outcome"] for p in bombs if p["outcome"] not in ("done", "422", "cancelled")]
    return [
        judged("R4: a bomb's end after its deadline, from its acceptance on",
               f"{late[0] - BOMB_S:+.2f} s ({late[1]})", "≤ 2 s", late[0] <= BOMB_S + 2,
               seconds=late[0]),
        judged("R4: memory of the process that a bomb has", f"{most[0] / 2**20:.0f} MiB "
               f"({most[1]})", "≤ 1 GiB", most[0] <= 2**30, bytes=most[0]),
        judged("R4: /healthz beside a bomb", f"p99 {slow[0] * 1000:.1f} ms ({slow[1]})",
               "p99 ≤ 50 ms", slow[0] <= 0.05, p99_s=slow[0]),
        judged("R4: jobs beside a bomb that were not done in their own time",
               str(len(stopped)), "0", not stopped),
        judged("R4: answers that are neither a plan nor a 422", f"{len(odd)} {odd or ''}".strip(),
               "0", not odd),
    ]  # fmt: skip


def _between(first: str, last: str) -> float:
    return (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()


def _client(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, timeout=90)


def _warm(client: httpx.Client) -> None:
    """Let every worker do a job, so that its program is loaded."""
    locations = [client.post("/v1/plans", json=SMALL).headers["location"] for _ in range(4)]
    for location in locations:
        _await_end(client, location)


def _await_best(client: httpx.Client, location: str) -> None:
    for name, _ in _events(client, location):
        if name in ("best", "done"):
            return


def _await_end(client: httpx.Client, location: str) -> dict[str, Any]:
    while True:
        job: dict[str, Any] = client.get(location).json()
        if job["state"] in ("done", "failed", "cancelled"):
            return job
        time.sleep(0.05)


ITEM = Item(
    name="service",
    shows="Someone who waits hears soon, keeps the best plan, and no job is another one's loss.",
    target="U11, U12 and R4 of the issue, for llama-3-70b on 64 devices.",
    run=run,
    reads=(*EVERYTHING, "benchmarks/harness/serving.py", "benchmarks/harness/processes.py",
           "tests/support/service/services.py", "tests/support/service/request_bodies.py"),
    timed=True,
)  # fmt: skip
