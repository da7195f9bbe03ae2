"""Output heads: vocabulary head, classifier, multi-token prediction."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...spec.model.layer_parameters import split_range
from ...spec.model.layers import ClassifierLayer, EmbeddingLayer, HeadLayer, MultiTokenLayer
from ...spec.report.work_items import chunks_split_loss
from ...spec.strategy import LayerStrategy
from ...spec.workload.training import FULLY_TRAINED
from ..ops.activation import activation
from ..ops.context import OpContext, norm
from ..ops.linear import column_linear, replicated_linear
from ..ops.vocabulary import cross_entropy, embedding, linear_cross_entropy
from ..symbolic.tape import SymbolicTensor
from .block import block


def local_vocab(vocab: int, tp: int, multiple: int) -> int:
    """Vocabulary rows on the fullest tensor-parallel rank, padding included."""
    padded = -(-vocab // (multiple * tp)) * multiple * tp if multiple > 1 else vocab
    start, stop = split_range(padded, tp, 0)
    return stop - start


def head(
    c: OpContext, layer: HeadLayer, strategy: LayerStrategy, x: SymbolicTensor
) -> SymbolicTensor:
    """Norm, optional transform, projection to the vocabulary, and the loss."""
    columns = local_vocab(layer.vocab, strategy.weight_split, c.stack.vocab_multiple)
    if layer.norm is not None:
        x = norm(c, x, layer.norm)
    if layer.transform:
        x = replicated_linear(c, x, layer.hidden, bias=True, name="transform")
        x = norm(c, activation(c, (x,), "gelu", bias=True), "layernorm")
    if _chunks_loss(c, layer, x, columns):
        return linear_cross_entropy(c, x, columns)
    (logits,) = column_linear(c, x, (columns,), layer.bias, fused=False, names=("projection",))
    del x
    if layer.softcap is not None:
        logits = _capped(c, logits)
    return _loss(c, logits)


def _chunks_loss(c: OpContext, layer: HeadLayer, x: SymbolicTensor, columns: int) -> bool:
    """True if all is trained, nothing intervenes, and the stack takes chunks of tokens."""
    plain = not layer.bias and layer.softcap is None and c.training == FULLY_TRAINED
    if not plain or c.tape.main_gradients:
        return False
    if c.tp == 1:
        return c.stack.fusion.linear_cross_entropy
    tokens = x.elements // x.shape[-1] * (c.tp if c.sequence_parallel else 1)
    return c.stack.chunks_split_loss and chunks_split_loss(tokens, columns)


def classifier(c: OpContext, layer: ClassifierLayer, x: SymbolicTensor) -> SymbolicTensor:
    """Norm, projection of the first token to the classes, loss.

    Unsplit; with split sequences the first token's rank does the most.
    """
    t, shape = c.tape, x.shape
    if layer.norm is not None:
        x = norm(c, x, layer.norm)
    first = x.view(1, *shape[1:])

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        grad_x = t.kernel("zeros", (), t.new(shape, grad.dtype))
        t.kernel("copy", (grad,), t.constant(grad.shape, grad.dtype))
        return (grad_x,)

    t.record((first,), (x,), backward)
    unsplit = replace(c, tp=1, sequence_parallel=False)
    del x
    return _loss(
        unsplit, replicated_linear(unsplit, first, layer.classes, layer.bias, name="projection")
    )


@dataclass(frozen=True, slots=True)
class MultiTokenEnd:
    """Work of a multi-token layer before its block (``opens``) or after."""

    layer: MultiTokenLayer
    opens: bool

    @property
    def hidden(self) -> int:
        """Width of the residual stream."""
        return self.layer.hidden


def multi_token(
    c: OpContext, layer: MultiTokenLayer, strategy: LayerStrategy, x: SymbolicTensor
) -> SymbolicTensor:
    """Loss of one token further ahead.

    Its gradients add to those of the model's embedding and head tables.
    """
    inner = block(c, layer.block, strategy, multi_token_input(c, layer, strategy, x))
    return multi_token_loss(c, layer, strategy, inner)


def multi_token_input(
    c: OpContext, layer: MultiTokenLayer, strategy: LayerStrategy, x: SymbolicTensor
) -> SymbolicTensor:
    """Next token's vector and hidden state, normalized and joined for the block."""
    t, tp = c.tape, strategy.weight_split
    rows = local_vocab(layer.vocab, tp, c.stack.vocab_multiple)
    gathered_tokens = x.shape[0] * (c.tp if c.sequence_parallel else 1)
    tokens = t.constant((gathered_tokens, x.shape[1]), "int64")
    table = EmbeddingLayer(vocab=layer.vocab, hidden=layer.hidden)
    vectors = embedding(replace(c, shares_weight=True), table, rows, 0, tokens)
    vectors = norm(c, vectors, layer.norm)
    concatenated = _side_by_side(c, vectors, norm(c, x, layer.norm))
    del vectors, x
    (channels,) = column_linear(
        c, concatenated, (layer.hidden // tp,), False, False, names=("join",)
    )
    del concatenated
    return _all_channels(c, channels)


def multi_token_loss(
    c: OpContext, layer: MultiTokenLayer, strategy: LayerStrategy, hidden: SymbolicTensor
) -> SymbolicTensor:
    """Norm, the model's own head and the loss."""
    rows = local_vocab(layer.vocab, strategy.weight_split, c.stack.vocab_multiple)
    last = norm(c, hidden, layer.norm)
    del hidden
    (logits,) = column_linear(c, last, (rows,), False, False, shared=True)
    del last
    return _loss(c, logits)


def _loss(c: OpContext, logits: SymbolicTensor) -> SymbolicTensor:
    targets = c.tape.constant((logits.elements // logits.shape[-1], 1), "int64")
    return cross_entropy(c, logits, targets)


def _capped(c: OpContext, logits: SymbolicTensor) -> SymbolicTensor:
    """``cap · tanh(logits / cap)``; keeps the tangent."""
    t = c.tape
    divided = t.kernel("div", (logits,), t.like(logits))
    tangent = t.kernel("tanh", (divided,), t.like(logits))
    del divided
    out = t.kernel("mul", (tangent,), t.like(logits))

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        grad = t.kernel("mul", (grad,), t.like(grad))
        grad = t.kernel("tanh_backward", (grad, tangent), t.like(grad))
        return (t.kernel("div", (grad,), t.like(grad)),)

    t.record((out,), (logits,), backward)
    return out


def _side_by_side(c: OpContext, first: SymbolicTensor, second: SymbolicTensor) -> SymbolicTensor:
    t, shape = c.tape, first.shape
    out = t.new((*shape[:-1], 2 * shape[-1]), first.dtype)
    t.kernel("copy", (first, second), out)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        halves = tuple(SymbolicTensor(shape, grad.dtype, grad.storage) for _ in range(2))
        return halves

    t.record((out,), (first, second), backward)
    return out


def _all_channels(c: OpContext, channels: SymbolicTensor) -> SymbolicTensor:
    """Gather channels over tensor-parallel ranks; keep this rank's tokens if split."""
    if c.tp == 1:
        return channels
    t, shape = c.tape, channels.shape
    gathered = t.new((*shape[:-1], shape[-1] * c.tp), channels.dtype)
    t.collective("all_gather", c.tensor_group, gathered)
    seq = shape[0] // c.tp if c.sequence_parallel else shape[0]
    out = t.kernel("copy", (gathered,), t.new((seq, *gathered.shape[1:]), channels.dtype))
    del gathered

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        grad = c.gather_sequence(grad)
        grad_channels = t.new(shape, grad.dtype)
        return (t.kernel("copy", (grad_channels,), grad_channels),)

    t.record((out,), (channels,), backward)
    return out
