"""Check of a state before it is published as a good checkpoint."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from .engine_state import MODEL

LARGEST_WEIGHT = math.sqrt(torch.finfo(torch.float32).max)
"""Its square, and so any norm over it, is the last that fp32 holds."""


def require_finite(held: Mapping[tuple[str, tuple[int, ...]], Tensor]) -> None:
    """Refuse a state that no finite loss follows from.

    ``held``: parts of tensors by name and offsets.

    Raises:
        ValueError: a value is not finite, or a weight so large that its square is not.
    """
    for (name, _), tensor in held.items():
        if not tensor.is_floating_point() or not tensor.numel():
            continue
        low, high = (float(bound) for bound in torch.aminmax(tensor.float()))
        largest = max(-low, high)
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ValueError(f"{name} is not finite")
        if name.startswith(MODEL) and largest > LARGEST_WEIGHT:
            raise ValueError(f"{name} has a value of {largest:.1e}, whose square is not finite")
