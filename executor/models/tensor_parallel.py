"""Tensor-parallel linear layers and embeddings, optionally with sequence shards.

Column-parallel weights split outputs, row-parallel weights inputs (Shoeybi et al., 2019, section
3). With Megatron sequence parallelism (Korthikanti et al., 2022, section 4.2.2) the column side
gathers sequence shards, the row side reduce-scatters, and the backward pass gathers the input again
instead of keeping it. Activations are (seq, batch, width), so shards are contiguous. All
collectives of a layer stand here. Where a schedule splits the backward, weight-gradient products
(and bias sums) wait in ``DeferredGradients``; collectives do not: a regathered input is held until
its product.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

from ...kernels.marks import mark
from ...spec.parallel.sequence_partition import IndexRanges
from ...spec.report.trace_marks import COMMUNICATE_TP
from ..torch_compat import all_gather_single, reduce_scatter_single
from .deferred_gradients import DeferredGradients, add_gradients
from .positions import position_rows
from .saved_results import NO_NAME, NO_NAMES, NamedResult


@dataclass(frozen=True, slots=True)
class TensorParallel:
    """The tensor-parallel ranks of a layer; ``group`` is None for one.

    ``deferred`` takes weight gradients where the schedule splits the backward, else None.
    """

    group: dist.ProcessGroup | None
    size: int
    rank: int
    sequence_parallel: bool
    deferred: DeferredGradients | None = None

    def gather_sequence(self, x: Tensor) -> Tensor:
        """All-gather of sequence shards; ``x`` itself without them."""
        if not self.sequence_parallel:
            return x
        out = torch.empty((x.shape[0] * self.size, *x.shape[1:]), dtype=x.dtype, device=x.device)
        x = x.contiguous()
        with mark(COMMUNICATE_TP):
            all_gather_single(out, x, group=self.group)
        return out

    def reduce(self, x: Tensor) -> Tensor:
        """Sum over the ranks: this rank's sequence shard, or all in place."""
        if self.size == 1:
            return x
        if not self.sequence_parallel:
            with mark(COMMUNICATE_TP):
                dist.all_reduce(x, group=self.group)
            return x
        out = torch.empty((x.shape[0] // self.size, *x.shape[1:]), dtype=x.dtype, device=x.device)
        with mark(COMMUNICATE_TP):
            reduce_scatter_single(out, x, group=self.group)
        return out


NO_TENSOR_PARALLEL = TensorParallel(None, 1, 0, False)


def _tokens(x: Tensor) -> Tensor:
    return x.flatten(0, 1)


def affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``x · weightᵀ + bias`` of (seq, batch, in) and (out, in)."""
    flat = _tokens(x)
    product = flat.mm(weight.t()) if bias is None else torch.addmm(bias, flat, weight.t())
    return product.view(*x.shape[:2], weight.shape[0])


class _ColumnLinear(Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, tp: TensorParallel, named: NamedResult, *parameters: Tensor | None
    ) -> Any:
        weights, biases = weights_and_biases(parameters)
        ctx.save_for_backward(x, *weights)
        ctx.tp, ctx.biased = tp, [bias is not None for bias in biases]
        ctx.parameters = parameters if tp.deferred is not None else ()
        kept = named.kept() or [None] * len(weights)
        gathered = tp.gather_sequence(x) if any(out is None for out in kept) else x
        outs = tuple(
            affine(gathered, w, b) if out is None else out
            for w, b, out in zip(weights, biases, kept, strict=True)
        )
        named.keep(*outs)
        return outs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        x, *weights = ctx.saved_tensors
        tp: TensorParallel = ctx.tp
        flat_grads = [_tokens(g) for g in grads]
        grad_x = flat_grads[0].mm(weights[0])
        for grad, weight in zip(flat_grads[1:], weights[1:], strict=True):
            grad_x.addmm_(grad, weight)
        grad_x = tp.reduce(grad_x.view(*grads[0].shape[:2], -1))
        gathered = _tokens(tp.gather_sequence(x))
        if tp.deferred is not None and tp.deferred.is_deferring:
            gathered = gathered.detach()  # or it would keep the graph that it came from
            tp.deferred.add(column_gradients(flat_grads, gathered, ctx.parameters))
            return (grad_x, None, None, *(None for _ in ctx.parameters))
        grad_weights = [g.t().mm(gathered) for g in flat_grads]
        grad_biases = bias_sums(flat_grads, ctx.biased)
        return (grad_x, None, None, *grad_weights, *grad_biases)


def weights_and_biases(
    parameters: tuple[Tensor | None, ...],
) -> tuple[list[Tensor], list[Tensor | None]]:
    """Weights, then a bias or None of each."""
    count = len(parameters) // 2
    return [p for p in parameters[:count] if p is not None], [*parameters[count:]]


def bias_sums(grads: list[Tensor], biased: list[bool]) -> list[Tensor | None]:
    """Gradients of biases, of (tokens, width) gradients; None without a bias."""
    return [grad.sum(0) if has else None for grad, has in zip(grads, biased, strict=True)]


def column_gradients(
    grads: list[Tensor], gathered: Tensor, parameters: tuple[Tensor | None, ...]
) -> Callable[[], None]:
    """Deferred gradients of several projections' weights and biases.

    Holds only ``grads`` of the outputs and ``gathered``, the joined input, (tokens, width) each.
    """

    def product() -> None:
        nonlocal gathered
        gradients = [g.t().mm(gathered) for g in grads]
        del gathered
        weights, biases = weights_and_biases(parameters)
        biased = [(g, bias) for g, bias in zip(grads, biases, strict=True) if bias is not None]
        gradients += [g.sum(0) for g, _ in biased]
        add_gradients([*weights, *(bias for _, bias in biased)], gradients)

    return product


def column_linear(
    x: Tensor,
    weights: list[Tensor],
    biases: list[Tensor | None],
    tp: TensorParallel,
    named: NamedResult = NO_NAMES,
) -> tuple[Tensor, ...]:
    """Projections of one input, each split along its outputs.

    Args:
        x: (seq, batch, in), or this rank's sequence shard of it.
        weights: each (local out, in).
        biases: each (local out,), or None.
        tp: the ranks.
        named: names of the results, and where they may be kept.

    Returns:
        One (seq, batch, local out) for each weight.
    """
    out: tuple[Tensor, ...] = _ColumnLinear.apply(  # type: ignore[no-untyped-call]
        x, tp, named, *weights, *biases
    )
    return out


class _RowLinear(Function):
    @staticmethod
    def forward(
        ctx: Any, tp: TensorParallel, named: NamedResult, count: int, *tensors: Tensor | None
    ) -> Tensor:
        xs, weights, biases = row_tensors(count, tensors)
        ctx.save_for_backward(*xs, *weights)
        ctx.tp, ctx.biased = tp, [bias is not None for bias in biases]
        ctx.weights = weights if tp.deferred is not None else ()
        (kept,) = named.kept()
        if kept is not None:
            return kept
        out = affine(xs[0], weights[0], None)
        for x, weight in zip(xs[1:], weights[1:], strict=True):
            _tokens(out).addmm_(_tokens(x), weight.t())
        out = tp.reduce(out)
        for bias in biases:
            out = out if bias is None else out.add_(bias)
        named.keep(out)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        count, tp = len(ctx.biased), ctx.tp
        saved = ctx.saved_tensors  # unpacked once
        xs, weights = saved[:count], saved[count:]
        grad_biases = bias_sums([_tokens(grads[0])] * count, ctx.biased)
        grad = _tokens(tp.gather_sequence(grads[0]))
        grad_xs = [grad.mm(w).view(x.shape) for x, w in zip(xs, weights, strict=True)]
        if tp.deferred is not None and tp.deferred.is_deferring:
            tp.deferred.add(row_gradients(grad, [x.detach() for x in xs], ctx.weights))
            return (None, None, None, *grad_xs, *(None for _ in xs), *grad_biases)
        grad_weights = [grad.t().mm(_tokens(x)) for x in xs]
        return (None, None, None, *grad_xs, *grad_weights, *grad_biases)


def row_tensors(
    count: int, tensors: tuple[Tensor | None, ...]
) -> tuple[list[Tensor], list[Tensor], list[Tensor | None]]:
    """So many inputs, their weights, and a bias or None of each."""
    given = [tensor for tensor in tensors[: 2 * count] if tensor is not None]
    return given[:count], given[count:], [*tensors[2 * count :]]


def row_gradients(grad: Tensor, xs: list[Tensor], weights: list[Tensor]) -> Callable[[], None]:
    """Deferred gradients of row-split weights, of gathered ``grad`` (tokens, width)."""

    def product() -> None:
        add_gradients(weights, [grad.t().mm(_tokens(x)) for x in xs])

    return product


def row_linear(
    xs: list[Tensor],
    weights: list[Tensor],
    biases: list[Tensor | None],
    tp: TensorParallel,
    named: NamedResult = NO_NAME,
) -> Tensor:
    """Sum of projections split along their inputs, reduced over the ranks once.

    Args:
        xs: each (seq, batch, local in).
        weights: each (out, local in).
        biases: each (out,), added once after the sum over ranks; or None.
        tp: the ranks.
        named: the result's name, and where it may be kept.

    Returns:
        (seq, batch, out), or this rank's sequence shard of it.
    """
    out: Tensor = _RowLinear.apply(  # type: ignore[no-untyped-call]
        tp, named, len(xs), *xs, *weights, *biases
    )
    return out


class _Embedding(Function):
    @staticmethod
    def forward(
        ctx: Any,
        tokens: Tensor,
        weight: Tensor,
        positions: Tensor | None,
        token_types: Tensor | None,
        vocab_start: int,
        tp: TensorParallel,
        spans: IndexRanges,
        seq_len: int,
    ) -> Tensor:
        local, outside = tokens, None
        if tp.size > 1:
            local = tokens - vocab_start
            outside = (local < 0).logical_or_(local >= weight.shape[0])
            local.masked_fill_(outside, 0)
        out = torch.nn.functional.embedding(local, weight)
        if outside is not None:
            out.masked_fill_(outside.unsqueeze(-1), 0)
        out = tp.reduce(out)
        if positions is not None:
            rows = position_rows(positions, spans)
            out.view(*rows.shape[:2], *out.shape[1:]).add_(rows.unsqueeze(2))
        segments = None
        if token_types is not None:
            segments = segments_of(spans, seq_len, len(token_types), tokens)
            out.add_(torch.nn.functional.embedding(segments, token_types))
            ctx.token_types = len(token_types)
        ctx.save_for_backward(local, outside, segments)
        ctx.tp, ctx.rows, ctx.spans = tp, weight.shape[0], spans
        ctx.position_shape = None if positions is None else positions.shape
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        local, outside, segments = ctx.saved_tensors
        grad = grads[0]
        grad_positions = grad_types = None
        if ctx.position_shape is not None:
            grad_positions = torch.zeros(ctx.position_shape, dtype=grad.dtype, device=grad.device)
            rows = position_rows(grad_positions, ctx.spans)
            torch.sum(grad.view(*rows.shape[:2], *grad.shape[1:]), dim=2, out=rows)
        backward = torch.ops.aten.embedding_dense_backward
        if segments is not None:
            grad_types = backward(grad, segments, ctx.token_types, -1, False)
        grad = ctx.tp.gather_sequence(grad)
        if outside is not None:
            grad = grad.masked_fill(outside.unsqueeze(-1), 0)
        grad_weight = backward(grad, local, ctx.rows, -1, False)
        return None, grad_weight, grad_positions, grad_types, None, None, None, None


def segments_of(spans: IndexRanges, seq_len: int, types: int, tokens: Tensor) -> Tensor:
    """Segment of each local token: ``types`` equal parts per sample.

    So a sample is a pair of texts, as in BERT (Devlin et al., 2019, section 3).

    Args:
        spans: token numbers.
        seq_len: tokens of a sample.
        types: segments of a sample.
        tokens: (seq, batch) of as many samples.

    Returns:
        (local tokens, batch) segment numbers.
    """
    parts = [torch.arange(*span, device=tokens.device) for span in spans]
    numbers = parts[0] if len(parts) == 1 else torch.cat(parts)
    numbers = numbers.mul_(types).div_(seq_len, rounding_mode="floor")
    return numbers.unsqueeze(1).expand(-1, tokens.shape[1])


def embedding(
    tokens: Tensor,
    weight: Tensor,
    positions: Tensor | None,
    vocab_start: int,
    tp: TensorParallel,
    spans: IndexRanges,
    seq_len: int,
    token_types: Tensor | None = None,
) -> Tensor:
    """Token vectors, plus learned vectors of positions and segments.

    Args:
        tokens: (seq, batch) token numbers.
        weight: (local vocabulary, hidden).
        positions: (maximum positions, hidden), or None.
        vocab_start: number of this rank's first token.
        tp: the ranks over which the vocabulary is split.
        spans: numbers of this rank's output tokens.
        seq_len: tokens of a sample.
        token_types: (segments, hidden), or None.

    Returns:
        (seq, batch, hidden), or this rank's sequence shard of it.
    """
    out: Tensor = _Embedding.apply(  # type: ignore[no-untyped-call]
        tokens, weight, positions, token_types, vocab_start, tp, spans, seq_len
    )
    return out
