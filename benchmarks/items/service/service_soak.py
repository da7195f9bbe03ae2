"""Memory of the service over minutes of mixed requests."""

from __future__ import annotations

import time
from typing import Any

import httpx
from harness.serving import scratch, serving, sqlite_in, tree_bytes
from harness.shapes import EVERYTHING, Evidence, Item, Row, judged
from harness.work import Work
from service import request_bodies as posted

MINUTES, FULL_MINUTES = 6.0, 10.0
JSON = {"Content-Type": "application/json"}


def run(work: Work) -> Evidence:
    """Ask the same again and again."""
    minutes = work.sized(MINUTES, 0.2, FULL_MINUTES)
    soak = work.pieces(["soak"], lambda _: _soaked(60 * minutes))[0]
    return Evidence(rows=[_soak_row(soak)])


def _soaked(seconds: float) -> dict[str, Any]:
    """Memory of all processes after a tenth of the time and at the end."""
    folder = scratch("soak")
    simulation = {**posted.QUESTION, "strategy": {"tp": 1, "dp": 2}}
    with (
        serving(folder, *sqlite_in(folder)) as service,
        httpx.Client(base_url=service.url, timeout=60) as client,
    ):
        start_s, first, rounds = time.monotonic(), 0, 0
        while (spent := time.monotonic() - start_s) < seconds:
            rounds += 1
            answer = client.post("/v1/plans", json=posted.PLAN, headers={"Prefer": "wait=10"})
            client.get(answer.headers["location"])
            client.get("/v1/plans")
            client.post("/v1/simulations", json=simulation)
            client.post("/v1/simulations", content=b"{", headers=JSON)
            client.get("/metrics")
            if not first and spent > seconds / 10:
                first = tree_bytes(service)
        last = tree_bytes(service)
    first = first or last  # a glance may end before its tenth was looked at
    return {"first_bytes": first, "last_bytes": last, "rounds": rounds, "seconds": seconds}


def _soak_row(soak: dict[str, Any]) -> Row:
    growth = soak["last_bytes"] / soak["first_bytes"] - 1
    shown = (f"{growth:+.1%} of {soak['first_bytes'] / 2**20:.0f} MiB in "
             f"{soak['seconds'] / 60:.1f} min, {soak['rounds']} rounds")  # fmt: skip
    return judged("R6: growth of resident memory, all processes", shown, "≤ 5 %", growth <= 0.05,
                  growth=growth)  # fmt: skip


ITEM = Item(
    name="service_soak",
    shows="A service that is asked for minutes keeps nothing of what it answered.",
    target="R6 of the issue: resident memory of all processes grows by at most 5 % in 6 minutes.",
    full_target="R6 of the issue: the same in 10 minutes.",
    run=run,
    reads=(*EVERYTHING, "benchmarks/harness/serving.py", "tests/support/service/services.py",
           "tests/support/service/request_bodies.py"),
)  # fmt: skip
