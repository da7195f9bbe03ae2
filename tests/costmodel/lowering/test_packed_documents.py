"""Prices of documents that share a sequence: attention by their squares, the rest unchanged."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

import shardwright as sw
from shardwright.costmodel.lowering.layer_lowering import lower_layer
from shardwright.costmodel.symbolic.layer_shape import LayerShape
from shardwright.datasets.catalogue.stack import stack
from shardwright.datasets.models.load import load_model
from shardwright.spec.errors import InputError
from shardwright.spec.report.work_items import Kernel
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.workload.document_lengths import DocumentLengths, length_rows

TOKENS, BATCH = 4096, 2
BLOCK = load_model("llama-2-7b")[0].layers()[1]
SIZES = {"global_batch": 8, "seq_len": 4096}
PACKED = DocumentLengths(recipe="sha256:" + "2" * 64, window=4096, rows=length_rows([256] * 16))


def kernels(
    documents: float | None, on_cores: bool = False
) -> tuple[list[Kernel], list[Kernel]]:
    """Those of attention, and all others, of forward and backward."""
    chosen = stack("shardwright", on_cores=on_cores)
    shape = LayerShape(LayerStrategy(), None, BATCH, TOKENS, "bf16", chosen, documents=documents)
    lowered = lower_layer(BLOCK, shape)
    found = [*lowered.forward.kernels(), *lowered.backward.kernels()]
    attention = [kernel for kernel in found if kernel.term == "attention"]
    return attention, [kernel for kernel in found if kernel.term != "attention"]


@pytest.mark.parametrize("documents", [4096.0, 3000.0, 1024.0, 256.0, 37.5])
def test_attention_takes_the_sum_of_squares(documents: float) -> None:
    packed, rest = kernels(documents)
    whole, same = kernels(None)
    assert rest == same
    assert len(packed) == len(whole) == 2
    for one, other in zip(packed, whole, strict=True):
        assert one.op == other.op
        assert one.traffic_bytes == other.traffic_bytes
        assert one.flops == pytest.approx(other.flops * documents / TOKENS, rel=0.02)
        count, length = one.shape[0], one.shape[3]
        assert count * length**2 == pytest.approx(BATCH * TOKENS * documents, rel=0.03)


def test_cores_copy_rows_into_calls_by_length_and_back() -> None:
    packed, rest = kernels(256.0, on_cores=True)
    whole, same = kernels(None, on_cores=True)
    assert [kernel.shape for kernel in packed] != [kernel.shape for kernel in whole]
    copies = Counter(rest) - Counter(same)
    assert not Counter(same) - Counter(rest)
    # Queries, keys, values and the output, each way.
    assert [kernel.op for kernel in copies.elements()] == ["copy"] * 8
    assert {kernel.traffic_bytes for kernel in copies} == {2 * BATCH * TOKENS * 4096 * 2}


def test_a_plan_is_priced_for_its_documents_and_no_other_changes() -> None:
    plain = sw.simulate("llama-2-7b", "1x8xH100", tp=2, **SIZES)  # type: ignore[arg-type]
    packed = sw.simulate("llama-2-7b", "1x8xH100", tp=2, lengths=PACKED, **SIZES)  # type: ignore[arg-type]
    assert packed.plan.hash != plain.plan.hash
    workload = replace(packed.plan.workload, lengths=None)
    assert workload == plain.plan.workload
    terms = [handle.prediction.breakdown_s for handle in (plain, packed)]
    assert terms[1]["attention"] < 0.5 * terms[0]["attention"]
    assert terms[1]["matmul"] == pytest.approx(terms[0]["matmul"], rel=1e-9)
    memory = [handle.prediction.memory[0].allocated_bytes for handle in (plain, packed)]
    assert memory[0] == memory[1]
    assert packed.prediction.mfu < plain.prediction.mfu * 1.5


def test_unfused_attention_is_refused_in_one_line() -> None:
    with pytest.raises(InputError, match=r"attention.*unfused.*flash"):
        sw.simulate("llama-2-7b", "1x8xH100", lengths=PACKED, attention="unfused", **SIZES)  # type: ignore[arg-type]
