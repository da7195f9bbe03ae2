"""Cuts of a model's layers into the chunks of a pipeline, by a stack's rule."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from ..cluster.stack_spec import LayerCut
from ..schedules.stage_order import ScheduleKind, chunk_location

Boundaries = tuple[int, ...]
"""Numbers of the first layer of each chunk in data order, and the number of layers."""


def cuts(
    rule: LayerCut, is_block: Sequence[bool], kind: ScheduleKind, stages: int, chunks: int
) -> Iterator[Boundaries]:
    """Cuts that a rule allows, the most even first; without a rule (any) the even one.

    Args:
        rule: of a stack.
        is_block: of every layer, True for a block.
        kind: schedule, which places the chunks.
        stages: of the pipeline.
        chunks: of a stage.
    """
    yield from dict.fromkeys(_cuts(rule, is_block, kind, stages, chunks))


def _cuts(
    rule: LayerCut, is_block: Sequence[bool], kind: ScheduleKind, stages: int, chunks: int
) -> Iterator[Boundaries]:
    parts, layers, blocks = stages * chunks, len(is_block), sum(is_block)
    if parts > blocks:
        if rule != "ends" and parts <= layers:
            yield _even(layers, parts)
        return
    if blocks % parts == 0:
        yield after_blocks(is_block, [blocks // parts] * parts)
    if rule == "ends":
        for embedding, head in ((1, 1), (0, 1), (1, 0)):
            size, rest = divmod(blocks + embedding + head, parts)
            if parts > 1 and not rest and size > 1:
                sizes = [size - embedding, *[size] * (parts - 2), size - head]
                yield after_blocks(is_block, sizes)
        for first, middle, last in _ends(blocks, stages, chunks):
            by_stage = [first, *[middle] * (stages - 2), last]
            places = (chunk_location(kind, n, stages)[0] for n in range(parts))
            yield after_blocks(is_block, [by_stage[place] for place in places])
        return
    yield _even(layers, parts)
    sizes = [stop - start for start, stop in pairwise(_even(blocks, parts))]
    yield after_blocks(is_block, sizes)


def _even(count: int, parts: int) -> Boundaries:
    """Runs of sizes within one, the longer ones first."""
    size, longer = divmod(count, parts)
    return tuple(n * size + min(n, longer) for n in range(parts + 1))


def _ends(blocks: int, stages: int, chunks: int) -> Iterator[tuple[int, int, int]]:
    """Blocks of a chunk of the first stage, of those between, and of the last one."""
    if stages == 1:
        return
    full = -(-blocks // (stages * chunks))
    for middle in (full, full + 1):
        rest = blocks - (stages - 2) * middle * chunks
        if rest % chunks:
            continue
        both = rest // chunks
        pairs = [(both - last, last) for last in range(1, min(middle, both - 1) + 1)]
        fitting = [pair for pair in pairs if 1 <= pair[0] <= middle]
        for first, last in sorted(fitting, key=lambda pair: (abs(pair[0] - pair[1]), pair)):
            yield first, middle, last


def after_blocks(is_block: Sequence[bool], sizes: Sequence[int]) -> Boundaries:
    """Boundaries after so many blocks; other layers join the block before them, or an end."""
    ends, seen, blocks = list(accumulate(sizes)), 0, sum(is_block)
    layers = [0] * len(sizes)
    for block in is_block:
        seen += block
        part = bisect_right(ends, seen - 1) if seen else 0
        layers[part if block or seen < blocks else -1] += 1
    return tuple(accumulate(layers, initial=0))


def cut_violation(
    rule: LayerCut,
    is_block: Sequence[bool],
    kind: ScheduleKind,
    stages: int,
    boundaries: Sequence[int],
) -> str | None:
    """Reason why a rule does not have a cut, or None.

    Args:
        rule: of a stack.
        is_block: of every layer, True for a block.
        kind: schedule, which places the chunks.
        stages: of the pipeline.
        boundaries: of the chunks, in data order.
    """
    parts = len(boundaries) - 1
    if rule == "any" or parts == 1:
        return None
    if tuple(boundaries) in cuts(rule, is_block, kind, stages, parts // stages):
        return None
    blocks = [sum(is_block[start:stop]) for start, stop in pairwise(boundaries)]
    return f"chunks of {blocks} blocks"
