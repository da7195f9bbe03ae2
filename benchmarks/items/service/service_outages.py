"""Jobs under clocks that differ and disks that are full, with checked histories."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from harness.serving import scratch
from harness.shapes import EVERYTHING, Evidence, Item, Row, judged, unmeasured
from harness.work import Work
from service import postgres
from service.full_disk import FullDisk, filled, limited_files, small_disk
from service.kill_loop import Kills
from service.request_bodies import QUESTION
from service.services import database
from service.skewed_clocks import killed_under_skew

KILLS, FULL_KILLS = 10, 40
SKEW_S = 20
SERVERS = frozenset(range(3, FULL_KILLS, 5))
DISKS, FULL_DISKS = 3, 10
BLOCK = 1000
"""Seeds that a commit may draw."""


def run(work: Work) -> Evidence:
    """Kill under skewed clocks on each database, then fill disks."""
    rows: list[Row] = []
    kills, seed = work.sized(KILLS, 4, FULL_KILLS), work.first_seed(BLOCK)
    for kind in ("sqlite", "postgresql"):
        if kind == "postgresql" and postgres.server() is None:
            rows.append(unmeasured(kind, "PostgreSQL is not installed (make system-deps)"))
            continue
        [piece] = work.pieces([f"{kind} {seed}"], lambda name: _skewed(name, kills))
        rows += _skewed_rows(kind, kills, piece)
    names = [f"disk {number}" for number in range(work.sized(DISKS, 1, FULL_DISKS))]
    rows += _disk_rows(work.pieces(names, _full_disk))
    return Evidence(rows=rows)


def _skewed(name: str, count: int) -> dict[str, Any]:
    kind, _, seed = name.partition(" ")
    folder = scratch("skewed")
    with database(kind, folder) as url:
        kills = Kills(count=count, of_servers=SERVERS, seed=int(seed), body=QUESTION)
        try:
            found, needless = killed_under_skew(folder, ("--db", url), kills, SKEW_S)
        except AssertionError as error:
            return {"fault": str(error)[:300], "jobs": 0, "looks": 0, "needless": 0, "attempts": 0}
    return {
        "fault": None if found.states == {"done": count} else str(dict(found.states)),
        "jobs": found.jobs,
        "looks": found.looks,
        "needless": needless,
        "attempts": found.attempts,
    }


def _full_disk(name: str) -> dict[str, Any]:
    folder = scratch("full")
    try:
        found = _filled(folder)
    except AssertionError as error:
        return {"fault": str(error)[:300], "jobs": 0, "refused": 0, "recovered_s": 0.0}
    return {
        "fault": None,
        "jobs": len(found.places),
        "refused": found.refused,
        "recovered_s": found.recovered_s,
    }


def _filled(folder: Path) -> FullDisk:
    if os.geteuid() != 0:
        return filled(folder, limited_files(folder))
    with small_disk(folder) as fill:
        return filled(folder, fill)


def _skewed_rows(kind: str, kills: int, piece: dict[str, Any]) -> list[Row]:
    fault = f" ({piece['fault']})" if piece["fault"] else ""
    return [
        judged(
            f"{kind}: jobs lost, doubled, stuck or failed under clocks {2 * SKEW_S} s apart",
            f"{int(bool(fault))} runs of 1, {kills} kills, {piece['jobs']} acknowledged jobs, "
            f"{piece['looks']} looks, {piece['attempts']} attempts{fault}",
            "0",
            not fault,
            kills=kills,
            jobs=piece["jobs"],
        ),
        judged(
            f"{kind}: workers replaced though nobody killed them",
            str(piece["needless"]),
            "0",
            piece["needless"] == 0 and not fault,
            needless=piece["needless"],
        ),
    ]


def _disk_rows(disks: list[dict[str, Any]]) -> list[Row]:
    faults = [disk["fault"] for disk in disks if disk["fault"]]
    slowest_s = max(disk["recovered_s"] for disk in disks)
    jobs, refused = (sum(disk[key] for disk in disks) for key in ("jobs", "refused"))
    return [
        judged(
            "full disks: jobs lost, doubled or stuck without a restart, or a service that is ready",
            f"{len(faults)} of {len(disks)} disks, {jobs} acknowledged and {refused} refused jobs, "
            f"all done {slowest_s:.1f} s after there was room"
            + (f" ({faults[0]})" if faults else ""),
            "0",
            not faults,
            disks=len(disks),
            jobs=jobs,
            most_s=slowest_s,
        )
    ]


ITEM = Item(
    name="service_outages",
    shows="No acknowledged job is lost, doubled or stuck where clocks differ or a disk is full.",
    target="0 under 10 kills on each database with clocks 40 s apart, and on 3 full disks.",
    full_target="0 under 40 kills on each database with clocks 40 s apart, and on 10 full disks.",
    run=run,
    reads=(*EVERYTHING, "benchmarks/harness/serving.py",
           "tests/support/service/full_disk.py", "tests/support/service/skewed_clocks.py",
           "tests/support/service/kill_loop.py", "tests/support/service/job_history.py",
           "tests/support/service/services.py", "tests/support/service/postgres.py",
           "tests/support/service/request_bodies.py"),
    timed=True,
)  # fmt: skip
