"""Tokens to activations, and activations to a loss: the ends of a language model."""

from __future__ import annotations

from torch import Tensor

from ...kernels.cross_entropy import cross_entropy
from ...kernels.linear_cross_entropy import LINEAR_CROSS_ENTROPY, linear_cross_entropy
from ...spec.model import EmbeddingLayer, HeadLayer
from ...spec.parameters import split_range
from .layer import LayerBuild, LayerModule
from .parallel import embedding


class Embedding(LayerModule):
    """Tokens (seq, batch) to activations."""

    def __init__(self, layer: EmbeddingLayer, build: LayerBuild) -> None:
        super().__init__(build)
        self.held = build.sequence.tokens.held
        self.vocab_start = split_range(layer.vocab, self.tp.size, self.tp.rank)[0]

    def forward(self, tokens: Tensor) -> Tensor:
        """Token and position vectors."""
        positions = self.slot("positions").weight if "positions" in self._modules else None
        weight = self.slot("tokens").weight
        return embedding(tokens, weight, positions, self.vocab_start, self.tp, self.held)


class Head(LayerModule):
    """Final norm, projection to the vocabulary, loss."""

    def __init__(self, layer: HeadLayer, build: LayerBuild) -> None:
        super().__init__(build)
        self.layer = layer
        self.vocab_start = split_range(layer.vocab, self.tp.size, self.tp.rank)[0]

    def forward(self, x: Tensor, targets: Tensor | None, scale: float) -> Tensor:
        """``scale`` times the sum of the losses of ``targets`` (seq, batch).

        Without targets: the logits of this rank's part of the vocabulary.
        """
        if self.layer.norm is not None:
            x = self.normed("norm", self.layer.norm, self.layer.norm_eps, x)
        (weight,) = self.weights("projection")
        fuses = self.tp.size == 1 and self.kernels.fuses(LINEAR_CROSS_ENTROPY, x)
        if fuses and weight.requires_grad and targets is not None:
            return linear_cross_entropy(self.kernels, x, weight, targets, scale, is_root=True)
        (logits,) = self.column(x, "projection")
        del x  # nothing needs it where the projection is frozen
        if targets is None:
            return logits
        group = self.tp.group if self.tp.size > 1 else None
        return cross_entropy(logits.flatten(0, 1), targets, scale, self.vocab_start, group)


__all__ = ["Embedding", "Head"]
