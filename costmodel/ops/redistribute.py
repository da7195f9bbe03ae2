"""Seams between layers: activations in one layout are brought into another.

Where only tensor-parallel degrees differ, samples are gathered or cut. Where a ring or Ulysses
splits the sequence on either side, ranks exchange tokens straight away: none ever holds more
than its part before and after.
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
    """Activations in the layout of ``before`` brought into that of ``after``."""
    if before.layout == after.layout:
        return x
    if exchanges_tokens(before, after):
        return _exchange(c, x, before, after)
    if before.layout[2]:
        x = _step(c, x, tensor_group(before), joins=True, dim=0)
    steps = batch_redistribute_steps(before.tp, after.tp)
    cuts = len(steps) == 2 or before.tp > after.tp
    for group in steps:
        x = _step(c, x, group, joins=not cuts, dim=1)
        cuts = False
    if after.layout[2]:
        x = _step(c, x, tensor_group(after), joins=False, dim=0)
    return x


def _exchange(
    c: OpContext, x: SymbolicTensor, before: LayerStrategy, after: LayerStrategy
) -> SymbolicTensor:
    """Tokens that ranks hold alike are cut, all are exchanged, and joined where they belong."""
    tokens, samples, hidden = x.shape
    tokens *= before.sequence_split
    samples = samples * after.width // before.width
    if before.tp > 1 and not before.layout[2]:
        x = _step(c, x, tensor_group(before), joins=False, dim=0)
    part = (-(-tokens // after.width), samples, hidden)
    x = _swap(c, x, part, exchange_group(before, after))
    if after.tp > 1 and not after.layout[2]:
        x = _step(c, x, tensor_group(after), joins=True, dim=0)
    return x.view(tokens // after.sequence_split, samples, hidden)


def _swap(
    c: OpContext, x: SymbolicTensor, shape: tuple[int, ...], group: RankGroup
) -> SymbolicTensor:
    """Every rank sends each other one the tokens that it holds next; backward sends them home."""
    home = x.shape
    out = _send(c.tape, x, shape, group)
    c.tape.record((out,), (x,), lambda grad: (_send(c.tape, grad, home, group),))
    return out


def _send(
    t: Tape, value: SymbolicTensor, shape: tuple[int, ...], group: RankGroup
) -> SymbolicTensor:
    """Packed by receiver, sent, put into order."""
    packed = t.kernel("copy", (value,), t.like(value))
    received = t.new(shape, value.dtype)
    t.collective("all_to_all", group, packed, term="exposed_cp")
    del packed
    return t.kernel("copy", (received,), t.like(received))


def _step(
    c: OpContext, x: SymbolicTensor, group: RankGroup, joins: bool, dim: int
) -> SymbolicTensor:
    """One gather (or cut) along ``dim``; going backward it is the other one."""
    out = (_join if joins else _cut)(c.tape, x, group, dim)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        return ((_cut if joins else _join)(c.tape, grad, group, dim),)

    c.tape.record((out,), (x,), backward)
    return out


def _join(t: Tape, x: SymbolicTensor, group: RankGroup, dim: int) -> SymbolicTensor:
    shape = list(x.shape)
    shape[dim] *= group.size
    parts = t.new(tuple(shape), x.dtype)
    t.collective("all_gather", group, parts)
    if dim == 0:
        return parts
    return t.kernel("copy", (parts,), t.like(parts))


def _cut(t: Tape, x: SymbolicTensor, group: RankGroup, dim: int) -> SymbolicTensor:
    """The fullest rank's part."""
    shape = list(x.shape)
    shape[dim] = -(-shape[dim] // group.size)
    out = t.new(tuple(shape), x.dtype)
    return t.kernel("copy", (out,), out)
