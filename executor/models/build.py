"""The module of each layer kind."""

from __future__ import annotations

from ...spec.errors import NotBuiltError
from ...spec.model import BlockLayer, EmbeddingLayer, HeadLayer, Layer
from .block import Block
from .ends import Embedding, Head
from .layer import LayerBuild, LayerModule


def build_layer(layer: Layer, build: LayerBuild) -> LayerModule:
    """The module of one layer, its parameters still missing.

    Raises:
        NotBuiltError: a layer of a kind that does not run.
    """
    if isinstance(layer, EmbeddingLayer):
        return Embedding(layer, build)
    if isinstance(layer, HeadLayer):
        return Head(layer, build)
    if isinstance(layer, BlockLayer):
        return Block(layer, build)
    raise NotBuiltError(f"a {layer.kind} layer is planned but not run yet", "run a dense decoder")


__all__ = ["build_layer"]
