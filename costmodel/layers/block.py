"""Residual blocks: placement of norms and residual sums.

A recomputed block keeps its input, and results that the strategy names, and runs again in the
backward, save a last sum that saves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...spec.cluster.stack_spec import StackSpec
from ...spec.model.feed_forward import FeedForward, Mlp
from ...spec.model.layers import BlockLayer
from ...spec.model.mixers import Attention, LatentAttention, Mixer, ShortConvolution, StateSpace
from ...spec.recomputation import kept_results, recomputes_block
from ...spec.strategy import LayerStrategy
from ..ops.context import OpContext, norm
from ..ops.dropout import drops
from ..ops.fused_add_norm import add_and_normalize, normalize
from ..ops.recompute import recomputed
from ..ops.residual import residual_add, unfused_residual
from ..symbolic.tape import SymbolicTensor
from .attention import cross_attention
from .feed_forward import feed_forward
from .mixer import LowerMixer, mixer
from .shared_parts import shared_parts, shares

BlockBody = Callable[..., tuple[SymbolicTensor, ...]]
BlockEpilogue = Callable[..., SymbolicTensor] | None


class SubLayer(NamedTuple):
    """One sub-layer of a block: function, spec, bias of its last projection.

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
    """A token mixer, optional attention to ``source``, and a feed-forward layer.

    ``x`` is (seq, batch, hidden); ``source``, if any, another tower's output.
    """
    if layer.norm_placement != "pre" or layer.parallel:
        c = unfused_residual(c)
    build = (
        _parallel if layer.parallel else _post_norm if layer.norm_placement == "post" else _pre_norm
    )
    body, finish = build(c, layer, strategy)
    inputs = (x,) if source is None else (x, source)
    if recomputes_block(strategy.recompute):
        save = kept_results(layer, strategy.recompute, sums=c.tp > 1)
        if finish is not None and last_residual_saves(layer, c.stack):
            body, finish = _with_last_residual(body, finish), None
        return recomputed(c, body, finish, *inputs, save=save)
    results = body(*inputs)
    return finish(*results) if finish is not None else results[0]


def last_residual_saves(layer: BlockLayer, stack: StackSpec) -> bool:
    """True if the block's last residual sum keeps a dropout mask."""
    sub_layers = _sub_layers(layer)
    summed = sub_layers if layer.parallel else sub_layers[-1:]
    return drops(stack, layer) and any(sub_layer.bias for sub_layer in summed)


def _with_last_residual(body: BlockBody, finish: Callable[..., SymbolicTensor]) -> BlockBody:
    """The block as one body, its last sum recomputed too."""
    return lambda *inputs: (finish(*body(*inputs)),)


def _sub_layers(layer: BlockLayer) -> tuple[SubLayer, ...]:
    sub_layers: list[SubLayer] = []
    if layer.attention is not None:
        spec = layer.attention
        sub_layers.append(SubLayer(mixer(spec), spec, _output_bias(spec)))
    if layer.cross_attention is not None:
        sub_layers.append(SubLayer(None, layer.cross_attention, layer.cross_attention.out_bias))
    if layer.mlp is not None:
        sub_layers.append(SubLayer(feed_forward(layer.mlp), layer.mlp, _output_bias(layer.mlp)))
    return tuple(sub_layers)


def _output_bias(spec: Mixer | FeedForward) -> bool:
    if isinstance(spec, Attention):
        return spec.out_bias
    return isinstance(spec, (LatentAttention, StateSpace, ShortConvolution, Mlp)) and spec.bias


def _pre_norm(
    c: OpContext, layer: BlockLayer, strategy: LayerStrategy
) -> tuple[BlockBody, BlockEpilogue]:
    """``x + f(norm(x))`` per sub-layer f.

    A sandwich normalizes the result too; OLMo 2 the result alone; MiniMax-01 ``x`` itself.
    """
    if c.stack.fusion.across_parts:
        return _fused_pre_norm(c, layer, strategy)
    sub_layers = _sub_layers(layer)
    placement = layer.norm_placement

    def branch(
        x: SymbolicTensor, sub_layer: SubLayer, source: SymbolicTensor | None
    ) -> SymbolicTensor:
        inner = _plain_branch if placement in ("after", "stream") else _normalized_branch
        out = inner(c, layer, strategy, sub_layer, x, source)
        return out if placement in ("pre", "stream") else norm(c, out, layer.norm)

    def stream(x: SymbolicTensor) -> SymbolicTensor:
        return norm(c, x, layer.norm) if placement == "stream" else x

    def body(x: SymbolicTensor, source: SymbolicTensor | None = None) -> tuple[SymbolicTensor, ...]:
        x = stream(x)
        for sub_layer in sub_layers[:-1]:
            added = branch(x, sub_layer, source)
            x = stream(residual_add(c, x, added, sub_layer.bias))
            del added
        return x, branch(x, sub_layers[-1], source)

    def finish(x: SymbolicTensor, added: SymbolicTensor) -> SymbolicTensor:
        return residual_add(c, x, added, sub_layers[-1].bias)

    return body, finish


