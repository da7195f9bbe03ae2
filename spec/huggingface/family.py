"""Family: how one ``model_type`` of transformers is read, and what all decoders share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby

from ..model.model_spec import (
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One ``model_type``.

    ``build`` makes the model of a configuration and a name. ``config_class`` is the class whose
    defaults it takes, ``names`` that class's own spellings of general names, ``dropout`` its
    dropout keys with their defaults. ``ends`` says that it may have an encoder and a decoder,
    ``experts`` that it may have experts.
    """

    model_type: str
    config_class: str
    build: Callable[[ConfigKeys, str], ModelSpec]
    names: Mapping[str, str] = field(default_factory=dict)
    dropout: Mapping[str, float] = field(default_factory=lambda: NO_DROPOUT)
    ends: bool = False
    experts: bool = False


def runs_of(layers: Iterable[Layer]) -> tuple[LayerRun, ...]:
    """Consecutive equal layers as one run each."""
    return tuple(LayerRun(layer=layer, count=len(list(same))) for layer, same in groupby(layers))


def decoder(
    name: str,
    embedding: EmbeddingLayer,
    runs: tuple[LayerRun, ...],
    *,
    norm: NormKind | None,
    norm_eps: float,
    tied: bool,
    softcap: float | None = None,
    further: tuple[LayerRun, ...] = (),
) -> ModelSpec:
    """A language model of one tower: embedding, blocks, and a head over the same vocabulary.

    Args:
        name: what to call the model.
        embedding: the first layer.
        runs: the blocks.
        norm: the kind of the norm before the head; None if the blocks end normalised.
        norm_eps: its epsilon.
        tied: whether the head's projection is the embedding table.
        softcap: what bounds the logits.
        further: multi-token layers, which stand between the blocks and the head.
    """
    head = HeadLayer(
        hidden=embedding.hidden,
        vocab=embedding.vocab,
        norm=norm,
        norm_eps=norm_eps,
        softcap=softcap,
    )
    layers = (LayerRun(layer=embedding), *runs, *further, LayerRun(layer=head))
    return ModelSpec(name=name, towers=(Tower(name="decoder", layers=layers),), tie_embeddings=tied)
