"""Breakdown of seconds and bytes under Galvatron's costs, in a report's terms.

Galvatron prices a layer as a whole, so all computation stands under ``matmul``, with embedding,
head and the exposed part of their messages. Of the states, its 16-bit training counts an eighth for
parameters, an eighth for gradients and the rest for the optimizer; 32-bit training a quarter, a
quarter and a half.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...spec.report.report import BREAKDOWN_TERMS, MEMORY_TERMS
from .embedding_head import embedding_head_memory, embedding_head_seconds
from .job import CONTEXT_MB, MB, GalvatronJob
from .layer_memory import UNEVEN, layer_memory
from .layer_time import layer_time
from .plan_cost import GalvatronCost, GalvatronPlan
from .strategy import GalvatronStrategy

ROUNDING = 1e-12
"""Share of a step below which a rest is the sum's rounding."""
PARTS = ("matmul", "recompute", "exposed_tp", "exposed_dp", "exposed_pp")
"""Terms of a layer's seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageBytes:
    """Bytes of a stage: ``used_bytes``; ``reserved_bytes`` add the withheld share."""

    used_bytes: int
    reserved_bytes: int
    by: dict[str, int]


def breakdown(job: GalvatronJob, plan: GalvatronPlan, price: GalvatronCost) -> dict[str, float]:
    """Seconds by term, on the busier end of the pipeline.

    The formula counts no other stage's work in the step.
    """
    ends_s = embedding_head_seconds(job, plan.ends, plan.microbatches)
    stages = [
        _stage_terms(job, plan, stage, ends_s[stage]) for stage in {0, len(plan.division) - 1}
    ]
    busiest = max(stages, key=lambda parts: sum(parts.values()))
    terms = dict.fromkeys(BREAKDOWN_TERMS, 0.0)
    for name, seconds in busiest.items():
        terms[name] = plan.microbatches * seconds
    terms["exposed_dp"] += price.exposed_s
    rest_s = price.step_s - sum(terms.values())
    if abs(rest_s) > ROUNDING * price.step_s:
        terms["bubble" if rest_s > 0 else "unattributed"] += rest_s
    return terms


def _stage_terms(
    job: GalvatronJob, plan: GalvatronPlan, stage: int, ends_s: float
) -> dict[str, float]:
    terms = dict.fromkeys(PARTS, 0.0)
    for kind, strategy in zip(plan.kinds(job)[stage], plan.stages[stage], strict=True):
        parts = layer_time(job, kind, strategy, plan.microbatches).parts
        for name, seconds in zip(PARTS, parts, strict=True):
            terms[name] += seconds
    terms["matmul"] += ends_s
    terms["exposed_tp"] += plan.stage_reshards_s(job, stage)
    return terms


def stage_bytes(
    job: GalvatronJob, plan: GalvatronPlan, price: GalvatronCost, withheld_mb: int
) -> list[StageBytes]:
    """Bytes of each stage by term.

    ``fragmentation`` is rounding and the withheld share.
    """
    ends = embedding_head_memory(job, plan.ends, plan.microbatches)
    return [
        _stage_bytes(job, plan, stage, (ends[stage].states_mb, ends[stage].activation_mb),
                     used, withheld_mb)
        for stage, used in enumerate(price.used_bytes)
    ]  # fmt: skip


def _stage_bytes(
    job: GalvatronJob,
    plan: GalvatronPlan,
    stage: int,
    ends_mb: tuple[float, float],
    used_bytes: int,
    withheld_mb: int,
) -> StageBytes:
    m = plan.microbatches
    kinds = plan.kinds(job)[stage]
    parts = [(plan.ends, *ends_mb)]
    for kind, strategy in zip(kinds, plan.stages[stage], strict=True):
        memory = layer_memory(job, kind, strategy, m, stage)
        parts.append((strategy, memory.states_mb, memory.activation_mb))
    states = [_states(job, strategy, mb, m) for strategy, mb, _ in parts]
    by = dict.fromkeys(MEMORY_TERMS, 0)
    for name, column in zip(("parameters", "gradients", "optimizer"), zip(*states, strict=True),
                            strict=True):  # fmt: skip
        by[name] = int(sum(column) * MB)
    by["activations"] = int(sum(activation_mb for *_, activation_mb in parts) * MB)
    by["communication"] = plan.buffer_mb(job) * MB
    by["context"] = int(CONTEXT_MB) * MB
    reserved = used_bytes + withheld_mb * MB
    by["fragmentation"] = reserved - sum(by.values())
    return StageBytes(used_bytes=used_bytes, reserved_bytes=reserved, by=by)


def _states(
    job: GalvatronJob, strategy: GalvatronStrategy, states_mb: float, microbatches: int
) -> Sequence[float]:
    """MB of parameters, gradients and optimizer of a layer."""
    shares = (1 / 8, 1 / 8, 6 / 8) if job.half else (1 / 4, 1 / 4, 2 / 4)
    even = 1.0 if strategy.dp == 1 else 1 / strategy.shard_ranks + UNEVEN
    kept_shares = (
        even if strategy.zero3 else 1.0,
        even if microbatches == 1 else 1.0,
        even,
    )
    sizes = [part * share for part, share in zip(shares, kept_shares, strict=True)]
    return [states_mb * size / sum(sizes) for size in sizes]
