"""Products in chunks on four ranks: exact beside sharding, recomputation and split backwards."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from checks.lowering_check import check_lowering
from checks.run_checks import check_case
from generators.plan_cases import GPT2, Case, Sizes, sharded
from ranks.rank_pools import RankPool

from shardwright.spec.model.layers import BlockLayer
from shardwright.spec.model.model_spec import ModelSpec
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.technique_values import with_value
from shardwright.spec.techniques.tp_overlap import TensorParallelOverlap


@dataclass(frozen=True, kw_only=True)
class ParallelSizes(Sizes):
    """A decoder whose attention and MLP read one normalized input."""

    def model(self) -> ModelSpec:
        model = super().model()
        (text,) = model.towers
        runs = tuple(
            replace(run, layer=replace(run.layer, parallel=True, shared_norm=True))
            if isinstance(run.layer, BlockLayer)
            else run
            for run in text.layers
        )
        return replace(model, towers=(replace(text, layers=runs),))


def chunked(chunks: int, level: str = "zero0", **fields: object) -> LayerStrategy:
    plain = sharded(level, 2 if level != "zero0" else 1, tp=2, sequence_parallel="megatron")
    value = TensorParallelOverlap(chunks=chunks)
    return with_value(replace(plain, **fields), "tp_overlap", value)  # type: ignore[arg-type]


CASES = (
    Case(name="gpt2, zero3", sizes=GPT2, strategies=chunked(4, "zero3")),
    Case(
        name="parallel, recomputed",
        sizes=ParallelSizes(),
        strategies=chunked(8, "zero1", recompute="full"),
    ),
    Case(name="llama, split", stages=2, kind="zero_bubble", strategies=chunked(2)),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_run_in_chunks_is_the_reference_and_does_what_is_lowered(
    four_ranks: RankPool, case: Case
) -> None:
    check_case(four_ranks, case)
    check_lowering(four_ranks, case)
