"""Residual blocks as symbolic work: where norms stand and how parts are added.

A recomputed block keeps its input and runs again going backward, except for a last sum that
saves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...spec.cluster.stack_spec import StackSpec
from ...spec.model.feed_forward import FeedForward, Mlp
from ...spec.model.layers import BlockLayer
from ...spec.model.mixers import Attention, LatentAttention, Mixer, StateSpace
from ...spec.strategy import LayerStrategy
from ..ops.context import OpContext, norm
from ..ops.dropout import drops
from ..ops.fused_add_norm import added_and_normalised, normalised
from ..ops.recompute import recomputed
from ..ops.residual import residual_add, unfused_residual
from ..symbolic.tape import SymbolicTensor
from .attention import cross_attention
from .feed_forward import feed_forward
from .mixer import LowerMixer, mixer

BlockBody = Callable[..., tuple[SymbolicTensor, ...]]
BlockEpilogue = Callable[..., SymbolicTensor] | None


class SubLayer(NamedTuple):
    """One part of a block: its function and spec, and whether its last projection has a bias.

    ``run`` None is attention to the other tower's output.
    """

    run: LowerMixer | None
    spec: Any
    bias: bool


def block(
    c: OpContext,
    layer: BlockLayer,
    strategy: LayerStrategy,
    x: SymbolicTensor,
    source: SymbolicTensor | None = None,
) -> SymbolicTensor:
    """A token mixer, perhaps attention to ``source``, then a feed-forward part.

    Args:
        c: context of the layer's operations.
        layer: the block.
        strategy: its decisions.
        x: (seq, batch, hidden).
        source: the other tower's output, where the block attends to one.
    """
    if layer.norm_placement != "pre" or layer.parallel:
        c = unfused_residual(c)
    build = (
        _parallel if layer.parallel else _post_norm if layer.norm_placement == "post" else _pre_norm
    )
    body, finish = build(c, layer, strategy)
    inputs = (x,) if source is None else (x, source)
    if strategy.recompute == "full":
        if finish is not None and last_residual_saves(layer, c.stack):
            body, finish = _with_last_residual(body, finish), None
        return recomputed(c, body, finish, *inputs)
    results = body(*inputs)
    return finish(*results) if finish is not None else results[0]


def last_residual_saves(layer: BlockLayer, stack: StackSpec) -> bool:
    """Whether the block's last residual sum keeps anything for the backward: a dropout's mask."""
    parts = _sub_layers(layer)
    summed = parts if layer.parallel else parts[-1:]
    return drops(stack, layer) and any(part.bias for part in summed)


def _with_last_residual(body: BlockBody, finish: Callable[..., SymbolicTensor]) -> BlockBody:
    """The whole block as one body: what its last sum keeps has to be made again too."""
    return lambda *inputs: (finish(*body(*inputs)),)


def _sub_layers(layer: BlockLayer) -> tuple[SubLayer, ...]:
    """The parts that the block has, in order."""
    found: list[SubLayer] = []
    if layer.attention is not None:
        spec = layer.attention
        found.append(SubLayer(mixer(spec), spec, _output_bias(spec)))
    if layer.cross_attention is not None:
        found.append(SubLayer(None, layer.cross_attention, layer.cross_attention.out_bias))
    if layer.mlp is not None:
        found.append(SubLayer(feed_forward(layer.mlp), layer.mlp, _output_bias(layer.mlp)))
    return tuple(found)


def _output_bias(spec: Mixer | FeedForward) -> bool:
    """Whether the last projection leaves a bias to the residual sum of a fused stack."""
    if isinstance(spec, Attention):
        return spec.out_bias
    return isinstance(spec, (LatentAttention, StateSpace, Mlp)) and spec.bias


def _pre_norm(
    c: OpContext, layer: BlockLayer, strategy: LayerStrategy
) -> tuple[BlockBody, BlockEpilogue]:
    """``x + part(norm(x))`` for each part; in a sandwich the part's result is normalised too."""
    if c.stack.fusion.across_parts:
        return _fused_pre_norm(c, layer, strategy)
    parts = _sub_layers(layer)
    sandwich = layer.norm_placement == "sandwich"

    def branch(x: SymbolicTensor, part: SubLayer, source: SymbolicTensor | None) -> SymbolicTensor:
        out = _normalized_branch(c, layer, strategy, part, x, source)
        return norm(c, out, layer.norm) if sandwich else out

    def body(x: SymbolicTensor, source: SymbolicTensor | None = None) -> tuple[SymbolicTensor, ...]:
        for part in parts[:-1]:
            added = branch(x, part, source)
            x = residual_add(c, x, added, part.bias)
            del added
        return x, branch(x, parts[-1], source)

    def finish(x: SymbolicTensor, added: SymbolicTensor) -> SymbolicTensor:
        return residual_add(c, x, added, parts[-1].bias)

    return body, finish


