"""Cases of our own operations, which a device runs as one kernel.

One line an operation, under the name that the lowering and a recorded run give it. An operation
is timed where its family would run it fused: not on a core, where only Triton's interpreter could.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import torch

from ...kernels.attention.rope import ROPE, Angles, angle_table
from ...kernels.dense.activation import SWIGLU
from ...kernels.dense.linear_cross_entropy import LINEAR_CROSS_ENTROPY
from ...kernels.dense.norm import RMS_NORM
from ...kernels.dispatch import Family, Request, choose
from .case import Case, KernelRun, TensorSpec
from .sizes import Sizes
from .streamed_cases import MemoryBoundOp, RowOperands, op_cases

shardwright_ops = torch.ops.shardwright
EPS = 1e-6
HEAD_DIM, THETA = 64, 1e4


MIN_VOCAB_ROWS = 512
"""Rows of logits as wide as a large vocabulary; fewer do not fill a device."""


class FusedOp(NamedTuple):
    """An operation and its kernel family; ``over_vocabulary``: over rows of logits."""

    family: Family
    streamed: MemoryBoundOp
    over_vocabulary: bool = False


def _rms_norm(operands: RowOperands) -> KernelRun:
    return partial(shardwright_ops.rms_norm, operands.random(), operands.scale(), EPS)


def _rms_norm_backward(operands: RowOperands) -> KernelRun:
    x, weight = operands.random(), operands.scale()
    _, inverse_rms = shardwright_ops.rms_norm(x, weight, EPS)
    return partial(shardwright_ops.rms_norm_backward, operands.random(), x, weight, inverse_rms)


def _norm_traffic(passes: int, scales: int) -> Callable[[RowOperands], int]:
    """Activations, one fp32 number a row, and the weight (with its gradient)."""
    return lambda operands: (
        passes * operands.full_bytes + operands.statistics_bytes + scales * operands.scale_bytes
    )


def _swiglu(operands: RowOperands) -> KernelRun:
    return partial(shardwright_ops.swiglu, operands.random(), operands.random())


def _swiglu_backward(operands: RowOperands) -> KernelRun:
    return partial(
        shardwright_ops.swiglu_backward_, operands.random(), operands.random(), operands.random()
    )


def _rope(operands: RowOperands) -> KernelRun:
    query, key = (operands.random().view(operands.rows, 1, -1, HEAD_DIM) for _ in range(2))
    table = angle_table(
        Angles(operands.rows, HEAD_DIM, THETA), torch.float32, operands.tensor_spec.device
    )
    return partial(shardwright_ops.rope_, query, key, *table, False)


def _rope_traffic(operands: RowOperands) -> int:
    return 4 * operands.full_bytes + operands.rows * HEAD_DIM * 4


def _loss(operands: RowOperands) -> KernelRun:
    targets = operands.tokens() % operands.width
    losses = torch.empty(operands.rows, dtype=torch.float32, device=operands.tensor_spec.device)
    return partial(
        shardwright_ops.cross_entropy_, operands.random(), targets, losses, 1 / operands.rows
    )


def _loss_traffic(operands: RowOperands) -> int:
    return 2 * operands.full_bytes + 8 * operands.rows + 2 * operands.statistics_bytes


FUSED_OPS = (
    FusedOp(RMS_NORM, MemoryBoundOp("rms_norm", _norm_traffic(2, 1), _rms_norm)),
    FusedOp(RMS_NORM, MemoryBoundOp("rms_norm_backward", _norm_traffic(3, 2), _rms_norm_backward)),
    FusedOp(SWIGLU, MemoryBoundOp("swiglu", lambda operands: 3 * operands.full_bytes, _swiglu)),
    FusedOp(
        SWIGLU,
        MemoryBoundOp(
            "swiglu_backward", lambda operands: 5 * operands.full_bytes, _swiglu_backward
        ),
    ),
    FusedOp(ROPE, MemoryBoundOp("rope", _rope_traffic, _rope)),
    FusedOp(
        LINEAR_CROSS_ENTROPY,
        MemoryBoundOp("cross_entropy", _loss_traffic, _loss),
        over_vocabulary=True,
    ),
)


def fused(rows: int, sizes: Sizes, tensor_spec: TensorSpec) -> Iterator[Case]:
    """The operations that the device runs fused, over ``rows`` rows."""
    shape = (rows, 1, sizes.width // HEAD_DIM, HEAD_DIM)
    request = Request(tensor_spec.device, tensor_spec.torch_dtype, shape)
    operands = RowOperands(rows, sizes.width, sizes.vocab, tensor_spec)
    for op in FUSED_OPS:
        if choose(op.family, request).variant.fused:
            yield from op_cases(
                (op.streamed,),
                _vocabulary_rows(operands, sizes.loss_vocab) if op.over_vocabulary else operands,
            )


def _vocabulary_rows(operands: RowOperands, loss_vocab: int | None) -> RowOperands:
    logit_rows = 0 if loss_vocab is None else operands.rows * operands.width // loss_vocab
    return (
        operands._replace(rows=logit_rows, width=loss_vocab)
        if loss_vocab and logit_rows >= MIN_VOCAB_ROWS
        else operands
    )
