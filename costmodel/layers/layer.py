"""Whole layers: one function per layer kind."""

from __future__ import annotations

from typing import NamedTuple

from ...spec.errors import NotBuiltError
from ...spec.model.layers import (
    BlockLayer,
    ClassifierLayer,
    EmbeddingLayer,
    HeadLayer,
    Layer,
    MultiTokenLayer,
    NormLayer,
    PatchLayer,
    ProjectorLayer,
)
from ...spec.strategy import LayerStrategy
from ..ops.context import OpContext, norm
from ..ops.vocabulary import embedding, insert_tower_tokens
from ..symbolic.tape import SymbolicTensor
from .block import block
from .heads import (
    MultiTokenEnd,
    classifier,
    head,
    local_vocab,
    multi_token,
    multi_token_input,
    multi_token_loss,
)
from .vision import patches, projector

LayerSegment = Layer | MultiTokenEnd
"""A layer, or a part of one that is lowered separately."""


class Outputs(NamedTuple):
    """A layer's results: activations for the next layer, a loss, or both.

    ``inner``: activations passed from a layer's first segment to its next.
    """

    following: SymbolicTensor | None
    loss: SymbolicTensor | None
    inner: SymbolicTensor | None = None


def run_layer(
    c: OpContext,
    layer: LayerSegment,
    strategy: LayerStrategy,
    x: SymbolicTensor,
    seq_len: int,
    sources: tuple[SymbolicTensor, ...] = (),
) -> Outputs:
    """The symbolic forward of a layer; leaves backward nodes on the tape.

    Args:
        c: context of the layer's operations.
        layer: what to run.
        strategy: its decisions.
        x: tokens (seq, batch) for an embedding, patches (seq, batch, values) for a patch layer,
            else activations (seq, batch, hidden).
        seq_len: tokens per sample.
        sources: outputs of other towers that the layer reads.
    """
    if isinstance(layer, HeadLayer):
        return Outputs(None, head(c, layer, strategy, x))
    if isinstance(layer, ClassifierLayer):
        return Outputs(None, classifier(c, layer, x))
    if isinstance(layer, MultiTokenLayer):
        return Outputs(_pass_through(c, x), multi_token(c, layer, strategy, x))
    if isinstance(layer, MultiTokenEnd):
        if not layer.opens:
            return Outputs(None, multi_token_loss(c, layer.layer, strategy, x))
        return Outputs(_pass_through(c, x), None, multi_token_input(c, layer.layer, strategy, x))
    return Outputs(_inner_layer(c, layer, strategy, x, seq_len, sources), None)


def _inner_layer(
    c: OpContext,
    layer: Layer,
    strategy: LayerStrategy,
    x: SymbolicTensor,
    seq_len: int,
    sources: tuple[SymbolicTensor, ...],
) -> SymbolicTensor:
    if isinstance(layer, BlockLayer):
        return block(c, layer, strategy, x, *sources)
    if isinstance(layer, EmbeddingLayer):
        return _embedding(c, layer, strategy, x, seq_len, sources)
    if isinstance(layer, PatchLayer):
        return patches(c, layer, x)
    if isinstance(layer, ProjectorLayer):
        return projector(c, layer, strategy, x)
    if isinstance(layer, NormLayer):
        return norm(c, x, layer.norm)
    raise NotBuiltError(f"a {layer.kind} layer is not lowered", "use another layer kind")


def _embedding(
    c: OpContext,
    layer: EmbeddingLayer,
    strategy: LayerStrategy,
    tokens: SymbolicTensor,
    seq_len: int,
    sources: tuple[SymbolicTensor, ...],
) -> SymbolicTensor:
    rows = local_vocab(layer.vocab, strategy.weight_split, c.stack.vocab_multiple)
    positions = seq_len if layer.positions is None else layer.positions
    x = embedding(c, layer, rows, positions, tokens)
    for source in sources:
        x = insert_tower_tokens(c, x, source)
    return x if layer.norm is None else norm(c, x, layer.norm)


def _pass_through(c: OpContext, x: SymbolicTensor) -> SymbolicTensor:
    """A multi-token layer's input for the next, as its own tensor.

    A second such layer reads it, not the first one's block.
    """
    out = c.tape.like(x)
    c.tape.record((out,), (x,), lambda grad: (grad,))
    return out
