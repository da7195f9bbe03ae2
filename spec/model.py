"""ModelSpec: what is computed, as towers of ordered layers; identical layers are one kind.

A model is a tuple of *towers* (one for a language model) joined by edges. A tower is an
ordered tuple of ``LayerRun`` (a layer kind and how often it repeats). Embedding and head are
layers too, so every layer of a plan has one 0-based index: embedding 0, blocks 1..L, head L+1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from .errors import InputError

Activation = Literal["gelu", "gelu_tanh", "swiglu"]
NormKind = Literal["layernorm", "rmsnorm"]
Count = Annotated[int, Field(ge=1, le=2**40)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Multi-head (``kv_heads == heads``), grouped-query or multi-query self-attention.

    ``rotary`` false means positions come from the embedding. ``window`` is the sliding
    window in tokens, None for full causal attention. ``qk_norm`` normalises each query
    and key head (Qwen3).
    """

    heads: Count
    kv_heads: Count
    head_dim: Count
    rotary: bool = True
    rope_theta: float = 10000.0
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: bool = False
    window: Count | None = None

    @property
    def query_dim(self) -> int:
        """Width of all query heads together."""
        return self.heads * self.head_dim

    @property
    def kv_dim(self) -> int:
        """Width of all key (or value) heads together."""
        return self.kv_heads * self.head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class Mlp:
    """Feed-forward part: ``swiglu`` has a gate and an up projection, the others one."""

    ffn: Count
    activation: Activation = "swiglu"
    bias: bool = False

    @property
    def gated(self) -> bool:
        """Whether a gate projection stands beside the up projection."""
        return self.activation == "swiglu"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingLayer:
    """Token embedding, plus a learned position table of ``positions`` rows (0: none).

    ``positions`` None means a learned table as long as the workload's sequence.
    """

    kind: Literal["embedding"] = "embedding"
    vocab: Count
    hidden: Count
    positions: Annotated[int, Field(ge=0)] | None = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockLayer:
    """A pre-norm decoder block: norm, attention, residual, norm, MLP, residual."""

    kind: Literal["block"] = "block"
    hidden: Count
    attention: Attention
    mlp: Mlp
    norm: NormKind = "rmsnorm"
    norm_eps: Annotated[float, Field(gt=0)] = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadLayer:
    """Final norm, projection to the vocabulary and the cross-entropy loss."""

    kind: Literal["head"] = "head"
    hidden: Count
    vocab: Count
    norm: NormKind = "rmsnorm"
    norm_eps: Annotated[float, Field(gt=0)] = 1e-5


Layer = Annotated[EmbeddingLayer | BlockLayer | HeadLayer, Field(discriminator="kind")]
"""One layer kind; two layers with equal values are the same kind and are priced once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRun:
    """``count`` consecutive layers of one kind."""

    layer: Layer
    count: Count = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Tower:
    """An ordered stack of layers, such as a language model or a vision encoder."""

    name: str
    layers: tuple[LayerRun, ...]

    def expand(self) -> tuple[Layer, ...]:
        """Every layer in order, repeated layers repeated."""
        return tuple(run.layer for run in self.layers for _ in range(run.count))

    @property
    def layer_count(self) -> int:
        """How many layers the tower has, embedding and head counted."""
        return sum(run.count for run in self.layers)


@dataclass(frozen=True, slots=True, kw_only=True)
class TowerEdge:
    """The output of tower ``source`` feeds tower ``target``."""

    source: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A model: towers in topological order and the edges between them."""

    name: str
    towers: tuple[Tower, ...]
    edges: tuple[TowerEdge, ...] = ()
    tie_embeddings: bool = False

    def layers(self) -> tuple[Layer, ...]:
        """Every layer of every tower in order; the index is the layer's number in a plan."""
        return tuple(layer for tower in self.towers for layer in tower.expand())

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
        """Vocabulary size of the first embedding layer."""
        return next(x.vocab for x in self.layers() if isinstance(x, EmbeddingLayer))

    @property
    def hidden(self) -> int:
        """Width of the residual stream of the first tower."""
        return self.towers[0].layers[0].layer.hidden

    def param_count(self, seq_len: int | None = None) -> int:
        """Trainable parameters, tied weights once, buffers excluded.

        Args:
            seq_len: rows of a learned position table whose length the model leaves open.
        """
        from .parameters import layer_parameters

        total = sum(
            run.count * spec.elements
            for tower in self.towers
            for run in tower.layers
            for spec in layer_parameters(run.layer, seq_len)
        )
        if self.tie_embeddings:
            total -= sum(x.vocab * x.hidden for x in self.layers() if isinstance(x, HeadLayer))
        return total

    def kinds(self) -> Iterator[Layer]:
        """The distinct layer kinds, in order of first use."""
        return iter(dict.fromkeys(run.layer for tower in self.towers for run in tower.layers))
