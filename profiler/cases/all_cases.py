"""All timed cases: the executor's layer kernels over a range of sizes.

A case is a kernel as the lowering names it and a function that allocates fresh operands and returns
the timed call; outputs are allocated as in a training step. A case holds no tensor until it is
prepared, so a sweep holds those of one case at a time, and a case whose operands do not fit is
skipped.

Cores and other devices run the same list. Operations that a device runs as one fused kernel are
lines of :mod:`fused_cases`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from ...spec.report.work_items import Kernel
from .case import Case, TensorSpec
from .fused_cases import fused
from .shaped_cases import attention, batched_matmul_cases, matmul_cases
from .sizes import COARSE, CUDA_COARSE, CUDA_FINE, FINE, Sizes
from .streamed_cases import memory_bound_cases, optimizer
from .wire_cases import wire

__all__ = ["COARSE", "CUDA_COARSE", "CUDA_FINE", "FINE", "Sizes", "all_cases", "sizes_for"]

CORE = torch.device("cpu")


def sizes_for(device: torch.device, coarse: bool) -> Sizes:
    """The sizes of a sweep.

    Small for a core, large for a GPU.
    """
    if device.type == "cpu":
        return COARSE if coarse else FINE
    return CUDA_COARSE if coarse else CUDA_FINE


def all_cases(sizes: Sizes, dtypes: Sequence[str], device: torch.device = CORE) -> Iterator[Case]:
    """Every case once.

    One size of every kind first, then the most important ones.
    """
    yielded: set[Kernel] = set()
    for grid in (sizes.middle(), sizes):
        for dtype in dtypes:
            for case in _cases(grid, TensorSpec(dtype, device)):
                if case.kernel not in yielded:
                    yielded.add(case.kernel)
                    yield case._replace(first=grid is not sizes)


def _cases(sizes: Sizes, tensor_spec: TensorSpec) -> Iterator[Case]:
    yield from matmul_cases(sizes, tensor_spec)
    yield from attention(sizes, tensor_spec)
    for elements in sizes.elements:
        rows = max(1, elements // sizes.width)
        yield from memory_bound_cases(rows, sizes, tensor_spec)
        yield from fused(rows, sizes, tensor_spec)
        yield from optimizer(elements, tensor_spec)
        yield from wire(elements, tensor_spec)
    yield from batched_matmul_cases(sizes, tensor_spec)
