"""Views of elements by width, for kernels that only copy."""

from __future__ import annotations

import torch
from torch import Tensor

from .dispatch import Request
from .fused import triton_unsupported

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
SUMMED = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""Types whose rows kernels add up."""


def as_integers(x: Tensor) -> Tensor:
    """View as integers of equal width, for copying; 16-byte elements stay."""
    return x.view(_INTEGERS.get(x.element_size(), x.dtype))


def copying_unsupported(request: Request) -> str | None:
    """Return why Triton cannot move and sum these elements, or None."""
    if reason := triton_unsupported(request._replace(dtype=torch.float32)):
        return reason
    return "not for complex numbers" if request.dtype.is_complex else None


def summing_unsupported(request: Request) -> str | None:
    """Return why Triton cannot sum rows of this type, or None."""
    if reason := triton_unsupported(request._replace(dtype=torch.float32)):
        return reason
    named = str(request.dtype).removeprefix("torch.")
    return None if request.dtype in SUMMED else f"not for {named}"


def summing_type(dtype: torch.dtype) -> torch.dtype:
    """Accumulation type: float32, or the element type if wider."""
    return torch.promote_types(dtype, torch.float32)


__all__ = ["SUMMED", "as_integers", "copying_unsupported", "summing_type", "summing_unsupported"]
