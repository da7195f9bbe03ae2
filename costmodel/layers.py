"""Whole layers as symbolic work: the embedding, the block, the head."""

from __future__ import annotations

from ..spec.errors import NotBuiltError
from ..spec.model import BlockLayer, EmbeddingLayer, HeadLayer, Layer
from ..spec.parameters import split_range
from ..spec.strategy import LayerStrategy
from .blocks import block
from .ops import OpContext, norm
from .ops_linear import column_linear
from .ops_vocab import cross_entropy, embedding
from .tape import Value


def run_layer(c: OpContext, layer: Layer, strategy: LayerStrategy, x: Value, seq_len: int) -> Value:
    """The symbolic forward of a layer; nodes for its backward are left on the tape.

    Args:
        c: context of the layer's operations.
        layer: what to run.
        strategy: its decisions.
        x: tokens (seq, batch) for an embedding, else activations (seq, batch, hidden).
        seq_len: tokens of a sample.
    """
    if isinstance(layer, EmbeddingLayer):
        rows = local_vocab(layer.vocab, strategy.tp, c.stack.vocab_multiple)
        positions = seq_len if layer.positions is None else layer.positions
        return embedding(c, layer, rows, positions, x)
    if isinstance(layer, HeadLayer):
        return _head(c, layer, strategy, x)
    if isinstance(layer, BlockLayer):
        return block(c, layer, strategy, x)
    raise NotBuiltError(f"a {layer.kind} layer is not lowered yet", "use a dense decoder")


def local_vocab(vocab: int, tp: int, multiple: int) -> int:
    """Vocabulary rows on the fullest tensor-parallel rank, padding included."""
    padded = -(-vocab // (multiple * tp)) * multiple * tp if multiple > 1 else vocab
    start, stop = split_range(padded, tp, 0)
    return stop - start


def _head(c: OpContext, layer: HeadLayer, strategy: LayerStrategy, x: Value) -> Value:
    columns = local_vocab(layer.vocab, strategy.tp, c.stack.vocab_multiple)
    if layer.norm is not None:
        x = norm(c, x, layer.norm)
    (logits,) = column_linear(c, x, (columns,), bias=False, fused=False)
    del x
    targets = c.tape.constant((logits.elements // columns, 1), "int64")
    return cross_entropy(c, logits, targets)
