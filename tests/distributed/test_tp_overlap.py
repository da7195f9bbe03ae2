"""Products in chunks or fused, on ranks: exact beside sharding, recomputation, split backwards."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from checks.lowering_check import check_lowering
from checks.run_checks import check_case
from generators.plan_cases import GPT2, Case, Sizes, sharded
from ranks.rank_pools import RankPool

from shardwright.executor.techniques.tp_overlap import overlap_layer
from shardwright.executor.torch_compat import symmetric_memory_lack
from shardwright.spec.errors import InputError
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
    return overlapped(TensorParallelOverlap(chunks=chunks), level, **fields)


def overlapped(
    value: TensorParallelOverlap, level: str = "zero0", **fields: object
) -> LayerStrategy:
    plain = sharded(level, 2 if level != "zero0" else 1, tp=2, sequence_parallel="megatron")
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


FUSED = TensorParallelOverlap(kernels="fused", chunks=1)
DEFINITIONS = "ranks.overlap_jobs:train_by_definitions"
FUSED_CASES = (
    Case(name="gpt2, zero3", sizes=GPT2, strategies=overlapped(FUSED, "zero3")),
    Case(name="llama, recomputed", strategies=overlapped(FUSED, "zero1", recompute="full")),
    Case(name="llama, split", stages=2, kind="zero_bubble", strategies=overlapped(FUSED)),
)


@pytest.mark.parametrize("case", FUSED_CASES, ids=lambda case: case.name)
def test_fused_products_by_their_definitions_are_the_reference(
    four_ranks: RankPool, case: Case
) -> None:
    check_case(four_ranks, case, DEFINITIONS)


def test_cores_are_refused_fused_products() -> None:
    options = SimpleNamespace(device=torch.device("cpu"))
    with pytest.raises(InputError) as refusal:
        overlap_layer(Mock(), overlapped(FUSED), options)  # type: ignore[arg-type]
    assert str(refusal.value) == (
        "tp_overlap: got fused; allowed: chunked:2, chunked:4 or chunked:8 (they need CUDA devices "
        "with symmetric memory, and this is cpu); nearest: chunked:4"
    )


def test_a_torch_without_the_operations_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert symmetric_memory_lack(torch.device("cuda", 0)) is None
    monkeypatch.setattr(torch.ops, "symm_mem", SimpleNamespace(fused_all_gather_matmul=None))
    lack = symmetric_memory_lack(torch.device("cuda", 0))
    assert lack is not None
    assert lack.startswith("this torch lacks torch.ops.symm_mem.fused_matmul_reduce_scatter: ")
