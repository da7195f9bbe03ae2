"""The tokens of some samples that a rank reads."""

from __future__ import annotations

import torch
from torch import Tensor

from ...spec.parallel.sequence_partition import IndexRanges, count


def select_tokens(whole: Tensor, spans: IndexRanges) -> Tensor:
    """Some tokens of what samples give a layer side by side, in storage of their own.

    Args:
        whole: (tokens, samples) or (tokens, samples, width).
        spans: which tokens.
    """
    out = whole.new_empty(count(spans), *whole.shape[1:])
    first = 0
    for span in spans:
        parts = whole[span.first : span.end].unbind(1)
        torch.stack(parts, dim=1, out=out[first : first + span.size])
        first += span.size
    return out


__all__ = ["select_tokens"]
