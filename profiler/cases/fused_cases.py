"""Cases of our own operations: what a device runs as one kernel in place of several.

One line an operation, under the name that the lowering and a recorded run give it. An operation
is timed where its family would run it fused: on a core, where only Triton's interpreter could,
there is none.
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

ours = torch.ops.shardwright
EPS = 1e-6
HEAD_DIM, THETA = 64, 1e4


MIN_VOCAB_ROWS = 512
"""Rows of logits as wide as a large vocabulary: with fewer a device is not full."""


class FusedOp(NamedTuple):
    """An operation and its kernel family; ``over_vocabulary``: over rows of logits."""

    family: Family
    streamed: MemoryBoundOp
    over_vocabulary: bool = False


def _rms_norm(rows: RowOperands) -> KernelRun:
    return partial(ours.rms_norm, rows.random(), rows.scale(), EPS)


def _rms_norm_backward(rows: RowOperands) -> KernelRun:
    x, weight = rows.random(), rows.scale()
    _, inverse_rms = ours.rms_norm(x, weight, EPS)
    return partial(ours.rms_norm_backward, rows.random(), x, weight, inverse_rms)


def _norm_traffic(passes: int, scales: int) -> Callable[[RowOperands], int]:
    """Activations, one fp32 number a row, and the weight (with its gradient)."""
    return lambda r: passes * r.full_bytes + r.statistics_bytes + scales * r.scale_bytes


def _swiglu(rows: RowOperands) -> KernelRun:
    return partial(ours.swiglu, rows.random(), rows.random())


def _swiglu_backward(rows: RowOperands) -> KernelRun:
    return partial(ours.swiglu_backward_, rows.random(), rows.random(), rows.random())


def _rope(rows: RowOperands) -> KernelRun:
    """As many heads of keys as of queries, where they are."""
    query, key = (rows.random().view(rows.rows, 1, -1, HEAD_DIM) for _ in range(2))
    table = angle_table(Angles(rows.rows, HEAD_DIM, THETA), torch.float32, rows.tensor_spec.device)
    return partial(ours.rope_, query, key, *table, False)


def _rope_traffic(rows: RowOperands) -> int:
    return 4 * rows.full_bytes + rows.rows * HEAD_DIM * 4


def _loss(rows: RowOperands) -> KernelRun:
    """Again and again on what the last run left."""
    targets = rows.tokens() % rows.width
    losses = torch.empty(rows.rows, dtype=torch.float32, device=rows.tensor_spec.device)
    return partial(ours.cross_entropy_, rows.random(), targets, losses, 1 / rows.rows)


def _loss_traffic(rows: RowOperands) -> int:
    return 2 * rows.full_bytes + 8 * rows.rows + 2 * rows.statistics_bytes


FUSED_OPS = (
    FusedOp(RMS_NORM, MemoryBoundOp("rms_norm", _norm_traffic(2, 1), _rms_norm)),
    FusedOp(RMS_NORM, MemoryBoundOp("rms_norm_backward", _norm_traffic(3, 2), _rms_norm_backward)),
    FusedOp(SWIGLU, MemoryBoundOp("swiglu", lambda r: 3 * r.full_bytes, _swiglu)),
    FusedOp(SWIGLU, MemoryBoundOp("swiglu_backward", lambda r: 5 * r.full_bytes, _swiglu_backward)),
    FusedOp(ROPE, MemoryBoundOp("rope", _rope_traffic, _rope)),
    FusedOp(
        LINEAR_CROSS_ENTROPY,
        MemoryBoundOp("cross_entropy", _loss_traffic, _loss),
        over_vocabulary=True,
    ),
)


def fused(rows: int, sizes: Sizes, tensor_spec: TensorSpec) -> Iterator[Case]:
    """The operations that the device runs fused, over so many rows."""
    shape = (rows, 1, sizes.width // HEAD_DIM, HEAD_DIM)
    request = Request(tensor_spec.device, tensor_spec.torch_dtype, shape)
    of = RowOperands(rows, sizes.width, sizes.vocab, tensor_spec)
    for op in FUSED_OPS:
        if choose(op.family, request).variant.fused:
            yield from op_cases(
                (op.streamed,), _vocabulary_rows(of, sizes.loss_vocab) if op.over_vocabulary else of
            )


def _vocabulary_rows(rows: RowOperands, loss_vocab: int | None) -> RowOperands:
    """As many logits as the chunks of a loss have, in rows as wide as a vocabulary."""
    wide = 0 if loss_vocab is None else rows.rows * rows.width // loss_vocab
    return (
        rows._replace(rows=wide, width=loss_vocab)
        if loss_vocab and wide >= MIN_VOCAB_ROWS
        else rows
    )
