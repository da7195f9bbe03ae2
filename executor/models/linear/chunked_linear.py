"""Tensor-parallel linear layers in chunks, each beside another chunk's collective.

A chunk is an equal part of each rank's sequence shard. Gathers write chunk after chunk into one
buffer, products into parts of one buffer, scatters into parts of the output; all wait only for
their own chunk. Copies put rows into the order of chunks before a product, and back after it. Runs
what ``shardwright.costmodel.ops.chunked_linear`` prices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

from ....kernels.marks import mark
from ....spec.report.trace_marks import COMMUNICATE_TP
from ...torch_compat import all_gather_single, reduce_scatter_single
from ..deferred_gradients import add_gradients
from ..saved_results import NamedResult
from ..tensor_parallel import (
    TensorParallel,
    bias_sums,
    column_gradients,
    row_tensors,
    weights_and_biases,
)
from .overlapped_linear import OverlappedLinear


@dataclass(slots=True)
class Chunks:
    """How many chunks, and the process group of their collectives, set before the first step."""

    count: int
    group: dist.ProcessGroup | None = None

    def gather(self, x: Tensor, ranks: int) -> tuple[Tensor, list[Any]]:
        """Begin to gather (rows, width) of each rank: (chunks, rows of all, width), and waits."""
        rows, width = x.shape
        whole = x.new_empty(self.count, ranks * rows // self.count, width)
        with mark(COMMUNICATE_TP):
            works = [
                all_gather_single(out, part, group=self.group, async_op=True)
                for out, part in zip(whole, x.contiguous().chunk(self.count), strict=True)
            ]
        return whole, works

    def scatter(self, part: Tensor, out: Tensor) -> Any:
        """Begin to sum a chunk over the ranks, each keeping its rows in ``out``."""
        with mark(COMMUNICATE_TP):
            return reduce_scatter_single(out, part, group=self.group, async_op=True)

    def ordered(self, x: Tensor, ranks: int) -> Tensor:
        """Rows in the order of tokens -> (chunks, rows of a chunk, width)."""
        by_rank = x.view(ranks, self.count, -1, x.shape[-1])
        return by_rank.transpose(0, 1).contiguous().view(self.count, -1, x.shape[-1])

    def restored(self, x: Tensor, ranks: int) -> Tensor:
        """The reverse of :meth:`ordered`: (rows, width)."""
        by_chunk = x.view(self.count, ranks, -1, x.shape[-1])
        return by_chunk.transpose(0, 1).contiguous().view(-1, x.shape[-1])


def _wait(work: Any) -> None:
    with mark(COMMUNICATE_TP):
        work.wait()


class _ChunkedColumn(Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        tp: TensorParallel,
        chunks: Chunks,
        named: NamedResult,
        *parameters: Tensor | None,
    ) -> Any:
        weights, biases = weights_and_biases(parameters)
        ctx.save_for_backward(x, *weights)
        ctx.tp, ctx.chunks = tp, chunks
        ctx.biased = [bias is not None for bias in biases]
        ctx.parameters = parameters if tp.deferred is not None else ()
        outs = list(named.kept() or [None] * len(weights))
        missing = [n for n, out in enumerate(outs) if out is None]
        if missing:
            made = _column_products(
                x, [weights[n] for n in missing], [biases[n] for n in missing], tp, chunks
            )
            for number, out in zip(missing, made, strict=True):
                outs[number] = out
        results = tuple(out for out in outs if out is not None)
        named.keep(*results)
        return results

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        x, *weights = ctx.saved_tensors
        tp, chunks = ctx.tp, ctx.chunks
        ordered = [chunks.ordered(g.contiguous(), tp.size) for g in grads]
        gathered, waits = chunks.gather(x.detach().flatten(0, 1), tp.size)
        grad_x = torch.empty_like(x, memory_format=torch.contiguous_format)
        partial = x.new_empty(chunks.count, ordered[0].shape[1], x.shape[-1])
        works = []
        parts = grad_x.flatten(0, 1).chunk(chunks.count)
        for chunk, out in enumerate(parts):
            torch.mm(ordered[0][chunk], weights[0], out=partial[chunk])
            for grad, weight in zip(ordered[1:], weights[1:], strict=True):
                partial[chunk].addmm_(grad[chunk], weight)
            works.append(chunks.scatter(partial[chunk], out))
        for work in (*waits, *works):
            _wait(work)
        del partial, works, waits
        if tp.deferred is not None and tp.deferred.is_deferring:
            flat = [g.flatten(0, 1) for g in ordered]
            tp.deferred.add(column_gradients(flat, gathered.flatten(0, 1), ctx.parameters))
            return (grad_x, None, None, None, *(None for _ in ctx.parameters))
        flat = [g.flatten(0, 1) for g in ordered]
        grad_weights = [g.t().mm(gathered.flatten(0, 1)) for g in flat]
        grad_biases = bias_sums(flat, ctx.biased)
        return (grad_x, None, None, None, *grad_weights, *grad_biases)


def _column_products(
    x: Tensor,
    weights: list[Tensor],
    biases: list[Tensor | None],
    tp: TensorParallel,
    chunks: Chunks,
) -> list[Tensor]:
    """Products of all tokens with each weight, rows in the order of tokens."""
    gathered, works = chunks.gather(x.flatten(0, 1), tp.size)
    pieces = [x.new_empty(*gathered.shape[:2], weight.shape[0]) for weight in weights]
    for chunk, work in enumerate(works):
        _wait(work)
        for piece, weight, bias in zip(pieces, weights, biases, strict=True):
            if bias is None:
                torch.mm(gathered[chunk], weight.t(), out=piece[chunk])
            else:
                torch.addmm(bias, gathered[chunk], weight.t(), out=piece[chunk])
    del gathered
    lead = (x.shape[0] * tp.size, x.shape[1])
    return [chunks.restored(pieces.pop(0), tp.size).view(*lead, -1) for _ in weights]


class _ChunkedRow(Function):
    @staticmethod
    def forward(
        ctx: Any,
        tp: TensorParallel,
        chunks: Chunks,
        named: NamedResult,
        count: int,
        *tensors: Tensor | None,
    ) -> Tensor:
        xs, weights, biases = row_tensors(count, tensors)
        ctx.save_for_backward(*xs, *weights)
        ctx.tp, ctx.chunks = tp, chunks
        ctx.biased = [bias is not None for bias in biases]
        ctx.weights = weights if tp.deferred is not None else ()
        (kept,) = named.kept()
        if kept is not None:
            return kept
        ordered = [chunks.ordered(x.contiguous(), tp.size) for x in xs]
        x, width = xs[0], weights[0].shape[0]
        partial = x.new_empty(*ordered[0].shape[:2], width)
        out = x.new_empty(x.shape[0] // tp.size, x.shape[1], width)
        works = []
        for chunk, rows in enumerate(out.flatten(0, 1).chunk(chunks.count)):
            torch.mm(ordered[0][chunk], weights[0].t(), out=partial[chunk])
            for other, weight in zip(ordered[1:], weights[1:], strict=True):
                partial[chunk].addmm_(other[chunk], weight.t())
            works.append(chunks.scatter(partial[chunk], rows))
        for work in works:
            _wait(work)
        del partial, works
        for bias in biases:
            out = out if bias is None else out.add_(bias)
        named.keep(out)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        count, tp, chunks = len(ctx.biased), ctx.tp, ctx.chunks
        saved = ctx.saved_tensors  # unpacked once
        xs, weights = saved[:count], saved[count:]
        flat = grads[0].flatten(0, 1)
        grad_biases = bias_sums([flat] * count, ctx.biased)
        gathered, works = chunks.gather(flat, tp.size)
        pieces = [x.new_empty(*gathered.shape[:2], x.shape[-1]) for x in xs]
        for chunk, work in enumerate(works):
            _wait(work)
            for piece, weight in zip(pieces, weights, strict=True):
                torch.mm(gathered[chunk], weight, out=piece[chunk])
        grad_xs = [chunks.restored(pieces.pop(0), tp.size).view(x.shape) for x in xs]
        if tp.deferred is not None and tp.deferred.is_deferring:
            inputs = [x.detach() for x in xs]
            tp.deferred.add(_row_work(gathered, inputs, ctx.weights, chunks, tp.size))
            return (None,) * 4 + (*grad_xs, *(None for _ in xs), *grad_biases)
        grad_weights = [_row_gradient(gathered, x, chunks, tp.size) for x in xs]
        return (None,) * 4 + (*grad_xs, *grad_weights, *grad_biases)


def _row_gradient(gathered: Tensor, x: Tensor, chunks: Chunks, ranks: int) -> Tensor:
    ordered = chunks.ordered(x.contiguous(), ranks)
    return gathered.flatten(0, 1).t().mm(ordered.flatten(0, 1))


def _row_work(
    gathered: Tensor, xs: list[Tensor], weights: list[Tensor], chunks: Chunks, ranks: int
) -> Callable[[], None]:
    def product() -> None:
        add_gradients(weights, [_row_gradient(gathered, x, chunks, ranks) for x in xs])

    return product


class ChunkedProducts(OverlappedLinear):
    """Column- and row-split products in chunks."""

    def __init__(self, count: int) -> None:
        super().__init__(Chunks(count), _ChunkedColumn, _ChunkedRow)


__all__ = ["ChunkedProducts", "Chunks"]
