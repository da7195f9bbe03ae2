"""Rotary position embedding (Su et al., 2021), half-rotation layout as in Llama.

A head's halves are the real and imaginary parts of a number turned by ``position · theta^(-2i/d)``.
The backward pass turns by the opposite angle, so only the angle table is kept. liger-kernel turns
queries and keys in one kernel, in float32 and in place, so the input tensors must not be shared.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.graph import increment_version

from ..dispatch import Dispatcher, Family, Request, Variant
from ..fused import liger_unsupported, operation, power_of_two

MAX_HALVES = 16384
"""Numbers of a token's heads, padded to powers of two, that a program holds in each half."""


class Angles(NamedTuple):
    """Rotary angles of positions 0 to ``seq_len``.

    ``positions``, if not empty, holds the (first, end) spans to use instead, ``seq_len`` in all.
    """

    seq_len: int
    head_dim: int
    theta: float
    positions: tuple[tuple[int, int], ...] = ()


_Key = tuple[Angles, torch.dtype, torch.device, int]
_tables: dict[_Key, tuple[Tensor, Tensor]] = {}


def angle_table(
    angles: Angles, dtype: torch.dtype, device: torch.device, repeats: int = 1
) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every position's angles, cached.

    Each is (seq_len · repeats, head_dim / 2), a position's row repeated ``repeats`` times.
    """
    key = (angles, dtype, device, repeats)
    if key not in _tables:
        _tables[key] = _make_table(*key)
    return _tables[key]


def cached_tables() -> list[Tensor]:
    """Currently cached tables."""
    return [table for pair in _tables.values() for table in pair]


def forget_tables() -> None:
    """Drop the cached tables; they are rebuilt on demand."""
    _tables.clear()


def _make_table(
    angles: Angles, dtype: torch.dtype, device: torch.device, repeats: int
) -> tuple[Tensor, Tensor]:
    exponents = torch.arange(0, angles.head_dim, 2, dtype=torch.float64) / angles.head_dim
    spans = angles.positions or ((0, angles.seq_len),)
    positions = torch.cat([torch.arange(*span, dtype=torch.float64) for span in spans])
    turned = positions.repeat_interleave(repeats)[:, None] * angles.theta**-exponents
    return turned.cos().to(device, dtype), turned.sin().to(device, dtype)


class _RotateHeads(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _rotated_last(x, cos, sin, 1.0)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _rotated_last(grads[0], cos, sin, -1.0), None, None


def _rotated_last(x: Tensor, cos: Tensor, sin: Tensor, sign: float) -> Tensor:
    width = 2 * cos.shape[-1]
    turned = _rotate(x[..., -width:], cos, sin, sign)
    return turned if x.shape[-1] == width else torch.cat((x[..., :-width], turned), -1)


def rotate_heads(x: Tensor, angles: Angles) -> Tensor:
    """Rotate the last ``angles.head_dim`` numbers of every head, eagerly.

    Args:
        x: (seq, batch, heads, width), width at least ``angles.head_dim``; not modified.
        angles: of positions 0 to seq.
    """
    table = angle_table(angles, x.dtype, x.device)
    out: Tensor = _RotateHeads.apply(x, *table)  # type: ignore[no-untyped-call]
    return out


def _rotate(x: Tensor, cos: Tensor, sin: Tensor, sign: float) -> Tensor:
    """Rotate ``x`` (s, b, heads, d) by ``sign`` times ``cos``/``sin`` (s, d/2)."""
    cos, sin = cos[:, None, None, :], sin[:, None, None, :]
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    real, imaginary = x.chunk(2, dim=-1)
    out_real, out_imaginary = out.chunk(2, dim=-1)
    torch.mul(real, cos, out=out_real)
    out_real.addcmul_(imaginary, sin, value=-sign)
    torch.mul(imaginary, cos, out=out_imaginary)
    out_imaginary.addcmul_(real, sin, value=sign)
    return out


def _eager(query: Tensor, key: Tensor, angles: Angles) -> tuple[Tensor, Tensor]:
    table = angle_table(angles, query.dtype, query.device)
    turned = [_RotateHeads.apply(x, *table) for x in (query, key)]  # type: ignore[no-untyped-call]
    return turned[0], turned[1]


def _fake_rope(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, back: bool) -> None:
    """Writes to its operands and makes nothing."""


@operation(
    "rope_(Tensor(a!) query, Tensor(b!) key, Tensor cos, Tensor sin, bool back) -> ()", _fake_rope
)
def _fused_rotate(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, back: bool) -> None:
    from liger_kernel.ops.rope import rope_backward, rope_forward

    # To the library: one sample of (seq · batch) tokens, heads before tokens.
    as_heads = [x.flatten(0, 1).unsqueeze(0).transpose(1, 2) for x in (query, key)]
    turn = rope_backward if back else rope_forward
    with torch.cuda.device_of(query):  # type: ignore[no-untyped-call]
        turn(*as_heads, cos, sin, rotary_dim=query.shape[-1])


class _FusedRope(Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(cos, sin)
        query, key = query.contiguous(), key.contiguous()
        _fused_rotate(query, key, cos, sin, False)
        increment_version((query, key))  # who kept what was there before is told
        return query.view_as(query), key.view_as(key)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        query, key = (grad.contiguous() for grad in grads)
        _fused_rotate(query, key, *ctx.saved_tensors, True)
        return query, key, None, None


def _fused(query: Tensor, key: Tensor, angles: Angles) -> tuple[Tensor, Tensor]:
    table = angle_table(angles, torch.float32, query.device, query.shape[1])
    turned = _FusedRope.apply(query, key, *table)  # type: ignore[no-untyped-call]
    return turned[0], turned[1]


def _fused_unsupported(request: Request) -> str | None:
    if reason := liger_unsupported(request):
        return reason
    heads, head_dim = request.shape[-2:]
    padded = power_of_two(heads) * power_of_two(head_dim) // 2
    return f"{heads} heads of {head_dim} are too much for a program" * (padded > MAX_HALVES) or None


ROPE = Family(
    "rope", (Variant("liger", _fused, _fused_unsupported), Variant("eager", _eager, fused=False))
)
"""Decided by the queries, (seq, batch, heads, head_dim)."""


def apply_rope(
    kernels: Dispatcher, query: Tensor, key: Tensor, angles: Angles
) -> tuple[Tensor, Tensor]:
    """Rotate all heads of queries and keys; inputs may be overwritten.

    Args:
        kernels: of the run.
        query: (seq, batch, heads, head_dim).
        key: (seq, batch, kv_heads, head_dim).
        angles: of positions 0 to seq.
    """
    turned: tuple[Tensor, Tensor] = kernels.pick(ROPE, query)(query, key, angles)
    return turned


def rope_reference(x: Tensor, theta: float) -> Tensor:
    """Float64 reference with complex numbers; ``x`` (seq, batch, heads, head_dim)."""
    seq, half = x.shape[0], x.shape[-1] // 2
    real, imaginary = x.double().split(half, dim=-1)  # type: ignore[no-untyped-call]
    frequency = theta ** (-torch.arange(half, dtype=torch.float64, device=x.device) / half)
    positions = torch.arange(seq, dtype=torch.float64, device=x.device)
    angle = (positions[:, None] * frequency)[:, None, None]
    turned = torch.complex(real, imaginary) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat((turned.real, turned.imag), dim=-1)
