"""Check of a state before it is published as a good checkpoint."""

from __future__ import annotations

import math

import torch

from .engine_state import MODEL
from .tensor_slices import TensorSlices

LARGEST_WEIGHT = math.sqrt(torch.finfo(torch.float32).max)
"""Its square, and so any norm over it, is the last that fp32 holds."""


def require_finite(slices: TensorSlices) -> None:
    """Refuse a state that no finite loss follows from.

    Raises:
        ValueError: a value is not finite, or a weight so large that its square is not.
    """
    for name, tensor_slice in slices.items():
        tensor = tensor_slice.tensor
        if not tensor.is_floating_point() or not tensor.numel():
            continue
        low, high = (float(bound) for bound in torch.aminmax(tensor.float()))
        largest = max(-low, high)
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ValueError(f"{name} is not finite")
        if name.startswith(MODEL) and largest > LARGEST_WEIGHT:
            raise ValueError(f"{name} has a value of {largest:.1e}, whose square is not finite")
