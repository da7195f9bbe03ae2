"""Parameters of every layer kind: names, shapes, tensor-parallel split.

The executor builds these tensors and the cost model counts them.
"""

from __future__ import annotations

from ..errors import InputError
from .block_parameters import block_parameters
from .feed_forward import Moe
from .layers import (
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
from .parameter_spec import (
    ParameterSpec,
    ParameterSpecs,
    column,
    norm,
    replicated,
    replicated_linear,
    row,
    split_range,
)

__all__ = ["ParameterSpec", "active_elements", "layer_elements", "layer_parameters", "split_range"]


def layer_parameters(layer: Layer, seq_len: int | None = None) -> ParameterSpecs:
    """Parameters of a layer, in the model's order.

    Args:
        layer: the layer.
        seq_len: rows of a learned position table whose length the model leaves open.
    """
    if isinstance(layer, BlockLayer):
        return block_parameters(layer)
    if isinstance(layer, EmbeddingLayer):
        return _embedding(layer, seq_len)
    if isinstance(layer, HeadLayer):
        return _head(layer)
    if isinstance(layer, MultiTokenLayer):
        return _multi_token(layer)
    if isinstance(layer, PatchLayer):
        return _patches(layer)
    if isinstance(layer, ProjectorLayer):
        return _projector(layer)
    if isinstance(layer, NormLayer):
        return norm("norm", layer.norm, layer.hidden)
    return _classifier(layer)


def layer_elements(layer: Layer, seq_len: int | None = None) -> int:
    """Elements of all parameters of a layer."""
    return sum(spec.elements for spec in layer_parameters(layer, seq_len))


def active_elements(layer: Layer, seq_len: int | None = None) -> int:
    """Elements that one token uses: of experts only topk."""
    specs = layer_parameters(layer, seq_len)
    total = sum(spec.elements for spec in specs)
    block = layer.block if isinstance(layer, MultiTokenLayer) else layer
    if not isinstance(block, BlockLayer) or not isinstance(block.mlp, Moe):
        return total
    experts = sum(spec.elements for spec in specs if spec.expert)
    return total - experts + experts // block.mlp.experts * block.mlp.topk


def _embedding(layer: EmbeddingLayer, seq_len: int | None) -> ParameterSpecs:
    positions = seq_len if layer.positions is None else layer.positions
    if positions is None:
        raise InputError("seq_len", None, "a sequence length: the position table has no size")
    specs = [ParameterSpec(name="tokens.weight", shape=(layer.vocab, layer.hidden), split_dim=0)]
    for name, rows in (("positions", positions), ("token_types", layer.token_types)):
        if rows:
            specs.append(replicated(f"{name}.weight", (rows, layer.hidden)))
    return (*specs, *norm("norm", layer.norm, layer.hidden))


def _head(layer: HeadLayer) -> ParameterSpecs:
    transform: list[ParameterSpec] = []
    if layer.transform:
        transform += replicated_linear("transform", layer.hidden, layer.hidden, bias=True)
        transform += norm("transform_norm", "layernorm", layer.hidden)
    projection = column("projection", layer.vocab, layer.hidden, layer.bias)
    return (*norm("norm", layer.norm, layer.hidden), *transform, *projection)


def _multi_token(layer: MultiTokenLayer) -> ParameterSpecs:
    return (
        *norm("embedding_norm", layer.norm, layer.hidden),
        *norm("hidden_norm", layer.norm, layer.hidden),
        *column("join", layer.hidden, 2 * layer.hidden, bias=False),
        *block_parameters(layer.block),
        *norm("norm", layer.norm, layer.hidden),
    )


def _patches(layer: PatchLayer) -> ParameterSpecs:
    pixels = layer.channels * layer.frames * layer.patch * layer.patch
    specs = [*replicated_linear("patches", layer.hidden, pixels, layer.bias)]
    if layer.class_token:
        specs.append(replicated("class_token", (layer.hidden,)))
    if layer.positions:
        rows = layer.position_rows or layer.tokens
        specs.append(replicated("positions.weight", (rows, layer.hidden)))
    return (*specs, *norm("norm", layer.norm, layer.hidden))


def _classifier(layer: ClassifierLayer) -> ParameterSpecs:
    norms = norm("norm", layer.norm, layer.hidden)
    return (*norms, *replicated_linear("projection", layer.classes, layer.hidden, layer.bias))


def _projector(layer: ProjectorLayer) -> ParameterSpecs:
    width = layer.hidden * layer.merge
    specs = [*norm("norm", layer.norm, layer.hidden)]
    if layer.merged is not None:
        specs += replicated_linear("merge", layer.merged, width, bias=False)
    specs += _projection(layer, layer.merged or width, "")
    for number in range(layer.further):
        specs += norm(f"further_{number}_norm", layer.norm, width)
        specs += _projection(layer, width, f"further_{number}_")
    return tuple(specs)


def _projection(layer: ProjectorLayer, width: int, prefix: str) -> ParameterSpecs:
    """A projection or an MLP of ``width`` channels to the output."""
    if not layer.inner:
        return replicated_linear(f"{prefix}projection", layer.out, width, layer.bias)
    up = column(f"{prefix}up", layer.inner, width, layer.bias)
    return (*up, *row(f"{prefix}down", layer.out, layer.inner, layer.bias))
