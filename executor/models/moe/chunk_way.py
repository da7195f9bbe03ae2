"""The way of chunks of rows to their experts and back, over two link levels.

All chunks are sent at once. Inside a node, rows are passed on as they have crossed between nodes,
and results go back the other way. On CUDA devices each link level has a stream; on cores the host
waits, for the next chunk's way inside the node before the products of one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from ....kernels.marks import mark
from ....spec.report.trace_marks import COMMUNICATE_EP, COMMUNICATE_TP
from ...torch_compat import all_gather_single, reduce_scatter_single
from .chunk_plan import ChunkGroups, ChunkPlan, cut_again, part, plan_chunks
from .dispatch import ExpertRanks, Sizes, filled_up, reordered
from .order import RoutedRows

Stream = torch.cuda.Stream | None


class Window(Protocol):
    """Other work of a backward, between its way to the experts and its way back."""

    def open(self) -> None:
        """Begin the work, on the current stream."""

    def close(self) -> None:
        """Wait for it."""


@dataclass(slots=True)
class ChunkedExperts:
    """Chunks of a block's expert rows; groups and streams are set before the first step.

    ``window``: other work on the way between nodes, in every backward.
    """

    forward: int
    backward: int
    groups: ChunkGroups = field(default_factory=ChunkGroups)
    outer: Stream = None
    inner: Stream = None
    window: Window | None = None

    def plan(self, rows: RoutedRows, topk: int, ranks: ExpertRanks) -> tuple[ChunkPlan, RoutedRows]:
        """Exchange counts, and put rows, ``topk`` a token, into the order of chunks."""
        plan = plan_chunks(rows.offsets, rows.order.shape[0], ranks, self.groups)
        if self.forward == 1:
            return plan, rows
        sizes, order = cut_again(plan.targets(), 1, self.forward)
        assignments = reordered(rows.order, sizes, order)
        return plan, rows._replace(order=assignments, token=assignments // topk)


class ChunkWay:
    """One direction of rows to their experts and back, in so many chunks."""

    def __init__(self, run: ChunkedExperts, plan: ChunkPlan, count: int) -> None:
        self.run, self.plan, self.count, self.groups = run, plan, count, run.groups
        self.held: list[Any] = []
        self._arriving: list[tuple[Tensor, Any]] = []
        self._joining: list[tuple[Tensor, Any]] = []
        self._returns: list[Callable[[], None]] = []
        self._ends: list[Any] = []

    def send(self, rows: Tensor) -> None:
        """Begin to send all chunks of (rows, width)."""
        rows = rows.contiguous()
        self.held.append(rows)
        outs = [rows.new_empty(sum(self._crossing(c)), rows.shape[1]) for c in range(self.count)]
        with self._on(self.run.outer):
            for chunk, (out, sent) in enumerate(zip(outs, self.cut(rows), strict=True)):
                sizes = self._crossing(chunk), self._leaving(chunk)
                self._arriving.append((out, _exchange(out, sent, *sizes, self.groups.between)))

    def open_window(self) -> None:
        """Begin other work, once all chunks are on their way."""
        if self.run.window is None:
            return
        with self._on(self.run.outer):
            if self.run.outer is not None:
                for _, work in self._arriving:
                    _wait(work)
            self.run.window.open()

    def close_window(self) -> None:
        """Wait for the other work, once all chunks are back."""
        if self.run.window is not None:
            self.run.window.close()

    def cut(self, rows: Tensor) -> list[Tensor]:
        """This rank's rows by chunk."""
        sizes = [sum(self._leaving(chunk)) for chunk in range(self.count)]
        return list(rows.split(sizes))  # type: ignore[no-untyped-call]

    def _leaving(self, chunk: int) -> Sizes:
        """Rows of a chunk from this rank to each node."""
        return [self._parts(node, chunk) for node in self.plan.own]

    def _crossing(self, chunk: int) -> Sizes:
        """Rows of a chunk that reach this rank between nodes, by node."""
        return [self._parts(node, chunk) for node in self.plan.passing]

    def _parts(self, blocks: list[Sizes], chunk: int) -> int:
        return sum(self._part(sizes, chunk) for sizes in blocks)

    def _part(self, sizes: Sizes, chunk: int) -> int:
        return sum(part(count, chunk, self.count) for count in sizes)

    def arrive(self, chunk: int) -> Tensor:
        """Rows of a chunk at their experts, sorted by them."""
        ahead = self.count if self.run.inner is not None else min(chunk + 2, self.count)
        while len(self._joining) < ahead:
            self._joining.append(self._pass_on(self._arriving.pop(0), len(self._joining)))
        rows, work = self._joining[chunk]
        self._joining[chunk] = (rows if self.run.inner is not None else rows[:0], None)
        _wait(work)
        blocks = self._joined_sizes(chunk)
        if self.groups.split is not None:
            rows = _without_filling(rows, blocks)
        return self._sorted(rows, chunk, back=False)

    def _pass_on(self, crossed: tuple[Tensor, Any], chunk: int) -> tuple[Tensor, Any]:
        """A chunk that has crossed, passed on inside the node and joined."""
        rows, work = crossed
        if self.run.inner is not None:  # its memory is the computation's, which does not wait
            self.held.append(rows)
        if self.groups.inside is None and self.groups.split is None:
            return rows, work
        with self._on(self.run.inner):
            _wait(work)
            if self.groups.inside is not None:
                rows, work = self._inside(rows, chunk, back=False)
                if self.groups.split is not None:
                    _wait(work)
            if self.groups.split is not None:
                longest = max(self._joined_sizes(chunk))
                filled = filled_up(rows, longest)
                self.held.append(filled)
                rows = rows.new_empty(len(self.plan.joined) * longest, rows.shape[1])
                with mark(COMMUNICATE_TP):
                    work = all_gather_single(rows, filled, group=self.groups.split, async_op=True)
        return rows, work

    def _inside(self, rows: Tensor, chunk: int, back: bool) -> tuple[Tensor, Any]:
        """Pass rows on inside the node, from (node, place) to (place, node) or back."""
        nodes, places = self.groups.nodes, self.groups.places
        passing = [
            [self._part(self.plan.passing[n][p], chunk) for n in range(nodes)]
            for p in range(places)
        ]
        sent = [sum(by_node) for by_node in passing]
        received = [self._parts(place, chunk) for place in self.plan.arriving]
        if back:
            out = rows.new_empty(sum(sent), rows.shape[1])
            work = _exchange(out, rows.contiguous(), sent, received, self.groups.inside)
            self.held.append(rows)
            return out, work
        by_node = [passing[p][n] for n in range(nodes) for p in range(places)]
        order = [n * places + p for p in range(places) for n in range(nodes)]
        rows = reordered(rows, by_node, order)
        self.held.append(rows)
        out = rows.new_empty(sum(received), rows.shape[1])
        return out, _exchange(out, rows, received, sent, self.groups.inside)

    def leave(self, rows: Tensor, chunk: int, out: Tensor) -> None:
        """Begin a chunk's way back into ``out``, and go on with that of the one before."""
        rows = self._sorted(rows, chunk, back=True).contiguous()
        if self.groups.inside is None and self.groups.split is None:
            self._come_back(rows, None, chunk, out)
            return
        with self._on(self.run.inner):
            if self.groups.split is not None:
                rows, work = self._scatter(rows, chunk)
            else:
                rows, work = self._inside(rows, chunk, back=True)
        self.finish_returns()
        self._returns.append(lambda: self._go_on(rows, work, chunk, out))
        if self.run.inner is not None:
            self.finish_returns()

    def _scatter(self, rows: Tensor, chunk: int) -> tuple[Tensor, Any]:
        sizes = self._joined_sizes(chunk)
        longest = max(sizes)
        if min(sizes) < longest:
            blocks = rows.split(sizes)  # type: ignore[no-untyped-call]
            rows = torch.cat([filled_up(block, longest) for block in blocks])
        self.held.append(rows)
        out = rows.new_empty(longest, rows.shape[1])
        with mark(COMMUNICATE_TP):
            work = reduce_scatter_single(out, rows, group=self.groups.split, async_op=True)
        return out, work

    def _go_on(self, rows: Tensor, work: Any, chunk: int, out: Tensor) -> None:
        with self._on(self.run.inner):
            _wait(work)
            if self.groups.split is not None:
                rows = rows[: self._joined_sizes(chunk)[self.plan.etp_rank]]
                if self.groups.inside is not None:
                    rows, work = self._inside(rows.contiguous(), chunk, back=True)
                    _wait(work)
            if self.groups.inside is not None:
                rows = self._by_node(rows, chunk)
        self._come_back(rows.contiguous(), self.run.inner, chunk, out)

    def _by_node(self, rows: Tensor, chunk: int) -> Tensor:
        nodes, places = self.groups.nodes, self.groups.places
        sizes = [
            self._part(self.plan.passing[n][p], chunk) for p in range(places) for n in range(nodes)
        ]
        order = [p * nodes + n for n in range(nodes) for p in range(places)]
        return reordered(rows, sizes, order)

    def _come_back(self, rows: Tensor, after: Stream, chunk: int, out: Tensor) -> None:
        self.held.append(rows)
        with self._on(self.run.outer):
            if after is not None:
                torch.cuda.current_stream().wait_stream(after)
            sizes = self._leaving(chunk), self._crossing(chunk)
            self._ends.append(_exchange(out, rows, *sizes, self.groups.between))

    def finish_returns(self) -> None:
        """Go on with chunks whose way back has begun."""
        while self._returns:
            self._returns.pop(0)()

    def end(self) -> None:
        """Wait until all chunks are back."""
        self.finish_returns()
        for work in self._ends:
            _wait(work)
        self.held.clear()

    def _joined_sizes(self, chunk: int) -> Sizes:
        """Rows of a chunk of each rank that splits the same experts."""
        return [sum(self._parts(place, chunk) for place in blocks) for blocks in self.plan.joined]

    def _sorted(self, rows: Tensor, chunk: int, back: bool) -> Tensor:
        """Rows by source in the order of experts, or back."""
        by_source = self.plan.sources()
        if len(by_source) == 1 or self.plan.local == 1:
            return rows
        sizes = [[part(c, chunk, self.count) for c in source] for source in by_source]
        sources, experts = range(len(sizes)), range(self.plan.local)
        if back:
            by_expert = [sizes[s][e] for e in experts for s in sources]
            order = [e * len(sizes) + s for s in sources for e in experts]
            return reordered(rows, by_expert, order)
        order = [s * self.plan.local + e for e in experts for s in sources]
        return reordered(rows, [size for source in sizes for size in source], order)

    def _on(self, stream: Stream) -> AbstractContextManager[object]:
        """Put device work on a stream, after what the computation has issued."""
        if stream is None:
            return nullcontext()
        stream.wait_stream(torch.cuda.current_stream())
        return torch.cuda.stream(stream)


def _exchange(
    out: Tensor, rows: Tensor, received: Sizes, sent: Sizes, group: dist.ProcessGroup | None
) -> Any:
    with mark(COMMUNICATE_EP):
        return dist.all_to_all_single(out, rows, received, sent, group=group, async_op=True)


def _wait(work: Any) -> None:
    with mark(COMMUNICATE_EP):
        work.wait()


def _without_filling(rows: Tensor, sizes: Sizes) -> Tensor:
    longest = max(sizes)
    if min(sizes) == longest:
        return rows
    blocks = zip(rows.split(longest), sizes, strict=True)  # type: ignore[no-untyped-call]
    return torch.cat([block[:size] for block, size in blocks])


__all__ = ["ChunkWay", "ChunkedExperts", "Window"]
