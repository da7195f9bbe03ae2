"""A small causal language model, for signs of losses alone."""

from __future__ import annotations

import torch
from torch import Tensor, nn

IGNORED = -100
"""A target that counts in no loss."""
HEADS = 4


class SmallModel(nn.Module):
    """Embedding, pre-norm blocks with learned positions, head."""

    def __init__(self, vocab: int, context: int, width: int, layers: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.place = nn.Parameter(torch.zeros(context, width))
        layer = nn.TransformerEncoderLayer(
            width, HEADS, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocab)
        self.mask = nn.Transformer.generate_square_subsequent_mask(context)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (samples, context, vocab) of the next token."""
        hidden = self.layers(self.embed(tokens) + self.place, mask=self.mask, is_causal=True)
        logits: Tensor = self.head(hidden)
        return logits


def token_loss(model: nn.Module, batch: Tensor) -> Tensor:
    """Loss of each token of (samples, context + 1), flat; 0 where the target is IGNORED."""
    tokens, targets = batch[:, :-1].clamp_min(0), batch[:, 1:].flatten()
    return nn.functional.cross_entropy(
        model(tokens).flatten(0, 1), targets, ignore_index=IGNORED, reduction="none"
    )
