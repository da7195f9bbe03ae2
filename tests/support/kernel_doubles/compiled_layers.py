"""Layers compiled as a word of ``--compile`` says."""

from __future__ import annotations

from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.technique_values import with_word
from shardwright.spec.techniques.compile import TECHNIQUE


def with_mode(strategy: LayerStrategy, word: str) -> LayerStrategy:
    """The strategy with its layer compiled so; ``none``: eager."""
    return with_word(strategy, TECHNIQUE, word, "compile")


def text_of(strategy: LayerStrategy) -> str:
    """The word for how a layer is compiled."""
    return TECHNIQUE.text_of(strategy)
