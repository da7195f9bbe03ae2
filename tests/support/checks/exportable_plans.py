"""Seeded random legal plans that a framework can say, and others that it cannot."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from shardwright.api.frameworks.exportable import exportable
from shardwright.api.frameworks.framework import Framework
from shardwright.api.planning.uniform_chunks import layer_chunks
from shardwright.api.planning.uniform_plan import UniformStrategy, uniform_plan
from shardwright.api.problem.resolve import Inputs, resolve
from shardwright.planner.solve.problem import Problem
from shardwright.spec.cluster.stack_spec import StackLimits, StackSpec
from shardwright.spec.errors import ShardwrightError
from shardwright.spec.model.model_spec import BlockLayer
from shardwright.spec.plan.layer_cuts import cuts
from shardwright.spec.plan.plan import Plan
from shardwright.spec.rules.stack_limits import stack_plan_violations

DENSE: dict[str, Any] = {
    "layers": 8, "hidden": 256, "ffn": 1024, "heads": 8, "kv_heads": 4, "vocab": 1024, "name": "s"
}  # fmt: skip
SPARSE = {**DENSE, "experts": 8, "topk": 2, "expert_ffn": 256, "dense_layers": 1}
GPT = {**DENSE, "family": "gpt2", "kv_heads": 8}
MODELS = (DENSE, SPARSE, GPT)
DTYPES = {"torchtitan": ("bf16", "fp32")}
"""Formats of frameworks that lack some."""
WORDS = ("none", "selective", "selective-ops", "full")
SHARDS = ("zero0", "zero1", "zero2", "zero3", "hsdp:2", "hsdp:4", "hpz:2", "1/1/2", "1/2/4")
SCHEDULES = (("1f1b", 1), ("interleaved", 2), ("gpipe", 1), ("zero_bubble", 1), ("zbv", 2),
             ("dualpipe", 2))  # fmt: skip


def random_plans(
    framework: Framework, count: int, seed: int, *, inside: bool = True
) -> Iterator[tuple[Plan, StackSpec]]:
    """Plans within a framework's limits, or outside, each with the stack that prices it."""
    rng = random.Random(f"{framework.name} {seed}")
    found = 0
    for _ in range(count * 400):
        try:
            plan, stack = _random_plan(framework, rng, inside)
        except ShardwrightError:
            continue
        if plan.check() or _is_said(framework, plan, stack) != inside:
            continue
        yield plan, stack
        found += 1
        if found == count:
            return
    raise AssertionError(f"{found} of {count} plans for {framework.name}")


def _is_said(framework: Framework, plan: Plan, stack: StackSpec) -> bool:
    """True if the framework's files say a plan as it is."""
    if not stack_plan_violations(plan, framework.narrow(stack)):
        return True
    if framework.layerwise is None:
        return False
    found = framework.layerwise(exportable(plan, stack), stack, lambda made: (False, 0.0))
    return found is not None and not found[1]


def _random_plan(framework: Framework, rng: random.Random, inside: bool) -> tuple[Plan, StackSpec]:
    sparse = rng.choice(MODELS)
    problem = _problem(framework, sparse, rng)
    narrow = framework.narrow(problem.stack)
    limits = narrow.limits if inside else StackLimits()
    schedules = [pair for pair in SCHEDULES if not inside or pair[0] in narrow.schedules]
    kind, vpp = rng.choice(schedules)
    pp = rng.choice((1, 2, 2, 4)) if "pp" in limits.axes else 1
    if pp == 1:
        kind, vpp = "1f1b", 1
    has_experts = "experts" in sparse
    splits = "tp" in limits.axes or limits.sequence_parallel == ("ulysses",)
    flags = UniformStrategy(
        tp=rng.choice((1, 2, 4)) if splits else 1,
        pp=pp,
        vpp=vpp,
        cp=rng.choice((1, 1, 2)) if "cp" in limits.axes else 1,
        ep=rng.choice((1, 2)) if has_experts and "ep" in limits.axes else None,
        etp=rng.choice((1, 2)) if has_experts and "etp" in limits.axes else None,
        sp=rng.choice(limits.sequence_parallel),
        shard=rng.choice([word for word in SHARDS if _kind(word) in limits.shard]),
        schedule=kind,
        micro_batch=rng.choice((1, 2)),
        recompute=rng.choice(narrow.recompute if inside else WORDS),
        techniques={"cpu_offload": rng.choice(("none", "none", "optimizer", "all"))},
    )
    layers = problem.model.layers()
    is_block = [isinstance(layer, BlockLayer) for layer in layers]
    rule = problem.stack.limits.layer_cut
    found = list(cuts(rule, is_block, kind, pp, vpp))[:6]  # type: ignore[arg-type]
    cut = rng.choice(found) if found else (0, len(layers))
    sizes = [b - a for a, b in pairwise(cut)]
    plan, _ = uniform_plan(
        problem, flags, lambda model, chunks, strategy: layer_chunks(model, sizes, chunks, strategy)
    )
    return plan, problem.stack


def _problem(framework: Framework, model: dict[str, Any], rng: random.Random) -> Problem:
    return resolve(
        Inputs(
            model=model,
            cluster=rng.choice(("8xH100-80GB", "2x8xH100-80GB", "1x4xA100-80GB")),
            global_batch=rng.choice((32, 64)),
            seq_len=512,
            dtype=rng.choice(DTYPES.get(framework.name, ("bf16", "bf16", "fp16", "fp32"))),
            stack=framework.stack,
        )
    )


def _kind(word: str) -> str:
    head = word.partition(":")[0]
    return "nested" if "/" in word else head
