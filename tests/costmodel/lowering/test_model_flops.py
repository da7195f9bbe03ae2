"""Model FLOPs in both conventions of causal attention."""

from __future__ import annotations

from typing import Any

import pytest

from shardwright.api.problem.resolve import Inputs, resolve
from shardwright.costmodel.lowering.model_flops import (
    masked_flops_per_sample,
    model_flops_per_sample,
)
from shardwright.planner.solve.problem import Problem
from shardwright.spec.model.layers import BlockLayer
from shardwright.spec.model.mixers import Attention

SEQ_LEN = 256
SIZES = {"layers": 4, "hidden": 128, "heads": 4, "vocab": 512, "ffn": 256}
PASSES, FLOPS_A_PAIR = 3, 4
"""A step's forward passes' worth; two products of two FLOPs a channel of a query."""


def asked(keys: dict[str, Any], **inputs: Any) -> Problem:
    model = {**SIZES, **keys}
    sizes = {"global_batch": 8, "seq_len": SEQ_LEN, "dtype": "bf16", **inputs}
    return resolve(Inputs(model=model, cluster="1x8xH200", **sizes))


def masked_pairs(window: int | None) -> int:
    """Scores that are counted for all queries and hidden from them, one by one.

    Without a window half of the scores, as everybody counts them, the diagonal too.
    """
    if window is None or window >= SEQ_LEN:
        return SEQ_LEN * SEQ_LEN // 2
    seen = sum(0 <= query - key < window for query in range(SEQ_LEN) for key in range(SEQ_LEN))
    return SEQ_LEN * window - seen


@pytest.mark.parametrize(
    "keys", [{}, {"window": 64}, {"window": 64, "full_every": 2}, {"window": 1000}]
)
@pytest.mark.parametrize("trainable", [None, "lora:rank=4"])
def test_a_mask_hides_what_pairs_counted_one_by_one_do(
    keys: dict[str, int], trainable: str | None
) -> None:
    found = asked(keys, trainable=trainable)
    counted = 0
    for layer in found.model.layers():
        if isinstance(layer, BlockLayer):
            assert isinstance(layer.attention, Attention)
            flops = PASSES * FLOPS_A_PAIR * layer.attention.query_dim
            counted += flops * masked_pairs(layer.attention.window)
    assert masked_flops_per_sample(found.model, found.workload) == counted > 0


def test_unmasked_attention_hides_nothing() -> None:
    found = asked({"mask": "full"})
    assert masked_flops_per_sample(found.model, found.workload) == 0
    assert model_flops_per_sample(found.model, found.workload) > 0
