"""Experts' rows in chunks: each exchanged, computed and returned beside others.

A rank's rows are cut so that every chunk has an equal part of each expert's. All are sent at once;
inside a node rows are passed on once they have crossed between nodes, and come back the other way.
Weights' gradients of a chunk follow its return. Where the directions differ in chunks, rows and
kept results are copied into the other order. Runs are ``executor.models.moe.chunks``.

Rows are those of the fullest node between nodes, and of the fullest rank inside one and at the
experts: an upper bound where the fullest rank is not in the fullest node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from ...spec.cluster.stack_spec import ExpertChunks
from ...spec.model.feed_forward import Moe
from ...spec.parallel.rank_groups import RankGroup
from ..ops.activation import activation
from ..ops.context import OpContext
from ..ops.moe.dispatch import gather_rows, scatter_rows, sort_by_expert
from ..ops.moe.experts import grouped_product, grouped_weight_gradient, side_by_side
from ..symbolic.symbolic_tensor import Node
from ..symbolic.tape import SymbolicTensor
from ..symbolic.work_overlap import ExpertStage, WorkOverlap

Tensors = tuple[SymbolicTensor, ...]


@dataclass(frozen=True, slots=True)
class ExpertWay:
    """Ranks with other experts, those that split an expert, and the chunks between them."""

    ep_group: RankGroup
    etp_group: RankGroup
    chunks: ExpertChunks

    @property
    def between(self) -> RankGroup:
        """Ranks that exchange rows first: of all nodes, or all."""
        size, stride = self.ep_group
        return RankGroup(size // self.chunks.inside, stride * self.chunks.inside)

    @property
    def inside(self) -> RankGroup:
        """Ranks of a node that pass them on."""
        return RankGroup(self.chunks.inside, self.ep_group.stride)


def exchange_chunk_counts(
    c: OpContext, moe: Moe, way: ExpertWay, order: SymbolicTensor
) -> SymbolicTensor:
    """Exchange row counts, level by level; the order of rows, by chunks."""
    t = c.tape
    counts = t.new((moe.experts,), "int64")
    for group in (way.between, way.inside):
        if group.size > 1:
            t.collective("all_to_all", group, counts, term="exposed_ep")
    if way.etp_group.size > 1:
        gathered = t.new((way.etp_group.size * moe.experts,), "int64")
        t.collective("all_gather", way.etp_group, gathered, term="exposed_ep")
    return order if way.chunks.forward == 1 else t.kernel("copy", (order,), t.like(order))


class _Kept(NamedTuple):
    """A chunk's rows at their experts, and the projections that the activation reads."""

    rows: SymbolicTensor
    projected: Tensors


