"""Where fused kernels are checked: on cores by Triton's interpreter, and on a CUDA device."""

from __future__ import annotations

import pytest
import torch
from kernel_doubles import interpreter  # noqa: F401  # before triton

from shardwright.kernels.dispatch import Dispatcher
from shardwright.kernels.fused import interpreted, unusable

DEVICES = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def dispatchers(device: str) -> tuple[Dispatcher, Dispatcher]:
    """Portable and fused kernels; skips where nothing runs the fused ones."""
    if reason := unusable("triton"):
        pytest.skip(reason)
    if device == "cpu" and not interpreted():
        pytest.skip("Triton's interpreter is off in a process with a CUDA device")
    return Dispatcher("portable"), Dispatcher("fused")


def random_values(
    *shape: int, seed: int = 0, dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> torch.Tensor:
    """Standard normal numbers."""
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return drawn.to(dtype).to(device)


def strided(x: torch.Tensor, how: str) -> torch.Tensor:
    """The same numbers laid out otherwise: ``plain``, ``gaps`` or ``turned`` (last axis first)."""
    if how == "gaps":
        wide = x.new_zeros((*x.shape[:-1], 2 * x.shape[-1] + 1))
        wide[..., 1::2] = x
        return wide[..., 1::2]
    if how == "turned":
        return x.clone().movedim(-1, 0).contiguous().movedim(0, -1)
    return x.clone()


LAYOUTS = ("plain", "gaps", "turned")
