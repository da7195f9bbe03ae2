"""Ring attention step with values narrower than keys (latent attention).

As :mod:`ring_step`, but since the library's kernels take one width, values are zero-padded inside a
step and the padding's output is dropped: only narrow values travel the ring. Tensors are (batch,
heads, seq, width).
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...spec.errors import RunError
from ..fused import operation
from .flash_narrow import filled_up, token_first
from .ring_step import fake_backward, fake_forward, flash_step, flash_step_backward


def _one_width(query: Tensor, *narrow: Tensor) -> list[Tensor]:
    width = query.shape[-1]
    if any(x.shape[-1] > width for x in narrow):
        raise RunError(f"no flash attention for values wider than keys of {width} in a ring")
    return [filled_up(x, width) for x in narrow]


@operation(
    "flash_band_step(Tensor query, Tensor key, Tensor value, int[]? parts) -> (Tensor, Tensor)",
    fake_forward,
)
def flash_narrow_step(
    query: Tensor, key: Tensor, value: Tensor, parts: list[int] | None
) -> tuple[Tensor, Tensor]:
    """Output as wide as the values, and log-sum-exps (batch, heads, seq) float32."""
    (wide,) = _one_width(query, value)
    out, log_sum = flash_step(query, key, wide, parts)
    width = value.shape[-1]
    return token_first(query, width).copy_(out[..., :width]), log_sum


@operation(
    "flash_band_step_backward(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor out, "
    "Tensor log_sum, int[]? parts) -> (Tensor, Tensor, Tensor)",
    fake_backward,
)
def flash_narrow_step_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    log_sum: Tensor,
    parts: list[int] | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients from one ring step of narrow values.

    ``grad`` and ``out`` are as wide as the values.
    """
    wide_grad, wide_value, wide_out = _one_width(query, grad, value, out)
    operands = (wide_grad, query, key, wide_value, wide_out, log_sum)
    of_query, of_key, of_value = flash_step_backward(*operands, parts)
    narrow = of_value[..., : value.shape[-1]].transpose(1, 2)
    dense = narrow.clone(memory_format=torch.contiguous_format)
    return of_query, of_key, dense.transpose(1, 2)


__all__ = ["flash_narrow_step", "flash_narrow_step_backward"]
