"""Answers for a stack keep to what it can run, and beat its textbook plans.

Random requests of small models, named and typed, on small clusters, for each stack of one strategy.
Every answer and every runner-up is held against the catalogue's limits; textbook plans (data
parallelism under each level, tp inside the node, an even pipeline) are simulated apart, and none
may beat the best answer, nor tie with it and be neither the answer nor counted among the ties.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # small arrays: threads only take each other's time

from generators.catalogue_problems import problem
from harness.shapes import PLANNING, Evidence, Item, Row, judged, reported
from harness.work import Work

from shardwright.api.planning.report import simulate_plan
from shardwright.api.planning.uniform_plan import UniformStrategy, uniform_plan
from shardwright.planner.solve.options import SolveOptions
from shardwright.planner.solve.problem import Problem
from shardwright.planner.solve.solution import Solution
from shardwright.planner.solve.solve import solve
from shardwright.spec.errors import InfeasibleError, InputError, NotBuiltError
from shardwright.spec.rules.stack_limits import stack_plan_violations

STACKS = ("megatron", "torchtitan", "deepspeed", "transformers", "accelerate")
DRAWN, FULL = 20, 300
MODELS = ("gpt2", "qwen3-0.6b", "llama-3.2-1b", "llama-3.2-3b", "llama-3-8b", "moonlight")
CLUSTERS = (
    "1xH100-80GB",
    "2xRTX-4090",
    "4xA100-80GB",
    "8xH100-80GB",
    "8xA100-40GB",
    "16xH100-80GB",
    "4x8xA100-80GB",
)
TYPED_SHARE = 0.5
EQUAL = 1e-9
TEXTBOOK: tuple[dict[str, Any], ...] = (
    *({"shard": level} for level in ("zero0", "zero1", "zero2", "zero3", "hsdp")),
    *({"shard": "zero1", "tp": tp, "sp": "megatron"} for tp in (2, 4, 8)),
    *({"shard": "zero3", "tp": tp, "sp": "megatron"} for tp in (2, 4, 8)),
    *({"shard": "zero1", "pp": pp} for pp in (2, 4)),
    {"shard": "zero1", "tp": 2, "sp": "megatron", "pp": 2},
)
"""Strategies, each with and without full recomputation, and with micro-batches of 1 to 8."""


def run(work: Work) -> Evidence:
    """Plan for random requests of every stack, and hold the answers."""
    work.spreads = True
    count = work.sized(DRAWN, 4, FULL)
    first = work.first_seed(10_000)
    names = [f"{stack} {first + n}" for stack in STACKS for n in range(count)]
    return Evidence(rows=_rows(work.pieces(names, held)))


def held(name: str) -> dict[str, Any]:
    """One request of a stack: what its answer breaks, and textbook plans that beat it."""
    stack, _, seed = name.partition(" ")
    asked = _request(stack, random.Random(f"stack answers {seed}"))
    try:
        solution = solve(asked, SolveOptions(top=8, simple_within=0.01))
    except InfeasibleError:
        fits = any(step_s is not None for step_s in _textbook(asked))
        return {"stack": stack, "answered": False, "faults": [], "beaten": fits, "missing": False}
    plans = [solution.plan, *(a.plan for a in solution.alternatives)]
    faults = [reason for plan in plans for reason in stack_plan_violations(plan, asked.stack)]
    steps = [solution.prediction, *(a.prediction for a in solution.alternatives)]
    best_s = min(prediction.step_time_s for prediction in steps)
    textbook = [step_s for step_s in _textbook(asked) if step_s is not None]
    least_s = min(textbook, default=float("inf"))
    return {
        "stack": stack,
        "answered": True,
        "faults": faults,
        "beaten": least_s < best_s * (1 - EQUAL),
        "missing": _is_missing(solution, textbook, best_s),
        "proven": solution.search.stopped_by == "proof",
        "textbook": len(textbook),
    }


def _is_missing(solution: Solution, textbook: Sequence[float], best_s: float) -> bool:
    """True if the fastest textbook plan ties, and no plan that is shown is as fast."""
    least_s = min(textbook, default=float("inf"))
    if least_s > best_s * (1 + solution.search.tie_set.within):
        return False
    shown = [solution.prediction, *(a.prediction for a in solution.alternatives)]
    return not any(p.step_time_s <= least_s * (1 + EQUAL) for p in shown)


def _request(stack: str, source: random.Random) -> Problem:
    name = source.choice(MODELS)
    cluster, batch = source.choice(CLUSTERS), source.choice((8, 16, 24, 32, 64, 128))
    seq_len = source.choice((1024, 2048, 4096))
    model: Any = name
    if source.random() < TYPED_SHARE:  # layers that no pipeline divides, vocabularies that weigh
        sizes = {"layers": source.randint(5, 48), "vocab": source.choice((8000, 50000, 150000))}
        model = {"hidden": 1024, "heads": 16, "activation": "swiglu", "norm": "rmsnorm", **sizes}
    elif name == "gpt2":
        seq_len = 1024
    return problem(model, cluster, batch, seq_len, stack=stack)


def _textbook(asked: Problem) -> Iterator[float | None]:
    """Seconds of each textbook plan that is legal, fits and is one of the stack's."""
    for flags in TEXTBOOK:
        for recompute in ("none", "full"):
            for micro_batch in (1, 2, 4, 8):
                words = {**flags, "recompute": recompute, "micro_batch": micro_batch}
                try:
                    plan, _ = uniform_plan(asked, UniformStrategy.from_flags(words))
                    if stack_plan_violations(plan, asked.stack):
                        continue
                    done = simulate_plan(plan, asked.stack, asked.measured, ())
                except (InputError, NotBuiltError):
                    continue
                prediction = done.report.prediction
                yield prediction.step_time_s if prediction.feasible else None


def _rows(pieces: Sequence[dict[str, Any]]) -> list[Row]:
    answered = [p for p in pieces if p["answered"]]
    broken = [p for p in pieces if p["faults"]]
    beaten, missing = ([p for p in pieces if p[key]] for key in ("beaten", "missing"))
    faults = sorted({fault for p in broken for fault in p["faults"]})
    return [
        reported("requests", f"{len(pieces)}, {len(answered)} with an answer"),
        judged(
            "answers that break their stack's limits",
            f"{len(broken)}" + (f" ({'; '.join(faults[:3])})" if faults else ""),
            "0",
            not broken,
            broken=len(broken),
        ),
        judged("answers that a textbook plan beats", str(len(beaten)), "0", not beaten),
        judged("textbook plans that tie and are not shown", str(len(missing)), "0", not missing),
        reported("answers proven", f"{sum(p['proven'] for p in answered)} of {len(answered)}"),
        reported("textbook plans simulated", f"{sum(p['textbook'] for p in answered):,}"),
    ]


ITEM = Item(
    name="stack_answers",
    shows="Answers for a stack keep to what it can run, and no textbook plan beats them.",
    target="0 of 20 random requests of each of five stacks.",
    full_target="0 of 300 random requests of each of five stacks.",
    run=run,
    reads=(
        *PLANNING,
        "api/planning",
        "api/problem",
        "tests/support/generators/catalogue_problems.py",
    ),
)
