"""ModelSpec: towers of ordered layers.

A model is a tuple of *towers* (one for a language model) joined by edges. A tower is an
ordered tuple of ``LayerRun`` (a layer kind and its repeats). Embedding and head are layers
too, so every layer of a plan has one 0-based index: embedding 0, blocks 1..L, head L+1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from typing import TypeVar

from ..errors import InputError
from ..limits import MAX_LAYERS
from .feed_forward import Activation, FeedForward, Mlp, Moe
from .layers import (
    BlockLayer,
    ClassifierLayer,
    EmbeddingLayer,
    HeadLayer,
    Layer,
    MultiTokenLayer,
    NormKind,
    NormLayer,
    PatchLayer,
    ProjectorLayer,
)
from .mixers import (
    Attention,
    Count,
    DeltaRule,
    Indexer,
    KimiDeltaAttention,
    LatentAttention,
    LightningAttention,
    Mixer,
    ParallelMixers,
    ShortConvolution,
    StateSpace,
)

__all__ = [
    "MAX_LAYERS",
    "Activation",
    "Attention",
    "BlockLayer",
    "ClassifierLayer",
    "Count",
    "DeltaRule",
    "EmbeddingLayer",
    "FeedForward",
    "HeadLayer",
    "Indexer",
    "KimiDeltaAttention",
    "LatentAttention",
    "Layer",
    "LayerRun",
    "LightningAttention",
    "Mixer",
    "Mlp",
    "ModelSpec",
    "Moe",
    "MultiTokenLayer",
    "NormKind",
    "NormLayer",
    "ParallelMixers",
    "PatchLayer",
    "ProjectorLayer",
    "ShortConvolution",
    "StateSpace",
    "Tower",
    "TowerEdge",
]


LayerType = TypeVar("LayerType", EmbeddingLayer, HeadLayer)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRun:
    """``count`` consecutive layers of one kind."""

    layer: Layer
    count: Count = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Tower:
    """An ordered stack of layers: a language model, a vision encoder.

    ``seq_len`` is the number of tokens of a sample in it (a vision encoder's patches), None for
    the workload's sequence.
    """

    name: str
    layers: tuple[LayerRun, ...]
    seq_len: Count | None = None

    def expand(self) -> tuple[Layer, ...]:
        """Every layer in order, repeated layers repeated."""
        return tuple(chain.from_iterable(repeat(run.layer, run.count) for run in self.layers))

    @property
    def layer_count(self) -> int:
        """Number of layers, embedding and head counted."""
        return sum(run.count for run in self.layers)


@dataclass(frozen=True, slots=True, kw_only=True)
class TowerEdge:
    """The output of tower ``source`` feeds tower ``target``."""

    source: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A model: towers in topological order and the edges between them.

    ``tie_embeddings``: each head's projection is its tower's embedding table.
    ``shared_embedding``: the embeddings of all towers are one table (T5).
    """

    name: str
    towers: tuple[Tower, ...]
    edges: tuple[TowerEdge, ...] = ()
    tie_embeddings: bool = False
    shared_embedding: bool = False

    def layers(self) -> tuple[Layer, ...]:
        """Every layer of every tower in order.

        The index is the layer's number in a plan.
        """
        return tuple(chain.from_iterable(tower.expand() for tower in self.towers))

    def tower(self, name: str) -> Tower:
        """The tower called ``name``.

        Raises:
            InputError: no tower has this name.
        """
        for tower in self.towers:
            if tower.name == name:
                return tower
        raise InputError("layers[0]", name, "one of " + ", ".join(t.name for t in self.towers))

    @property
    def block_count(self) -> int:
        """Number of transformer blocks."""
        return sum(run.count for t in self.towers for run in t.layers if run.layer.kind == "block")

    @property
    def vocab(self) -> int:
        """Vocabulary size of the first embedding layer.

        0 for a model without one (ViT).
        """
        return next((x.vocab for x in self.kinds() if isinstance(x, EmbeddingLayer)), 0)

    @property
    def hidden(self) -> int:
        """Width of the residual stream of the first tower."""
        return self.towers[0].layers[0].layer.hidden

    def param_count(self, seq_len: int | None = None) -> int:
        """Number of trainable parameters, tied weights once, buffers excluded.

        Args:
            seq_len: rows of a learned position table whose length the model leaves open.
        """
        from .layer_parameters import layer_elements

        return self._sum(lambda layer: layer_elements(layer, seq_len))

    def active_param_count(self, seq_len: int | None = None) -> int:
        """Number of parameters that one token uses: of each layer's experts, topk.

        Embedding tables count whole, as in published totals; so do multi-token layers, which every
        token of a training step passes.
        """
        from .layer_parameters import active_elements

        return self._sum(lambda layer: active_elements(layer, seq_len))

    def _sum(self, count: Callable[[Layer], int]) -> int:
        """``count`` summed over all layers, less the tables that others share."""
        runs = [run for tower in self.towers for run in tower.layers]
        total = sum(run.count * count(run.layer) for run in runs)
        if self.tie_embeddings:
            total -= sum(x.vocab * x.hidden for x in self._of(HeadLayer))
        if self.shared_embedding:
            total -= sum(x.vocab * x.hidden for x in self._of(EmbeddingLayer)[1:])
        return total

    def _of(self, kind: type[LayerType]) -> list[LayerType]:
        runs = [run for tower in self.towers for run in tower.layers]
        return [run.layer for run in runs if isinstance(run.layer, kind) for _ in range(run.count)]

    def kinds(self) -> Iterator[Layer]:
        """The distinct layer kinds, in order of first use."""
        return iter(dict.fromkeys(run.layer for tower in self.towers for run in tower.layers))
