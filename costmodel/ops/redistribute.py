"""Redistribution of activations between layers with different layouts.

Where only tensor-parallel degrees differ, samples are gathered or split; where a ring or Ulysses
splits either sequence, ranks exchange tokens directly, none holding more than its parts.
"""

from __future__ import annotations

from ...spec.parallel.rank_groups import (
    RankGroup,
    batch_redistribute_steps,
    exchange_group,
    exchanges_tokens,
    tensor_group,
)
from ...spec.strategy import LayerStrategy
from ..symbolic.tape import SymbolicTensor, Tape
from .context import OpContext


def redistribute(
    c: OpContext, x: SymbolicTensor, before: LayerStrategy, after: LayerStrategy
) -> SymbolicTensor:
    """Bring activations from the layout of ``before`` to that of ``after``."""
    if before.layout == after.layout:
        return x
    if exchanges_tokens(before, after):
        return _exchange(c, x, before, after)
    if before.layout[2]:
        x = _step(c, x, tensor_group(before), joins=True, dim=0)
    steps = batch_redistribute_steps(before.tp, after.tp)
    splits = len(steps) == 2 or before.tp > after.tp
    for group in steps:
        x = _step(c, x, group, joins=not splits, dim=1)
        splits = False
    if after.layout[2]:
        x = _step(c, x, tensor_group(after), joins=False, dim=0)
    return x


def _exchange(
    c: OpContext, x: SymbolicTensor, before: LayerStrategy, after: LayerStrategy
) -> SymbolicTensor:
    """Split replicated tokens, exchange all, and gather where the target replicates."""
    tokens, samples, hidden = x.shape
    tokens *= before.sequence_split
    samples = samples * after.width // before.width
    if before.tp > 1 and not before.layout[2]:
        x = _step(c, x, tensor_group(before), joins=False, dim=0)
    part_shape = (-(-tokens // after.width), samples, hidden)
    x = _swap(c, x, part_shape, exchange_group(before, after))
    if after.tp > 1 and not after.layout[2]:
        x = _step(c, x, tensor_group(after), joins=True, dim=0)
    return x.view(tokens // after.sequence_split, samples, hidden)


def _swap(
    c: OpContext, x: SymbolicTensor, shape: tuple[int, ...], group: RankGroup
) -> SymbolicTensor:
    shape_before = x.shape
    out = _send(c.tape, x, shape, group)
    c.tape.record((out,), (x,), lambda grad: (_send(c.tape, grad, shape_before, group),))
    return out


def _send(
    t: Tape, value: SymbolicTensor, shape: tuple[int, ...], group: RankGroup
) -> SymbolicTensor:
    packed = t.kernel("copy", (value,), t.like(value))
    received = t.new(shape, value.dtype)
    t.collective("all_to_all", group, packed, term="exposed_cp")
    del packed
    return t.kernel("copy", (received,), t.like(received))


def _step(
    c: OpContext, x: SymbolicTensor, group: RankGroup, joins: bool, dim: int
) -> SymbolicTensor:
    """One gather (or split) along ``dim``; the other one in the backward."""
    out = (_gather if joins else _split)(c.tape, x, group, dim)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        return ((_split if joins else _gather)(c.tape, grad, group, dim),)

    c.tape.record((out,), (x,), backward)
    return out


def _gather(t: Tape, x: SymbolicTensor, group: RankGroup, dim: int) -> SymbolicTensor:
    shape = list(x.shape)
    shape[dim] *= group.size
    parts = t.new(tuple(shape), x.dtype)
    t.collective("all_gather", group, parts)
    if dim == 0:
        return parts
    return t.kernel("copy", (parts,), t.like(parts))


def _split(t: Tape, x: SymbolicTensor, group: RankGroup, dim: int) -> SymbolicTensor:
    shape = list(x.shape)
    shape[dim] = -(-shape[dim] // group.size)
    out = t.new(tuple(shape), x.dtype)
    return t.kernel("copy", (out,), out)
