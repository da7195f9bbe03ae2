"""Functions of CUDA's libdevice in Triton's own language, for its interpreter, which has none."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def rsqrt(x):
    """1 / sqrt(x)."""
    return 1 / tl.sqrt(x)


@triton.jit
def tanh(x):
    """The hyperbolic tangent."""
    return 2 * tl.sigmoid(2 * x) - 1
