"""Every schedule kind: free of deadlock, and its paper's length and memory."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from checks.schedule_checks import fault, orders, random_shape
from generators.schedule_cases import (
    PassSeconds,
    activation_bytes,
    bubble_s,
    fixed_step_s,
    pipeline,
    published_share,
    usual_chunks,
)
from harness.shapes import PRICING, Evidence, Item, Row, Table, judged
from harness.work import Work

from shardwright.spec.schedules.stage_order import ALL_KINDS, SPLIT_KINDS, ScheduleKind

SHAPES = 10_000
SHAPES_A_PIECE = 100
TIMES = ((1, 1, 1), (2, 2, 1), (3, 3, 2), (2, 3, 1), (5, 7, 3))
"""Seconds of forward, input gradient and weight gradient."""
MOST_STAGES = 8
EXACT = 1e-12
CLOSE = 0.01


def run(work: Work) -> Evidence:
    """Random shapes, closed forms of the bubble, and published memory."""
    seeds = [f"shapes {n}" for n in range(work.sized(SHAPES // SHAPES_A_PIECE, 2))]
    shapes = work.pieces(seeds, _random_shapes)
    bubbles = work.pieces([f"bubble {kind}" for kind in ALL_KINDS], _bubbles)
    sizes = range(2, work.sized(MOST_STAGES, 4) + 1, 2)
    memory = work.pieces([f"memory {kind} {p}" for kind in SPLIT_KINDS for p in sizes], _memory)
    rows = [_shapes_row(shapes), _bubbles_row(bubbles), _memory_row(memory)]
    return Evidence(rows=rows, tables=(_bubble_table(bubbles), _memory_table(memory)))


def _random_shapes(key: str) -> dict[str, Any]:
    source = random.Random(key)
    kinds: Counter[str] = Counter()
    faults = []
    passes = 0
    for _ in range(SHAPES_A_PIECE):
        shape = random_shape(source)
        actions = orders(shape)
        kinds[shape[0]] += 1
        passes += sum(map(len, actions))
        if reason := fault(shape, actions):
            faults.append(reason)
    return {"kinds": kinds, "faults": faults, "passes": passes}


def _shapes_row(pieces: list[dict[str, Any]]) -> Row:
    kinds: Counter[str] = sum((Counter(p["kinds"]) for p in pieces), Counter())
    faults = [fault for piece in pieces for fault in piece["faults"]]
    counts = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
    return judged(
        "random shapes with passes that are missing, out of turn or never start",
        f"{len(faults)} of {kinds.total()} ({counts})" + (f"; {faults[0]}" if faults else ""),
        f"0 of {SHAPES}",
        not faults,
        shapes=kinds.total(),
        passes=sum(piece["passes"] for piece in pieces),
        faults=len(faults),
    )


def _bubbles(key: str) -> dict[str, Any]:
    """The largest distance between simulated and closed-form bubble of a kind."""
    kind: ScheduleKind = key.split()[1]  # type: ignore[assignment]
    steps, largest, example = 0, 0.0, ""
    for stages in range(2, MOST_STAGES + 1):
        for batches in (2 * stages, 3 * stages, 7 * stages):
            for seconds in TIMES:
                times = PassSeconds(
                    **dict(zip(("forward", "input", "weight"), seconds, strict=True))
                )
                wanted_s = bubble_s(kind, stages, times)
                if wanted_s is None:
                    continue
                step_s = fixed_step_s(pipeline(kind, stages, batches), times)
                found_s = step_s - batches * usual_chunks(kind) * times.work_s
                steps += 1
                largest = max(largest, abs(found_s - wanted_s) / step_s)
                example = f"p {stages}, m {batches}: {found_s:g} s of {step_s:g} s"
    return {"kind": kind, "steps": steps, "largest": largest, "example": example}


def _bubbles_row(pieces: list[dict[str, Any]]) -> Row:
    largest = max(piece["largest"] for piece in pieces)
    steps = sum(piece["steps"] for piece in pieces)
    return judged(
        "simulated bubble against its closed form, as a share of the step",
        f"at most {largest:.1e} in {steps} steps",
        f"{EXACT:g}",
        largest <= EXACT,
        largest=largest,
        steps=steps,
    )


def _bubble_table(pieces: list[dict[str, Any]]) -> Table:
    return Table(
        title="Bubbles by schedule",
        columns=("schedule", "steps", "largest distance", "the last of them"),
        rows=[[p["kind"], str(p["steps"]), f"{p['largest']:.1e}", p["example"]] for p in pieces],
    )


def _memory(key: str) -> dict[str, Any]:
    """Activations of every stage in units of 1F1B's worst stage."""
    kind: ScheduleKind = key.split()[1]  # type: ignore[assignment]
    stages = int(key.split()[2])
    worst = activation_bytes("1f1b", stages, "shardwright")[0]
    shares = [stage_bytes / worst for stage_bytes in activation_bytes(kind, stages, "shardwright")]
    return {"kind": kind, "stages": stages, "shares": shares,
            "published": published_share(kind, stages)}  # fmt: skip


def _memory_row(pieces: list[dict[str, Any]]) -> Row:
    largest = max(abs(s / p["published"] - 1) for p in pieces for s in p["shares"])
    return judged(
        "activations of any stage against the published share of 1F1B's worst stage",
        f"at most {largest:.2%} apart",
        f"{CLOSE:.0%}",
        largest <= CLOSE,
        largest=largest,
    )


def _memory_table(pieces: list[dict[str, Any]]) -> Table:
    return Table(
        title="Activations by schedule, in units of 1F1B's worst stage",
        columns=("schedule", "stages", "published", "leanest stage", "fullest stage"),
        rows=[
            [p["kind"], str(p["stages"]), f"{p['published']:.4f}", f"{min(p['shares']):.4f}",
             f"{max(p['shares']):.4f}"]
            for p in pieces
        ],
    )  # fmt: skip


ITEM = Item(
    name="schedules",
    shows="Every pipeline schedule is free of deadlock, as short and as lean as published.",
    target="no fault in 10,000 random shapes; closed forms exact; memory within 1 %.",
    run=run,
    reads=(*PRICING, "tests/support/checks/schedule_checks.py",
    "tests/support/generators/schedule_cases.py",
           "tests/support/oracles/event_oracle.py", "tests/support/generators/plan_cases.py",
           "tests/support/published/wrong_pricers.py"),
)  # fmt: skip