class _Direction:
    """One direction of rows to their experts and back, in equal chunks."""

    def __init__(self, c: OpContext, moe: Moe, way: ExpertWay, count: int) -> None:
        self.c, self.moe, self.way, self.count = c, moe, way, count
        self.local = moe.experts // way.ep_group.size
        self._own: list[int] = []

    def _crossing(self, chunk: int) -> int:
        """Rows of a chunk that reach each rank of the fullest node between nodes."""
        return self.c.fullest_rows(self._own[chunk], self.way.between.size)

    def _arriving(self, chunk: int) -> int:
        """Rows of a chunk that reach the fullest rank."""
        return self.c.fullest_rows(self._own[chunk], self.way.ep_group.size)

    def at(self, chunk: int, stage: ExpertStage) -> WorkOverlap:
        """Where a chunk's work is."""
        return WorkOverlap("experts", self.count, chunk=chunk, stage=stage)

    def sizes(self, rows: int) -> list[int]:
        """Rows of each chunk."""
        ends = [rows * chunk // self.count for chunk in range(self.count + 1)]
        return [end - start for start, end in pairwise(ends)]

    def send(self, rows: SymbolicTensor) -> list[SymbolicTensor]:
        """Send all chunks of (rows, width) at once."""
        self._own, (_, width) = self.sizes(rows.shape[0]), rows.shape
        return [
            self._exchange(
                self.way.between, (self._crossing(chunk), width), rows.dtype, chunk, "dispatch"
            )
            for chunk in range(self.count)
        ]

    def _exchange(
        self,
        group: RankGroup,
        shape: tuple[int, ...],
        dtype: str,
        chunk: int,
        stage: ExpertStage,
        into: bool = False,
    ) -> SymbolicTensor:
        t = self.c.tape
        overlap, sent = self.at(chunk, stage), t.constant(shape, dtype)
        over = self.c.load if self.way.inside.size == 1 else ()
        t.collective("all_to_all", group, sent, term="exposed_ep", over=over, overlap=overlap)
        return sent if into else t.new(shape, dtype)

    def arrive(self, rows: SymbolicTensor, chunk: int) -> SymbolicTensor:
        """A received chunk at its experts, sorted by them."""
        c, t = self.c, self.c.tape
        with t.beside(self.at(chunk, "gather")):
            if self.way.inside.size > 1:
                rows = t.kernel("copy", (rows,), t.like(rows))
                shape, dtype = (self._arriving(chunk), rows.shape[1]), rows.dtype
                rows = self._exchange(self.way.inside, shape, dtype, chunk, "gather")
            if self.way.etp_group.size > 1:
                rows = gather_rows(c, rows, self.way.etp_group)
        with t.beside(self.at(chunk, "experts")):
            return self._sorted(rows)

    def leave(self, rows: SymbolicTensor, chunk: int) -> Tensors:
        """Begin a chunk's way back; what it holds until the end."""
        c, t = self.c, self.c.tape
        with t.beside(self.at(chunk, "experts")):
            rows = self._sorted(rows)
        held: list[SymbolicTensor] = []
        with t.beside(self.at(chunk, "scatter")):
            if self.way.etp_group.size > 1:
                held.append(rows)
                rows = scatter_rows(c, rows, self.way.etp_group)
            if self.way.inside.size > 1:
                held.append(rows)
                shape, dtype = rows.shape, rows.dtype
                self._exchange(self.way.inside, shape, dtype, chunk, "scatter", into=True)
                rows = t.new((self._crossing(chunk), shape[1]), dtype)
                rows = t.kernel("copy", (rows,), t.like(rows))
        shape, dtype = rows.shape, rows.dtype
        self._exchange(self.way.between, shape, dtype, chunk, "combine", into=True)
        return (*held, rows)

    def _sorted(self, rows: SymbolicTensor) -> SymbolicTensor:
        sources = self.way.ep_group.size * self.way.etp_group.size
        return sort_by_expert(self.c, rows, self.local, sources)


class _Experts:
    """Products of a rank's experts, by chunk, written out in both directions."""

    def __init__(self, c: OpContext, moe: Moe, way: ExpertWay) -> None:
        self.c, self.moe = c, moe
        self.experts = moe.experts // way.ep_group.size
        width = moe.ffn // way.etp_group.size
        fused = moe.gated and c.stack.fusion.gate_up
        self.width, self.parts = width, 2 if moe.gated else 1
        self.widths = (2 * width,) if fused else (width,) * self.parts
        self._gradients: list[SymbolicTensor] = []

    def project(self, rows: SymbolicTensor) -> Tensors:
        """Projections of rows: gate and up, or up alone."""
        t, (count, inner) = self.c.tape, rows.shape
        made = []
        for width in self.widths:
            grouped_product(self.c, self.experts, count, inner, width)
            made.append(t.new((count, width), rows.dtype))
        if len(made) < self.parts:
            return tuple(made[0].view(count, self.width) for _ in range(self.parts))
        return tuple(made)

    def down(self, hidden: SymbolicTensor, inner: int) -> SymbolicTensor:
        """Rows of the activation times the last weights."""
        grouped_product(self.c, self.experts, hidden.shape[0], self.width, inner)
        return self.c.tape.new((hidden.shape[0], inner), hidden.dtype)

    def backward(
        self, kept: _Kept, grad: SymbolicTensor
    ) -> tuple[SymbolicTensor, Callable[[], None]]:
        """Gradient of a chunk's rows, and the work of its weights' gradients."""
        c, t, (count, inner) = self.c, self.c.tape, grad.shape
        grouped_product(c, self.experts, count, inner, self.width)
        grad_hidden = t.new((count, self.width), grad.dtype)
        hidden, activation_backward = self._activated(kept.projected)
        grads = activation_backward(grad_hidden)
        del grad_hidden, activation_backward
        if len(self.widths) < len(grads):
            grads = side_by_side(c, grads)
        grad_rows = t.new((count, inner), grad.dtype)
        for number, width in enumerate(self.widths):
            grouped_product(c, self.experts, count, width, inner, accumulate=number > 0)

        def weights() -> None:
            made = [
                grouped_weight_gradient(c, self.experts, each.shape[1], *kept.rows.shape)
                for each in grads
            ]
            made.append(grouped_weight_gradient(c, self.experts, inner, *hidden.shape))
            self._add([one for one in made if one is not None])

        return grad_rows, weights

    def _activated(self, projected: Tensors) -> tuple[SymbolicTensor, Callable[..., Tensors]]:
        """The activation again, and its backward."""
        t, start = self.c.tape, self.c.tape.node_count
        leaves = tuple(SymbolicTensor(p.shape, p.dtype, p.storage) for p in projected)
        for leaf in leaves:
            leaf.producer = (Node((), 1, lambda *grads: grads), 0)
        hidden = activation(self.c, leaves, self.moe.activation, bias=False)
        (node,) = t.take_nodes(start)
        backward = node.backward
        if backward is None:
            raise RuntimeError("an activation has one backward")
        return SymbolicTensor(hidden.shape, hidden.dtype, hidden.storage), backward  # type: ignore[return-value]

    def _add(self, gradients: list[SymbolicTensor]) -> None:
        if not self._gradients:
            self._gradients = gradients
            return
        for total, gradient in zip(self._gradients, gradients, strict=True):
            self.c.tape.kernel("add", (total, gradient), total)

    def give_gradients(self) -> None:
        """Give the weights' gradients of all chunks to their parameters."""
        for gradient in self._gradients:
            self.c.tape.parameter_gradient(gradient)
        self._gradients = []


def chunked_experts(c: OpContext, moe: Moe, way: ExpertWay, rows: SymbolicTensor) -> SymbolicTensor:
    """Experts' outputs of (rows, width), in the same order; keeps rows and projections there."""
    t, shape, dtype = c.tape, rows.shape, rows.dtype
    there, back = (_Direction(c, moe, way, n) for n in (way.chunks.forward, way.chunks.backward))
    experts = _Experts(c, moe, way)
    kept: list[_Kept] = []
    with t.not_recording():
        out = t.new(shape, dtype)
        received, held = there.send(rows), list[Tensors]()
        for chunk in range(there.count):
            at_experts = there.arrive(received.pop(0), chunk)
            with t.beside(there.at(chunk, "experts")):
                projected = experts.project(at_experts)
                hidden = activation(c, projected, moe.activation, bias=False)
                kept.append(_Kept(at_experts, projected))
                made = experts.down(hidden, shape[1])
                del at_experts, projected, hidden
            held.append(there.leave(made, chunk))
            del made
        del held, received

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        now = kept
        if there.count != back.count:
            grad = t.kernel("copy", (grad,), t.like(grad))
            now = _cut_again(c, kept, back)
        grad_rows = t.new(shape, dtype)
        received, held = back.send(grad), list[Tensors]()
        for chunk in range(back.count):
            arrived = back.arrive(received.pop(0), chunk)
            with t.beside(back.at(chunk, "experts")):
                made, weights = experts.backward(now[chunk], arrived)
                del arrived
            held.append(back.leave(made, chunk))
            del made
            if c.training.weights:
                overlap = None if t.splits else back.at(chunk, "weights")
                t.weight_work(_beside(c, overlap, weights))
            del weights
        if c.training.weights:
            t.weight_work(experts.give_gradients)
        del held, received
        if there.count != back.count:
            grad_rows = t.kernel("copy", (grad_rows,), t.like(grad_rows))
        return (grad_rows,)

    t.record((out,), (rows,), backward)
    return out


def _beside(
    c: OpContext, overlap: WorkOverlap | None, work: Callable[[], None]
) -> Callable[[], None]:
    def run() -> None:
        with c.tape.beside(overlap):
            work()

    return run


def _cut_again(c: OpContext, kept: list[_Kept], back: _Direction) -> list[_Kept]:
    """Kept results of all chunks, copied into those of the backward."""
    t, rows = c.tape, sum(one.rows.shape[0] for one in kept)
    columns = []
    for old in zip(*((one.rows, *one.projected) for one in kept), strict=True):
        whole = t.new((rows, old[0].shape[1]), old[0].dtype)
        columns.append(t.kernel("copy", tuple(old), whole))
    return [
        _Kept(columns[0].view(size, columns[0].shape[1]),
              tuple(one.view(size, one.shape[1]) for one in columns[1:]))
        for size in back.sizes(rows)
    ]  # fmt: skip
