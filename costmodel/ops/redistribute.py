"""Seams between layers: activations in one layout are brought into another.

Where only tensor-parallel degrees differ, samples are gathered or cut. Where a ring or Ulysses
splits the sequence on either side, ranks exchange tokens straight away: none ever holds more
than its part before and after.
"""

from __future__ import annotations

from ...spec.parallel.rank_groups import (
    RankGroup,
    batch_steps,
    exchange_group,
    exchanges,
    tensor_group,
)
from ...spec.strategy import LayerStrategy
from ..symbolic.tape import Tape, Value
from .context import OpContext


def move(c: OpContext, x: Value, before: LayerStrategy, after: LayerStrategy) -> Value:
    """Activations in the layout of ``before`` brought into that of ``after``."""
    if before.layout == after.layout:
        return x
    if exchanges(before, after):
        return _exchange(c, x, before, after)
    if before.layout[2]:
        x = _step(c, x, tensor_group(before), joins=True, dim=0)
    steps = batch_steps(before.tp, after.tp)
    cuts = len(steps) == 2 or before.tp > after.tp
    for group in steps:
        x = _step(c, x, group, joins=not cuts, dim=1)
        cuts = False
    if after.layout[2]:
        x = _step(c, x, tensor_group(after), joins=False, dim=0)
    return x


def _exchange(c: OpContext, x: Value, before: LayerStrategy, after: LayerStrategy) -> Value:
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


def _swap(c: OpContext, x: Value, shape: tuple[int, ...], group: RankGroup) -> Value:
    """Every rank sends each other one the tokens that it holds next; backward sends them home."""
    home = x.shape
    out = _send(c.tape, x, shape, group)
    c.tape.record((out,), (x,), lambda grad: (_send(c.tape, grad, home, group),))
    return out


def _send(t: Tape, value: Value, shape: tuple[int, ...], group: RankGroup) -> Value:
    """Packed by receiver, sent, put into order."""
    packed = t.kernel("copy", (value,), t.like(value))
    received = t.new(shape, value.dtype)
    t.collective("all_to_all", group, packed, term="exposed_cp")
    del packed
    return t.kernel("copy", (received,), t.like(received))


def _step(c: OpContext, x: Value, group: RankGroup, joins: bool, dim: int) -> Value:
    """One gather (or cut) along ``dim``; going backward it is the other one."""
    out = (_join if joins else _cut)(c.tape, x, group, dim)

    def backward(grad: Value) -> tuple[Value | None, ...]:
        return ((_cut if joins else _join)(c.tape, grad, group, dim),)

    c.tape.record((out,), (x,), backward)
    return out


def _join(t: Tape, x: Value, group: RankGroup, dim: int) -> Value:
    shape = list(x.shape)
    shape[dim] *= group.size
    parts = t.new(tuple(shape), x.dtype)
    t.collective("all_gather", group, parts)
    if dim == 0:
        return parts
    return t.kernel("copy", (parts,), t.like(parts))


def _cut(t: Tape, x: Value, group: RankGroup, dim: int) -> Value:
    """The fullest rank's part."""
    shape = list(x.shape)
    shape[dim] = -(-shape[dim] // group.size)
    out = t.new(tuple(shape), x.dtype)
    return t.kernel("copy", (out,), out)
