"""Merge of attention over two disjoint key sets.

Each set's output is a mean of its values, weighted by its softmax sum (Dao et al., 2022, section
3.1): ``out = (e^lse_a · out_a + e^lse_b · out_b) / (e^lse_a + e^lse_b)``. The first weight is the
logistic function of ``lse_a - lse_b``, which never overflows.
"""

from __future__ import annotations

import torch
from torch import Tensor


def merge_attention(
    out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor
) -> tuple[Tensor, Tensor]:
    """Merge attention over two disjoint key sets.

    Args:
        out_a: (seq, batch, heads, head_dim), finite everywhere. Keep a running result in float32:
            the output has the wider of the two types.
        lse_a: (batch, heads, seq) natural log-sum-exp; -inf where a query saw no key.
        out_b: like ``out_a``.
        lse_b: like ``lse_a``.

    Returns:
        Output and log-sum-exp over both; zeros and -inf for a query that saw no key in either.
    """
    lse = torch.logaddexp(lse_a, lse_b)
    weight = torch.sigmoid(lse_a - lse_b).masked_fill_(lse == -torch.inf, 0)
    dtype = torch.promote_types(out_a.dtype, out_b.dtype)
    accurate = torch.promote_types(dtype, weight.dtype)
    weight = weight.permute(2, 0, 1).unsqueeze(-1).to(accurate)
    return torch.lerp(out_b.to(accurate), out_a.to(accurate), weight).to(dtype), lse


__all__ = ["merge_attention"]
