"""Holding a recorded step against the lowered one, item by item."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from generators.family_cases import FamilyCase
from generators.plan_cases import Case
from ranks.rank_pools import RankPool

from shardwright.costmodel.lowering.step_work import step_work
from shardwright.costmodel.technique import TechniquePrices
from shardwright.costmodel.techniques import TECHNIQUES
from shardwright.datasets.catalogue.stack import stack
from shardwright.spec.cluster.stack_spec import StackSpec
from shardwright.spec.plan.plan import Plan
from shardwright.spec.report.work_items import (
    IGNORED_BELOW_BYTES,
    IGNORED_KERNELS,
    Collective,
    Kernel,
)


def executor_stack(flash: bool, fused: bool = False) -> StackSpec:
    """Our own stack on cores, with the attention and the kernels that the run uses."""
    on_cores = stack("shardwright", on_cores=True)
    kernels = stack("shardwright").fusion if fused else on_cores.fusion
    return replace(on_cores, attention="flash" if flash else "unfused", fusion=kernels)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Recorded against lowered; what is only on one side is listed."""

    recorded_flops: int
    lowered_flops: int
    recorded_bytes: int
    matched_bytes: int
    lowered_bytes: int
    kernels_apart: dict[str, int]
    collectives_apart: dict[str, int]


MIN_BYTES_SHARE = 0.99


def check_lowering(
    pool: RankPool,
    case: Case | FamilyCase,
    fused: bool = False,
    job: str = "ranks.rank_jobs:record",
) -> None:
    """Every rank's second step is the lowered one, item by item."""
    plan = case.plan()
    payload = {"plan": plan.to_document(), "flash": case.flash, "fused": fused}
    for rank, record in enumerate(pool.run(job, payload)):
        check_equal(compare(case, plan, record, fused), rank)


def check_equal(found: Comparison, rank: int) -> None:
    """What was recorded on a rank is what was lowered."""
    assert found.recorded_flops == found.lowered_flops, rank
    assert found.collectives_apart == {}, rank
    check_kernels_equal(found, rank)


def check_kernels_equal(found: Comparison, rank: int) -> None:
    """The same kernels, and the bytes of those too small to be listed."""
    assert found.kernels_apart == {}, rank
    assert found.matched_bytes >= MIN_BYTES_SHARE * found.recorded_bytes, rank
    assert found.lowered_bytes <= found.recorded_bytes / MIN_BYTES_SHARE, rank


def recorded_items(record: dict[str, Any]) -> tuple[Counter[Kernel], Counter[Collective]]:
    """A rank's record as counted kernels and collectives."""
    kernels: Counter[Kernel] = Counter()
    for (op, shape, dtype, flops, traffic), count in record["kernels"]:
        kernels[Kernel(op, tuple(shape), dtype, flops, traffic)] += count
    collectives: Counter[Collective] = Counter()
    for (*item, over), count in record["collectives"]:
        collectives[Collective(*item, over=tuple(map(tuple, over)))] += count
    return kernels, collectives


def compare(
    case: Case | FamilyCase,
    plan: Plan,
    record: dict[str, Any],
    fused: bool = False,
    techniques: TechniquePrices = TECHNIQUES,
) -> Comparison:
    """One rank's recorded step against the lowering of its stage."""
    kernels, collectives = recorded_items(record)
    software = executor_stack(case.flash, fused)
    lowered = step_work(plan, software, record["stage"], techniques)
    low_kernels = Counter(item for item in lowered if isinstance(item, Kernel))
    low_collectives = Counter(item for item in lowered if isinstance(item, Collective))
    counted = Counter({k: n for k, n in kernels.items() if k.op not in IGNORED_KERNELS})
    named, low_named = _named(counted), _named(low_kernels)
    return Comparison(
        recorded_flops=_flops(counted),
        lowered_flops=_flops(low_kernels),
        recorded_bytes=_bytes(counted),
        matched_bytes=_matched_bytes(counted, low_kernels),
        lowered_bytes=_bytes(low_kernels),
        kernels_apart=_apart(named, low_named),
        collectives_apart=_apart(collectives, low_collectives),
    )


def _named(kernels: Counter[Kernel]) -> Counter[tuple[Any, ...]]:
    """By (op, shape, dtype), the small ones left out."""
    found: Counter[tuple[Any, ...]] = Counter()
    for kernel, count in kernels.items():
        if kernel.traffic_bytes >= IGNORED_BELOW_BYTES:
            found[kernel.op, kernel.shape, kernel.dtype] += count
    return found


def _matched_bytes(recorded: Counter[Kernel], lowered: Counter[Kernel]) -> int:
    """Bytes of each (op, shape, dtype) that both sides have."""
    both = [Counter[tuple[Any, ...]](), Counter[tuple[Any, ...]]()]
    for side, kernels in zip(both, (recorded, lowered), strict=True):
        for kernel, count in kernels.items():
            side[kernel.op, kernel.shape, kernel.dtype] += kernel.traffic_bytes * count
    return sum((both[0] & both[1]).values())


def _flops(kernels: Counter[Kernel]) -> int:
    return sum(kernel.flops * count for kernel, count in kernels.items())


def _bytes(kernels: Counter[Kernel]) -> int:
    return sum(kernel.traffic_bytes * count for kernel, count in kernels.items())


def _apart(recorded: Counter[Any], lowered: Counter[Any]) -> dict[str, int]:
    """Counts by item: positive where only recorded, negative where only lowered."""
    difference = {item: recorded[item] - lowered[item] for item in {*recorded, *lowered}}
    return {str(tuple(item)): n for item, n in sorted(difference.items(), key=str) if n}
