"""Parallel blocks of one norm: one gather and one scatter each way, beside blocks in series."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import pytest
from checks.lowering_check import check_lowering, executor_stack
from checks.run_checks import check_case
from generators.plan_cases import Case, Sizes, sharded
from ranks.rank_pools import RankPool

from shardwright.costmodel.lowering.layer_lowering import LoweredLayer
from shardwright.costmodel.lowering.plan_lowering import Lowering
from shardwright.costmodel.techniques import TECHNIQUES
from shardwright.spec.model.feed_forward import Mlp
from shardwright.spec.model.layers import BlockLayer
from shardwright.spec.model.mixers import Attention
from shardwright.spec.model.model_spec import ModelSpec
from shardwright.spec.report.work_items import Collective, Kernel
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.technique_values import with_value
from shardwright.spec.techniques.tp_overlap import TensorParallelOverlap


@dataclass(frozen=True, kw_only=True)
class ParallelSizes(Sizes):
    """A decoder whose attention and MLP read one normalized input, or not.

    ``biases``: of the attention's output and of the MLP.
    """

    shared: bool = True
    biases: tuple[bool, bool] = (False, False)

    def model(self) -> ModelSpec:
        model = super().model()
        (text,) = model.towers
        runs = tuple(
            replace(run, layer=self._block(run.layer)) if isinstance(run.layer, BlockLayer) else run
            for run in text.layers
        )
        return replace(model, towers=(replace(text, layers=runs),))

    def _block(self, block: BlockLayer) -> BlockLayer:
        attention, mlp = block.attention, block.mlp
        assert isinstance(attention, Attention)
        assert isinstance(mlp, Mlp)
        return replace(
            block,
            attention=replace(attention, out_bias=self.biases[0]),
            mlp=replace(mlp, bias=self.biases[1]),
            parallel=self.shared,
            shared_norm=self.shared,
        )


def split(
    level: str = "zero0", tp: int = 2, sp: str = "megatron", **fields: object
) -> LayerStrategy:
    return sharded(level, 2 if level != "zero0" else 1, tp=tp, sequence_parallel=sp, **fields)


def chunked(chunks: int, strategy: LayerStrategy) -> LayerStrategy:
    return with_value(strategy, "tp_overlap", TensorParallelOverlap(chunks=chunks))


ONE_BIAS, BOTH = ParallelSizes(biases=(False, True)), ParallelSizes(kv_heads=4, biases=(True, True))
CASES = (
    Case(name="whole sequences, a bias", sizes=ONE_BIAS, strategies=split("zero1", sp="none")),
    Case(name="tp 4, biases", sizes=BOTH, strategies=split(tp=4)),
    Case(name="zero3", sizes=ParallelSizes(), strategies=split("zero3")),
    Case(
        name="recomputed",
        sizes=ONE_BIAS,
        strategies=split("zero1", recompute="selective-ops"),
    ),
    Case(
        name="split backward",
        sizes=BOTH,
        stages=2,
        kind="zero_bubble",
        strategies=split(),
    ),
    Case(name="in chunks", sizes=BOTH, strategies=chunked(4, split(tp=4, recompute="full"))),
    Case(
        name="in chunks, split backward",
        sizes=ONE_BIAS,
        stages=2,
        kind="zero_bubble",
        strategies=chunked(2, split()),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_run_is_the_reference_and_does_what_is_lowered(four_ranks: RankPool, case: Case) -> None:
    check_case(four_ranks, case)
    check_lowering(four_ranks, case)


FUSED = TensorParallelOverlap(kernels="fused", chunks=1)


def test_fused_products_by_their_definitions_are_the_reference(four_ranks: RankPool) -> None:
    strategy = with_value(split("zero1"), "tp_overlap", FUSED)
    case = Case(name="fused", sizes=ONE_BIAS, strategies=strategy)
    check_case(four_ranks, case, "ranks.overlap_jobs:train_by_definitions")


def lowered_block(sizes: ParallelSizes, strategy: LayerStrategy) -> LoweredLayer:
    plan = Case(name="", sizes=sizes, strategies=strategy).plan()
    lowering = Lowering(plan.model, plan.workload, executor_stack(flash=True), TECHNIQUES)
    return lowering.layer(1, strategy, strategy, 4, 2)


@pytest.mark.parametrize("chunks", [1, 4])
def test_half_the_collectives_of_blocks_in_series(chunks: int) -> None:
    strategy = split("zero1") if chunks == 1 else chunked(chunks, split("zero1"))
    together = lowered_block(ParallelSizes(biases=(True, True)), strategy)
    series = lowered_block(ParallelSizes(shared=False, biases=(True, True)), strategy)
    for way, gathers, scatters in (("forward", 1, 1), ("backward", 2, 1)):
        ours, theirs = (counts(getattr(one, way).entries) for one in (together, series))
        assert ours["all_gather"] == gathers * chunks
        assert ours["reduce_scatter"] == scatters * chunks
        assert theirs["all_gather"] == 2 * gathers * chunks
        assert theirs["reduce_scatter"] == 2 * scatters * chunks
        assert 2 * ours["bytes"] == theirs["bytes"]
        assert ours["flops"] == theirs["flops"]
        assert ours["kernels"] < theirs["kernels"]


def counts(entries: tuple[object, ...]) -> Counter[str]:
    found: Counter[str] = Counter()
    for work in (entry.work for entry in entries):  # type: ignore[attr-defined]
        if isinstance(work, Collective):
            found[work.kind] += 1
            found["bytes"] += work.payload_bytes
        elif isinstance(work, Kernel):
            found["kernels"] += 1
            found["flops"] += work.flops if work.term == "matmul" else 0
    return found
