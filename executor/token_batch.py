"""The tokens of some samples that a rank reads."""

from __future__ import annotations

import torch
from torch import Tensor

from ..spec.token_parts import Spans, count


def chosen_tokens(samples: list[Tensor], spans: Spans, ahead: int = 0) -> Tensor:
    """Some tokens of each sample side by side, (tokens, samples).

    Args:
        samples: each (seq + 1,) tokens.
        spans: which tokens.
        ahead: how far after each of those the wanted one stands: 1 for what is to be predicted.
    """
    out = samples[0].new_empty(count(spans), len(samples))
    first = 0
    for span in spans:
        parts = [sample[span.first + ahead : span.end + ahead] for sample in samples]
        torch.stack(parts, dim=1, out=out[first : first + span.size])
        first += span.size
    return out


__all__ = ["chosen_tokens"]