def _fused_pre_norm(
    c: OpContext, layer: BlockLayer, strategy: LayerStrategy
) -> tuple[BlockBody, BlockEpilogue]:
    """The same where sums and norms are one kernel; of dense blocks."""
    first, *later = _sub_layers(layer)

    def branch(part: SubLayer, held: list[SymbolicTensor]) -> SymbolicTensor:
        if part.run is None:
            raise RuntimeError("a block with cross-attention does not join norms")
        return part.run(c, part.spec, layer.hidden, strategy, held.pop())

    def body(x: SymbolicTensor) -> tuple[SymbolicTensor, ...]:
        x, normal = normalised(c, x, layer.norm)
        held = [normal]
        del normal
        added = branch(first, held)
        for part in later:
            x, normal = added_and_normalised(c, x, added, layer.norm)
            held.append(normal)
            del normal, added
            added = branch(part, held)
        return x, added

    def finish(x: SymbolicTensor, added: SymbolicTensor) -> SymbolicTensor:
        return residual_add(c, x, added, (later or [first])[-1].bias)

    return body, finish


def _normalized_branch(
    c: OpContext,
    layer: BlockLayer,
    strategy: LayerStrategy,
    part: SubLayer,
    x: SymbolicTensor,
    source: SymbolicTensor | None,
) -> SymbolicTensor:
    """A part run on its normalised input, which only the part itself holds."""
    if part.run is not None:
        return part.run(c, part.spec, layer.hidden, strategy, norm(c, x, layer.norm))
    attend = cross_attention
    return attend(
        c, part.spec, layer.hidden, strategy, norm(c, x, layer.norm), required_source(source)
    )


def required_source(source: SymbolicTensor | None) -> SymbolicTensor:
    """The other tower's output, which a block that attends to one must get."""
    if source is None:
        raise RuntimeError("a block with cross-attention needs another tower's output")
    return source


def _post_norm(
    c: OpContext, layer: BlockLayer, strategy: LayerStrategy
) -> tuple[BlockBody, BlockEpilogue]:
    """``norm(x + part(x))`` for each part (BERT)."""

    def body(x: SymbolicTensor, source: SymbolicTensor | None = None) -> tuple[SymbolicTensor, ...]:
        for part in _sub_layers(layer):
            if part.run is None:
                added = cross_attention(
                    c, part.spec, layer.hidden, strategy, x, required_source(source)
                )
            else:
                added = part.run(c, part.spec, layer.hidden, strategy, x)
            x = norm(c, residual_add(c, x, added, part.bias), layer.norm)
            del added
        return (x,)

    return body, None


def _parallel(
    c: OpContext, layer: BlockLayer, strategy: LayerStrategy
) -> tuple[BlockBody, BlockEpilogue]:
    """Both parts read the block's input and are added to it together (GPT-NeoX, PaLM)."""
    parts = _sub_layers(layer)

    def body(x: SymbolicTensor, source: SymbolicTensor | None = None) -> tuple[SymbolicTensor, ...]:
        if not layer.shared_norm:
            return (x, *(_normalized_branch(c, layer, strategy, p, x, source) for p in parts))
        one = norm(c, x, layer.norm)
        runs = [(part.run, part.spec) for part in parts if part.run is not None]
        return (x, *(run(c, spec, layer.hidden, strategy, one) for run, spec in runs))

    def finish(x: SymbolicTensor, *added: SymbolicTensor) -> SymbolicTensor:
        for one, part in zip(added, parts, strict=True):
            x = residual_add(c, x, one, part.bias)
        return x

    return body, finish