def _fused_pre_norm(
    c: OpContext, layer: BlockLayer, strategy: LayerStrategy
) -> tuple[BlockBody, BlockEpilogue]:
    """The same for dense blocks, with fused sums and norms."""
    first, *later = _sub_layers(layer)

    def branch(sub_layer: SubLayer, norms: list[SymbolicTensor]) -> SymbolicTensor:
        if sub_layer.run is None:
            raise RuntimeError("a block with cross-attention does not join norms")
        return sub_layer.run(c, sub_layer.spec, layer.hidden, strategy, norms.pop())

    def body(x: SymbolicTensor) -> tuple[SymbolicTensor, ...]:
        x, normalized = normalize(c, x, layer.norm)
        norms = [normalized]
        del normalized
        added = branch(first, norms)
        for sub_layer in later:
            x, normalized = add_and_normalize(c, x, added, layer.norm)
            norms.append(normalized)
            del normalized, added
            added = branch(sub_layer, norms)
        return x, added

    def finish(x: SymbolicTensor, added: SymbolicTensor) -> SymbolicTensor:
        return residual_add(c, x, added, (later or [first])[-1].bias)

    return body, finish


def _normalized_branch(
    c: OpContext,
    layer: BlockLayer,
    strategy: LayerStrategy,
    sub_layer: SubLayer,
    x: SymbolicTensor,
    source: SymbolicTensor | None,
) -> SymbolicTensor:
    """Run a sub-layer on its normalized input, held by nothing else."""
    if sub_layer.run is not None:
        return sub_layer.run(c, sub_layer.spec, layer.hidden, strategy, norm(c, x, layer.norm))
    attend = cross_attention
    return attend(
        c, sub_layer.spec, layer.hidden, strategy, norm(c, x, layer.norm), required_source(source)
    )


def _plain_branch(
    c: OpContext,
    layer: BlockLayer,
    strategy: LayerStrategy,
    sub_layer: SubLayer,
    x: SymbolicTensor,
    source: SymbolicTensor | None,
) -> SymbolicTensor:
    """Run a sub-layer on the residual stream itself."""
    if sub_layer.run is not None:
        return sub_layer.run(c, sub_layer.spec, layer.hidden, strategy, x)
    attend = cross_attention
    return attend(c, sub_layer.spec, layer.hidden, strategy, x, required_source(source))


def required_source(source: SymbolicTensor | None) -> SymbolicTensor:
    """The other tower's output.

    Raises:
        RuntimeError: cross-attention without one.
    """
    if source is None:
        raise RuntimeError("a block with cross-attention needs another tower's output")
    return source


def _post_norm(
    c: OpContext, layer: BlockLayer, strategy: LayerStrategy
) -> tuple[BlockBody, BlockEpilogue]:
    """``norm(x + f(x))`` for each sub-layer f (BERT)."""

    def body(x: SymbolicTensor, source: SymbolicTensor | None = None) -> tuple[SymbolicTensor, ...]:
        for sub_layer in _sub_layers(layer):
            added = _plain_branch(c, layer, strategy, sub_layer, x, source)
            x = norm(c, residual_add(c, x, added, sub_layer.bias), layer.norm)
            del added
        return (x,)

    return body, None


def _parallel(
    c: OpContext, layer: BlockLayer, strategy: LayerStrategy
) -> tuple[BlockBody, BlockEpilogue]:
    """Both sub-layers read the block's input (GPT-NeoX, PaLM).

    Their results are added together.
    """
    sub_layers = _sub_layers(layer)
    if shares(c, layer):
        return shared_parts(c, layer, strategy)

    def body(x: SymbolicTensor, source: SymbolicTensor | None = None) -> tuple[SymbolicTensor, ...]:
        if not layer.shared_norm:
            return (x, *(_normalized_branch(c, layer, strategy, p, x, source) for p in sub_layers))
        normalized = norm(c, x, layer.norm)
        runs = [
            (sub_layer.run, sub_layer.spec) for sub_layer in sub_layers if sub_layer.run is not None
        ]
        return (x, *(run(c, spec, layer.hidden, strategy, normalized) for run, spec in runs))

    def finish(x: SymbolicTensor, *added: SymbolicTensor) -> SymbolicTensor:
        for branch, sub_layer in zip(added, sub_layers, strict=True):
            x = residual_add(c, x, branch, sub_layer.bias)
        return x

    return body, finish
