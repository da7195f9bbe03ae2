"""Cases of given kernels, such as those that a model's plans spend their time on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

import torch

from ...spec.report.work_items import FLASH, MATMULS, Kernel
from .case import DTYPES, Case, TensorSpec
from .fused_cases import fused
from .shaped_cases import attention_of, batched_matmul_of, matmul_of
from .sizes import Sizes
from .streamed_cases import memory_bound_cases, optimizer

FLASH_OPS = (FLASH, f"{FLASH}_backward")


def program_cases(kernels: Iterable[Kernel], sizes: Sizes, device: torch.device) -> Iterator[Case]:
    """A case for each kernel that can be timed alone, once, in the order given.

    Passes over memory are timed at the kernel's elements, in rows of the sweep's width.
    """
    yielded: set[Kernel] = set()
    for kernel in kernels:
        if kernel.dtype not in DTYPES:
            continue
        case = _case(kernel, sizes, TensorSpec(kernel.dtype, device))
        if case is not None and case.kernel not in yielded:
            yielded.add(case.kernel)
            yield case._replace(first=True)


def _case(kernel: Kernel, sizes: Sizes, tensor_spec: TensorSpec) -> Case | None:
    if kernel.op == "matmul":
        m, k, n = kernel.shape
        return matmul_of(m, k, n, tensor_spec)
    if kernel.op == "batched_matmul":
        batch, m, k, n = kernel.shape
        return batched_matmul_of(batch, m, k, n, tensor_spec)
    if kernel.op in FLASH_OPS:
        batch, heads, _, seq, width = kernel.shape
        both = attention_of(batch * heads, seq, width, tensor_spec)
        return next((case for case in both if case.kernel.op == kernel.op), None)
    if kernel.op in MATMULS or len(kernel.shape) > 1:
        return None
    elements = kernel.shape[0]
    rows = max(1, math.ceil(elements / sizes.width))
    narrow = replace(sizes, width=min(sizes.width, elements))
    streamed = (
        *memory_bound_cases(rows, narrow, tensor_spec),
        *fused(rows, narrow, tensor_spec),
        *optimizer(elements, tensor_spec),
    )
    return next((case for case in streamed if case.kernel.op == kernel.op), None)
