"""Hadamard transform of groups of 32, which spreads outliers.

H is Sylvester's matrix of ±1 (H₁ = 1, H₂ₙ = [[H, H], [H, -H]]), symmetric, and H·H = 32 I: the
transform is its own inverse up to a division by 32, exact in binary.
"""

from __future__ import annotations

import torch
from torch import Tensor

GROUP = 32


def hadamard_matrix(order: int = GROUP) -> Tensor:
    """Sylvester's matrix of ±1 in float64; ``order`` is a power of two."""
    matrix = torch.ones(1, 1, dtype=torch.float64)
    while matrix.shape[0] < order:
        row = torch.cat((matrix, matrix), dim=1)
        matrix = torch.cat((row, torch.cat((matrix, -matrix), dim=1)))
    return matrix


def hadamard_reference(x: Tensor) -> Tensor:
    """H times each group of 32 on the last axis, in float64."""
    groups = x.double().reshape(*x.shape[:-1], x.shape[-1] // GROUP, GROUP)
    return torch.matmul(groups, hadamard_matrix().to(x.device)).flatten(-2)


def hadamard(x: Tensor) -> Tensor:
    """Hadamard transform by butterflies of stride 1 to 16, in ``x``'s type.

    The fused kernel takes the same sums in the same order, so both agree bit by bit.
    """
    apart = 1
    while apart < GROUP:
        pairs = x.reshape(*x.shape[:-1], x.shape[-1] // (2 * apart), 2, apart)
        first, second = pairs.unbind(-2)
        x = torch.stack((first + second, first - second), dim=-2).flatten(-3)
        apart *= 2
    return x


__all__ = ["GROUP", "hadamard", "hadamard_matrix", "hadamard_reference"]
