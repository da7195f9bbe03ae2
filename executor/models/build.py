"""Module of each layer type."""

from __future__ import annotations

from ...spec.errors import NotBuiltError
from ...spec.model.layers import (
    BlockLayer,
    ClassifierLayer,
    EmbeddingLayer,
    HeadLayer,
    Layer,
    NormLayer,
    PatchLayer,
)
from ...spec.rules.executable import RUN_MODELS
from .block import Block
from .heads import Embedding, Head, Norm
from .layer import LayerBuild, LayerModule
from .vision import Classifier, Patches

HEADS = (Head, Classifier)
"""Modules that take targets and return a loss."""


def build_layer(layer: Layer, build: LayerBuild) -> LayerModule:
    """Build the module of one layer, without its parameters.

    Raises:
        NotBuiltError: a layer type that does not run.
    """
    if isinstance(layer, BlockLayer):
        return Block(layer, build)
    if isinstance(layer, EmbeddingLayer):
        return Embedding(layer, build)
    if isinstance(layer, HeadLayer):
        return Head(layer, build)
    if isinstance(layer, NormLayer):
        return Norm(layer, build)
    if isinstance(layer, PatchLayer):
        return Patches(layer, build)
    if isinstance(layer, ClassifierLayer):
        return Classifier(layer, build)
    raise NotBuiltError(f"a {layer.kind} layer is planned but not run yet", f"run {RUN_MODELS}")


__all__ = ["HEADS", "build_layer"]
