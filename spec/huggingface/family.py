"""Family: the reader of one ``model_type`` of transformers; common parts of decoders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from ..model.feed_forward import FeedForward
from ..model.mixers import Mixer
from ..model.model_spec import (
    BlockLayer,
    EmbeddingLayer,
    HeadLayer,
    Layer,
    LayerRun,
    ModelSpec,
    NormKind,
    Tower,
)
from .config_keys import ConfigKeys

NO_DROPOUT = {"attention_dropout": 0.0}
WINDOW_KEYS = ("use_sliding_window", "sliding_window", "max_window_layers", "layer_types")
"""Keys of classes whose windows are off unless one of them says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One ``model_type``.

    ``build`` makes the model of a configuration and a name. ``config_class`` is the class of its
    defaults, ``names`` that class's own spellings of general names, ``dropout`` its dropout keys
    with their defaults. ``encoder_decoder``: it may have both; ``experts``: it may have experts.
    ``known``: keys that its class has and that may change nothing.
    """

    model_type: str
    config_class: str
    build: Callable[[ConfigKeys, str], ModelSpec]
    names: Mapping[str, str] = field(default_factory=dict)
    dropout: Mapping[str, float] = field(default_factory=lambda: NO_DROPOUT)
    encoder_decoder: bool = False
    experts: bool = False
    known: tuple[str, ...] = ()


def runs_of(layers: Iterable[Layer]) -> tuple[LayerRun, ...]:
    """Consecutive equal layers, as one run each."""
    return tuple(LayerRun(layer=layer, count=len(list(run))) for layer, run in groupby(layers))


def decoder(
    name: str,
    embedding: EmbeddingLayer,
    runs: tuple[LayerRun, ...],
    *,
    norm: NormKind | None,
    norm_eps: float,
    tied: bool,
    softcap: float | None = None,
    head_bias: bool = False,
    multi_token: tuple[LayerRun, ...] = (),
) -> ModelSpec:
    """A one-tower language model.

    Embedding, blocks, and a head over the same vocabulary.

    Args:
        name: name of the model.
        embedding: the first layer.
        runs: the blocks.
        norm: the norm before the head; None if the blocks end normalized.
        norm_eps: its epsilon.
        tied: True if the head's projection is the embedding table.
        softcap: bound of the logits.
        head_bias: True if the head's projection has a bias.
        multi_token: multi-token layers, between the blocks and the head.
    """
    head = HeadLayer(
        hidden=embedding.hidden,
        vocab=embedding.vocab,
        norm=norm,
        norm_eps=norm_eps,
        bias=head_bias,
        softcap=softcap,
    )
    layers = (LayerRun(layer=embedding), *runs, *multi_token, LayerRun(layer=head))
    return ModelSpec(name=name, towers=(Tower(name="decoder", layers=layers),), tie_embeddings=tied)


def rms_decoder(
    config: ConfigKeys, name: str, embedding: EmbeddingLayer, blocks: Iterable[Layer], eps: float
) -> ModelSpec:
    """A decoder of these blocks with an RMS norm at its end, untied unless the file says so."""
    return decoder(
        name,
        embedding,
        runs_of(blocks),
        norm="rmsnorm",
        norm_eps=eps,
        tied=config.flag_or("tie_word_embeddings", False),
    )


def parts_decoder(
    config: ConfigKeys,
    name: str,
    mixers: Sequence[Mixer],
    parts: Sequence[FeedForward],
    eps: float,
) -> ModelSpec:
    """A decoder of these mixers and feed-forward parts; ``eps``: the class's default."""
    hidden, vocab = config.size("hidden_size"), config.size("vocab_size")
    eps = config.number_or("rms_norm_eps", eps)
    blocks = (
        BlockLayer(hidden=hidden, attention=mixer, mlp=part, norm_eps=eps)
        for mixer, part in zip(mixers, parts, strict=True)
    )
    return rms_decoder(config, name, EmbeddingLayer(vocab=vocab, hidden=hidden), blocks, eps)


def experts_family(
    model_type: str,
    config_class: str,
    build: Callable[[ConfigKeys, str], ModelSpec],
    known: tuple[str, ...] = (),
) -> Family:
    """A family that may have experts."""
    return Family(
        model_type=model_type, config_class=config_class, build=build, experts=True, known=known
    )
