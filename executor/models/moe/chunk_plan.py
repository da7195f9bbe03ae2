"""Rows of each chunk between ranks, known on the host from one exchange of counts.

A rank's rows for an expert are cut into equal parts, so every rank knows the sizes of all chunks,
in either direction, from the counts alone. Ranks with other experts are (place in node, node).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from ....kernels.group_ends import read_offsets
from ....kernels.marks import mark
from ....spec.report.trace_marks import COMMUNICATE_EP
from ...torch_compat import all_gather_single
from .dispatch import ExpertRanks, Sizes

Blocks = list[Sizes]


@dataclass(slots=True)
class ChunkGroups:
    """Process groups of the way to the experts; those of one rank are None.

    ``between``: ``nodes`` ranks, of all nodes, or all that hold other experts. ``inside``:
    ``places`` ranks of a node. ``split``: ranks that split an expert.
    """

    between: dist.ProcessGroup | None = None
    nodes: int = 1
    inside: dist.ProcessGroup | None = None
    places: int = 1
    split: dist.ProcessGroup | None = None


def part(count: int, number: int, parts: int) -> int:
    """Rows of a part, of ``parts`` nearly equal ones."""
    return count * (number + 1) // parts - count * number // parts


@dataclass(frozen=True, slots=True)
class ChunkPlan:
    """Rows by source, target and expert.

    ``own``: this rank's, by node, place and expert. ``passing``: those that cross to this rank
    between nodes, by their node, the place that they go on to, and expert. ``arriving``: this
    rank's share at its experts, by place, node and expert of the source, of each rank that splits
    them (``joined``: all of them, this rank's own at ``etp_rank``).
    """

    own: list[Blocks]
    passing: list[Blocks]
    joined: list[list[Blocks]]
    etp_rank: int

    @property
    def arriving(self) -> list[Blocks]:
        """Rows for this rank's experts, by place, node and expert."""
        return self.joined[self.etp_rank]

    @property
    def local(self) -> int:
        """Experts of a rank."""
        return len(self.own[0][0])

    def sources(self) -> list[Sizes]:
        """Rows for each local expert, by source in the order of arrival."""
        return [sizes for blocks in self.joined for place in blocks for sizes in place]

    def targets(self) -> Sizes:
        """Rows of this rank for every expert."""
        return [count for node in self.own for sizes in node for count in sizes]

    def rows_per_expert(self, chunk: int, chunks: int) -> Sizes:
        """Rows of a chunk for each local expert."""
        return [
            sum(part(sizes[e], chunk, chunks) for sizes in self.sources())
            for e in range(self.local)
        ]


def plan_chunks(offsets: Tensor, rows: int, ranks: ExpertRanks, groups: ChunkGroups) -> ChunkPlan:
    """Exchange row counts level by level; waits for the device.

    ``offsets``: (experts,) end of each expert's rows on this rank; ``rows``: their number.
    """
    counts = [after - before for before, after in pairwise([0, *read_offsets(offsets, rows)])]
    nodes, places = groups.nodes, groups.places
    local = len(counts) // ranks.ep
    held = torch.tensor(counts, dtype=torch.int64, device=offsets.device)
    shape = (nodes, places, local)
    own = held.view(shape)
    passing = _exchanged(held, groups.between).view(shape)
    arriving = passing.transpose(0, 1)
    if places > 1:
        arriving = _exchanged(arriving.contiguous().flatten(), groups.inside)
    arriving = arriving.reshape(-1)
    if ranks.etp > 1:
        joined = arriving.new_empty(ranks.etp * len(counts))
        with mark(COMMUNICATE_EP):
            all_gather_single(joined, arriving, group=groups.split)
        arriving = joined
    joined_shape = (ranks.etp, places, nodes, local)
    if isinstance(held, FakeTensor):
        first = [[counts[:local]] * places] * nodes
        return ChunkPlan(first, first, [[[counts[:local]] * nodes] * places] * ranks.etp, 0)
    return ChunkPlan(
        own.tolist(), passing.tolist(), arriving.view(joined_shape).tolist(), ranks.etp_rank
    )


def _exchanged(counts: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    received = torch.empty_like(counts)
    with mark(COMMUNICATE_EP):
        dist.all_to_all_single(received, counts, group=group)
    return received


def cut_again(counts: Sequence[int], before: int, after: int) -> tuple[Sizes, Sizes]:
    """Sizes of blocks in one order of chunks, and their numbers in that of another.

    Args:
        counts: rows of each block that every chunk has a part of, in order.
        before: chunks of the first order.
        after: of the second; one of the numbers divides the other.
    """
    fine = max(before, after)

    def keys(chunks: int) -> list[tuple[int, int]]:
        each = fine // chunks
        return [
            (block, chunk * each + within)
            for chunk in range(chunks)
            for block in range(len(counts))
            for within in range(each)
        ]

    first = keys(before)
    position = {key: number for number, key in enumerate(first)}
    sizes = [part(counts[block], number, fine) for block, number in first]
    return sizes, [position[key] for key in keys(after)]
