"""Ranks that break on purpose: time until the culprit is named."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from generators.plan_cases import Case, sharded
from harness.shapes import EVERYTHING, Evidence, Item, Row, judged
from harness.work import Work

from shardwright.executor.launch.fault_injection import VARIABLE
from shardwright.executor.launch.pool import PoolOptions, run_plan
from shardwright.executor.launch.timeouts import plan_timeouts
from shardwright.spec.codec import canonical_json
from shardwright.spec.errors import RunError
from shardwright.spec.plan.plan import Plan

LIMIT_S = 15.0
RANKS, BROKEN, STEP = 4, 2, 4
SLOWER_S = 1.5
"""Sleep of a slow rank in each step."""
WATCHED_S = 60.0
"""Watching time of a run without a slow rank."""
AT_START = ("stop", "hang", "kill")
IN_STEPS = ("kill", "exit", "stop", "hang")
PLANS = {
    "sharded": Case(name="sharded", ranks=RANKS, strategies=sharded("zero3", RANKS)),
    "stages": Case(name="stages", ranks=RANKS, stages=RANKS),
}


class _EnoughError(Exception):
    """Ends a run once enough was observed."""


def run(work: Work) -> Evidence:
    """Each fault in a job of its own."""
    starts = [f"start {how}" for how in AT_START[:: work.sized(1, 2)]]
    alone = [f"alone {rank}" for rank in (0, 1)[: work.sized(2, 1)]]
    steps = [f"step {how} {plan}" for how in IN_STEPS for plan in PLANS][:: work.sized(1, 3)]
    broken = work.pieces([*starts, *alone, *steps], _broken)
    slow = work.pieces(["slow rank", *(["no slow rank"] if not work.quick else [])], _slow)
    first, last = len(starts), len(starts) + len(alone)
    return Evidence(
        rows=[
            _seconds_row("a job whose rank never joins ends", broken[:first]),
            _seconds_row("a rank that was started without the other ends", broken[first:last]),
            _seconds_row("a job whose rank dies or hangs in a step ends", broken[last:]),
            *_slow_rows(slow),
        ]
    )


def _payload(faults: list[dict[str, Any]]) -> dict[str, Any]:
    plain = {"steps": 1_000_000, "random_tokens": True, "follow_bytes": False}
    return {**plain, "faults": faults}


def _broken(key: str) -> dict[str, Any]:
    """A fault, the seconds until the job has ended, and what it said."""
    kind, what, *rest = key.split()
    broken = {"start": _at_start, "alone": _alone}.get(kind)
    result = broken(what) if broken else _in_step(what, rest[0])
    return {"what": key, **result}


def _at_start(how: str) -> dict[str, Any]:
    plan = PLANS["sharded"].plan()
    fault = {"rank": BROKEN, "step": 1, "at": "join", "how": how}
    options = PoolOptions.from_timeouts(plan_timeouts(plan))
    return _ended(plan, [], replace(options, environment={VARIABLE: json.dumps([fault])}))


def _in_step(how: str, name: str) -> dict[str, Any]:
    """A rank that breaks in a step; seconds since the previous step."""
    return _ended(PLANS[name].plan(), [{"rank": BROKEN, "step": STEP, "how": how}])


def _ended(
    plan: Plan, faults: list[dict[str, Any]], options: PoolOptions | None = None
) -> dict[str, Any]:
    """Seconds of a job after its last step, and naming of the rank."""
    last_s = time.monotonic()

    def note(rank: int, event: dict[str, Any]) -> None:
        nonlocal last_s
        last_s = time.monotonic()

    try:
        run_plan(plan, _payload(faults), note, options)
    except RunError as error:
        named = re.match(rf"rank {BROKEN}\b", str(error)) is not None
        return {"seconds": time.monotonic() - last_s, "named": named, "said": str(error)}
    raise RuntimeError("the job did not end")


def _alone(rank: str) -> dict[str, Any]:
    """One of two unsupervised ranks, the other never started."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
        Path(folder, "plan.json").write_text(canonical_json(Case(name="two", ranks=2).plan()))
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
        probe.close()
        environment = {"RANK": rank, "LOCAL_RANK": "0", "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
        begun_s = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-P", "-m", "shardwright.executor.worker", "plan.json"],
            cwd=folder,
            env={**os.environ, **environment, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port},
            capture_output=True,
            text=True,
            check=False,
        )
    last_line = done.stderr.splitlines()[-1]
    named = f"rank {1 - int(rank)}" in last_line.partition("did not join")[0].partition(": ")[2]
    return {"seconds": time.monotonic() - begun_s, "named": named, "said": last_line}


def _slow(key: str) -> dict[str, Any]:
    """Reports of slow ranks in a run with one or none, and delays."""
    faults = [{"rank": BROKEN, "step": 1, "how": "slow", "seconds": SLOWER_S}]
    notes: list[str] = []
    begun_s: list[float] = []

    def look(rank: int, event: dict[str, Any]) -> None:
        now_s = time.monotonic()
        if event["event"] == "step":
            begun_s.append(now_s)
        elif "is slow" in event.get("text", ""):
            notes.append(event["text"])
        if notes or (begun_s and now_s - begun_s[0] > WATCHED_S):
            raise _EnoughError

    try:
        run_plan(PLANS["sharded"].plan(), _payload(faults if key == "slow rank" else []), look)
    except _EnoughError:
        return {"seconds": time.monotonic() - begun_s[0], "notes": notes, "steps": len(begun_s)}
    raise RuntimeError("the job ended")


def _seconds_row(name: str, pieces: list[dict[str, Any]]) -> Row:
    worst = max(piece["seconds"] for piece in pieces)
    named = sum(piece["named"] for piece in pieces)
    times = ", ".join(f"{piece['what']} {piece['seconds']:.1f}" for piece in pieces)
    return judged(
        name,
        f"within {worst:.1f} s, the rank named in {named} of {len(pieces)} ({times})",
        f"less than {LIMIT_S:.0f} s, always named",
        worst < LIMIT_S and named == len(pieces),
        worst_s=worst,
        named=named,
        jobs=len(pieces),
        said=[piece["said"] for piece in pieces],
    )


def _slow_rows(pieces: list[dict[str, Any]]) -> list[Row]:
    slow = pieces[0]
    told = slow["notes"][0] if slow["notes"] else "nothing"
    rows = [
        judged(
            f"a rank that sleeps {SLOWER_S} s in each step",
            f"told of {slow['seconds']:.0f} s after the first step: {told}",
            "named",
            told.startswith(f"rank {BROKEN} is slow"),
            seconds=slow["seconds"],
        )
    ]
    for even in pieces[1:]:
        rows.append(
            judged(
                "ranks that are equally fast",
                f"{len(even['notes'])} called slow in {even['seconds']:.0f} s",
                "none",
                not even["notes"],
                seconds=even["seconds"],
            )
        )
    return rows


ITEM = Item(
    name="faults",
    shows="A rank that is missing, dies, hangs or is slow is named soon.",
    target="A job ends within 15 s with the name of the rank that broke; a slow rank is named.",
    run=run,
    reads=(*EVERYTHING, "tests/support/generators/plan_cases.py"),
    timed=True,
)
