"""Rotary position embedding (Su et al., 2021), half-rotation layout as in Llama.

A head's first and second half are the real and imaginary parts of a number that is turned by
angle ``position · theta^(-2i/d)``. The backward pass turns by the opposite angle, so nothing
but the angle table is kept.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

_tables: dict[tuple[int, int, float, torch.dtype, torch.device], tuple[Tensor, Tensor]] = {}


def angle_table(
    seq_len: int, head_dim: int, theta: float, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every position's angles, each (seq_len, head_dim / 2); made once."""
    key = (seq_len, head_dim, theta, dtype, device)
    if key not in _tables:
        _tables[key] = _make_table(*key)
    return _tables[key]


def cached_tables() -> list[Tensor]:
    """The tables that live now."""
    return [table for pair in _tables.values() for table in pair]


def forget_tables() -> None:
    """Let the tables go; they are made again when they are needed."""
    _tables.clear()


def _make_table(
    seq_len: int, head_dim: int, theta: float, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
    angles = torch.arange(seq_len, dtype=torch.float64)[:, None] * theta**-exponents
    return angles.cos().to(device, dtype), angles.sin().to(device, dtype)


def _turn(x: Tensor, cos: Tensor, sin: Tensor, sign: float) -> Tensor:
    """``x`` (s, b, heads, d) turned by the angles of ``cos``/``sin`` (s, d/2) times ``sign``."""
    cos, sin = cos[:, None, None, :], sin[:, None, None, :]
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    real, imaginary = x.chunk(2, dim=-1)
    out_real, out_imaginary = out.chunk(2, dim=-1)
    torch.mul(real, cos, out=out_real)
    out_real.addcmul_(imaginary, sin, value=-sign)
    torch.mul(imaginary, cos, out=out_imaginary)
    out_imaginary.addcmul_(real, sin, value=sign)
    return out


class _Rope(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _turn(x, cos, sin, 1.0)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _turn(grads[0], cos, sin, -1.0), None, None


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn every head of ``x`` by its position.

    Args:
        x: (seq, batch, heads, head_dim).
        cos: (seq, head_dim / 2), in the type of ``x``.
        sin: like ``cos``.
    """
    out: Tensor = _Rope.apply(x, cos, sin)  # type: ignore[no-untyped-call]
    return out
