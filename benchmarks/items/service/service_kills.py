"""Jobs under SIGKILL of servers and workers, with checked histories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
from harness.serving import scratch, serving
from harness.shapes import EVERYTHING, Evidence, Item, Row, judged, unmeasured
from harness.work import Work
from service import postgres
from service.kill_loop import Kills, killed
from service.services import database

EACH, FULL_EACH, TOGETHER = 80, 160, 20
"""Kills tried on a database, and in one run of a service; where the last one's worker is not back
yet, there is none to kill."""
ENOUGH, FULL_ENOUGH = 50, 100
BLOCK = 1000
"""Seeds that a commit may draw."""
SERVERS = frozenset(range(3, TOGETHER, 5))
READY_S = 3.0
BODY: dict[str, Any] = {
    "model": "gpt2-xl",
    "cluster": "2x8xV100-32GB",
    "workload": {"global_batch": 128, "seq_len": 1024},
    "deadline_s": 120,
}


def run(work: Work) -> Evidence:
    """Kill, in pieces of so many kills on a fresh database."""
    rows: list[Row] = []
    together = work.sized(TOGETHER, 4)
    for kind in ("sqlite", "postgresql"):
        if kind == "postgresql" and postgres.server() is None:
            rows.append(unmeasured(kind, "PostgreSQL is not installed (make system-deps)"))
            continue
        kills = range(0, work.sized(EACH, together, FULL_EACH), together)
        names = [f"{kind} {work.first_seed(BLOCK) + first}" for first in kills]
        pieces = work.pieces(names, lambda name: _piece(name, together))
        rows += _rows(kind, pieces, work.sized(ENOUGH, 1, FULL_ENOUGH))
    return Evidence(rows=rows)


def _piece(name: str, kills: int) -> dict[str, Any]:
    """A run of kills on a fresh database."""
    kind, _, first = name.partition(" ")
    folder = scratch("kills")
    with database(kind, folder) as url:
        kills_ = Kills(count=kills, of_servers=SERVERS, seed=int(first), body=BODY)
        try:
            outcome = killed(folder, ("--db", url), kills_)
        except AssertionError as error:
            return {"kills": kills, "fault": str(error)[:300], "hashes": [], "ready_s": []}
    return {
        "kills": outcome.killed_workers + len(outcome.ready_s),
        "fault": None if outcome.states == {"done": kills} else str(dict(outcome.states)),
        "hashes": sorted({*outcome.hashes, _unkilled(folder)}),
        "jobs": outcome.jobs,
        "attempts": outcome.attempts,
        "looks": outcome.looks,
        "ready_s": outcome.ready_s,
    }


def _unkilled(folder: Path) -> str:
    with serving(folder, "--db", f"sqlite:///{folder}/unkilled.sqlite") as service:
        answer = httpx.post(
            f"{service.url}/v1/plans", json=BODY, headers={"Prefer": "wait=30"}, timeout=60
        )
        return str(answer.json()["plan_hash"])


def _rows(kind: str, pieces: list[dict[str, Any]], enough: int) -> list[Row]:
    kills = sum(piece["kills"] for piece in pieces)
    faults = [piece["fault"] for piece in pieces if piece["fault"]]
    jobs = sum(piece.get("jobs", 0) for piece in pieces)
    looks = sum(piece.get("looks", 0) for piece in pieces)
    hashes = {value for piece in pieces for value in piece["hashes"]}
    ready = sorted(value for piece in pieces for value in piece["ready_s"])
    rows = [
        judged(
            f"{kind}: jobs lost, doubled, stuck or in a state that cannot be",
            f"{len(faults)} runs of {len(pieces)}, {kills} kills, {jobs} acknowledged jobs, "
            f"{looks} looks" + (f" ({faults[0]})" if faults else ""),
            f"0 under at least {enough} kills",
            not faults and kills >= enough,
            kills=kills,
            jobs=jobs,
            faults=len(faults),
        ),
        judged(
            f"{kind}: plans of killed and unkilled searches",
            f"{len(hashes)} different",
            "1",
            len(hashes) == 1,
        ),
    ]
    if ready:
        rows.append(
            judged(
                f"{kind}: seconds from a restart until it is ready",
                f"median {ready[len(ready) // 2]:.2f}, most {ready[-1]:.2f}, of {len(ready)}",
                f"most ≤ {READY_S:g}",
                ready[-1] <= READY_S,
                most_s=ready[-1],
            )
        )
    return rows


ITEM = Item(
    name="service_kills",
    shows="No acknowledged job of the service is lost or doubled when its processes are killed.",
    target="0 of at least 50 kills on each database; ready within 3 s; the same plan as unkilled.",
    full_target="0 of at least 100 kills a database; ready within 3 s; the same plan as unkilled.",
    run=run,
    reads=(*EVERYTHING, "benchmarks/harness/serving.py", "tests/support/service/kill_loop.py",
           "tests/support/service/job_history.py", "tests/support/service/services.py",
           "tests/support/service/postgres.py", "tests/support/service/request_bodies.py"),
    timed=True,
)  # fmt: skip
