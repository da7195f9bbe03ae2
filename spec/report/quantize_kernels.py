"""Names of kernels that quantize blocks, as work items and timed rows have them."""

from __future__ import annotations

from typing import Literal


def kernel_op(
    step: Literal["quantise", "dequantise", "dequantise_sum", "dequantise_add"],
    bits: int,
    stochastic: bool = False,
    hadamard: bool = False,
) -> str:
    """Name of a kernel; a core's time of each follows bits, chance and transform."""
    parts = (f"block_{step}_{bits}bit", "stochastic" * stochastic, "hadamard" * hadamard)
    return "_".join(part for part in parts if part)
