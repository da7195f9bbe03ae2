"""Seams between layers: activations in one layout are brought into another."""

from __future__ import annotations

from ..spec.groups import RankGroup, batch_steps, tensor_group
from ..spec.strategy import LayerStrategy
from .ops import OpContext
from .tape import Tape, Value


def move(c: OpContext, x: Value, before: LayerStrategy, after: LayerStrategy) -> Value:
    """Activations in the layout of ``before`` brought into that of ``after``."""
    if (before.tp, before.megatron_sp) == (after.tp, after.megatron_sp):
        return x
    if before.megatron_sp:
        x = _step(c, x, tensor_group(before), joins=True, dim=0)
    steps = batch_steps(before.tp, after.tp)
    cuts = len(steps) == 2 or before.tp > after.tp
    for group in steps:
        x = _step(c, x, group, joins=not cuts, dim=1)
        cuts = False
    if after.megatron_sp:
        x = _step(c, x, tensor_group(after), joins=False, dim=0)
    return x


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
    shape = list(x.shape)
    shape[dim] //= group.size
    out = t.new(tuple(shape), x.dtype)
    return t.kernel("copy", (out,), out)
