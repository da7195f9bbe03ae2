"""Embedding and head of a language model.

Runs what ``shardwright.costmodel.layers.heads`` and ``costmodel.ops.vocabulary`` price.
"""

from __future__ import annotations

from torch import Tensor

from ...kernels.dense import activation
from ...kernels.dense.cross_entropy import cross_entropy
from ...kernels.dense.linear_cross_entropy import (
    LINEAR_CROSS_ENTROPY,
    VocabularySplit,
    linear_cross_entropy,
    split_linear_cross_entropy,
)
from ...spec.model.layer_parameters import split_range
from ...spec.model.layers import EMBEDDING_NORM_EPS, EmbeddingLayer, HeadLayer, NormLayer
from ...spec.report.work_items import chunks_split_loss, loss_chunks
from .layer import LayerBuild, LayerModule
from .tensor_parallel import embedding


class Embedding(LayerModule):
    """Tokens (seq, batch) to activations."""

    def __init__(self, layer: EmbeddingLayer, build: LayerBuild) -> None:
        super().__init__(build)
        self.layer = layer
        self.held, self.seq_len = build.sequence.tokens.held, build.seq_len
        self.vocab_start = split_range(layer.vocab, self.tp.size, self.tp.rank)[0]

    def forward(self, tokens: Tensor) -> Tensor:
        """Token, position and segment vectors, normalized if the layer has a norm."""
        positions, segments = (
            self.slot(name).weight if name in self._modules else None
            for name in ("positions", "token_types")
        )
        table, start = self.slot("tokens").weight, self.vocab_start
        x = embedding(tokens, table, positions, start, self.tp, self.held, self.seq_len, segments)
        if self.layer.norm is None:
            return x
        return self.apply_norm("norm", self.layer.norm, EMBEDDING_NORM_EPS, x)


class Norm(LayerModule):
    """The norm after a tower's last block."""

    def __init__(self, layer: NormLayer, build: LayerBuild) -> None:
        super().__init__(build)
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        """Normalize activations."""
        return self.apply_norm("norm", self.layer.norm, self.layer.norm_eps, x)


class Head(LayerModule):
    """Final norm, optional transform, projection to the vocabulary, loss."""

    def __init__(self, layer: HeadLayer, build: LayerBuild) -> None:
        super().__init__(build)
        self.layer = layer
        self.vocab_start = split_range(layer.vocab, self.tp.size, self.tp.rank)[0]

    @property
    def loss_replicas(self) -> int:
        """Tensor-parallel ranks that compute the same loss."""
        return self.tp.size

    def forward(self, x: Tensor, targets: Tensor | None, scale: float) -> Tensor:
        """``scale`` times the sum of the losses of ``targets`` (seq, batch).

        Without targets: the logits of this rank's part of the vocabulary.
        """
        layer = self.layer
        if layer.norm is not None:
            x = self.apply_norm("norm", layer.norm, layer.norm_eps, x)
        if layer.transform:
            x = activation.gelu(self.replicated(x, "transform"), tanh=False)
            x = self.apply_norm("transform_norm", "layernorm", layer.norm_eps, x)
        (weight,) = self.weights("projection")
        plain = not layer.bias and layer.softcap is None and weight.requires_grad
        if plain and targets is not None:
            loss = self._chunked_loss(x, weight, targets, scale)
            if loss is not None:
                return loss
        (logits,) = self.column(x, "projection")
        del x  # nothing needs it where the projection is frozen
        if layer.softcap is not None:
            logits = (logits / layer.softcap).tanh() * layer.softcap
        if targets is None:
            return logits
        group = self.tp.group if self.tp.size > 1 else None
        return cross_entropy(logits.flatten(0, 1), targets, scale, self.vocab_start, group)

    def _chunked_loss(
        self, x: Tensor, weight: Tensor, targets: Tensor, scale: float
    ) -> Tensor | None:
        """Projection and loss by chunks of tokens; None where the logits are made whole."""
        tp = self.tp
        if tp.size == 1:
            if not self.kernels.fuses(LINEAR_CROSS_ENTROPY, x):
                return None
            return linear_cross_entropy(self.kernels, x, weight, targets, scale, is_root=True)
        start, stop = split_range(self.layer.vocab, tp.size, 0)  # the fullest rank's decide
        if tp.group is None or not chunks_split_loss(targets.numel(), stop - start):
            return None
        chunks = loss_chunks(targets.numel(), stop - start)
        split = VocabularySplit(
            start=self.vocab_start, group=tp.group, gather=tp.gather_sequence, reduce=tp.reduce
        )
        return split_linear_cross_entropy(x, weight, targets, scale, split, chunks, is_root=True)


__all__ = ["Embedding", "Head", "Norm"]
