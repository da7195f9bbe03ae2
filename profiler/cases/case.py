"""A case: a kernel, and the preparation of its operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ...spec.report.work_items import Kernel

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
RANDOM_ELEMENTS = 2**16
"""Random elements drawn; larger operands repeat them, for drawing is slow on a core."""
KernelRun = Callable[[], object]


class Case(NamedTuple):
    """A kernel and its preparation; ``first``: the first of its kind.

    ``prepare`` allocates operands and returns a function that runs the kernel on them.
    """

    kernel: Kernel
    prepare: Callable[[], KernelRun]
    first: bool = False


class TensorSpec(NamedTuple):
    """Type (by the lowering's name) and device of a case's operands."""

    dtype: str
    device: torch.device

    @property
    def torch_dtype(self) -> torch.dtype:
        """Type as torch names it."""
        return DTYPES[self.dtype]

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.torch_dtype.itemsize

    def random(self, *shape: int) -> Tensor:
        """Normally distributed numbers of the case's type."""
        return random_tensor(shape, self.torch_dtype, self.device)


def random_tensor(shape: tuple[int, ...], torch_dtype: torch.dtype, device: torch.device) -> Tensor:
    """Normally distributed numbers, those beyond the first 65,536 repeated."""
    out = torch.empty(shape, dtype=torch_dtype, device=device)
    flat = out.view(-1)
    block = torch.randn(min(RANDOM_ELEMENTS, flat.numel()), dtype=torch_dtype, device=device)
    repeated = flat.numel() // block.numel() * block.numel()
    flat[:repeated].view(-1, block.numel()).copy_(block.expand(repeated // block.numel(), -1))
    flat[repeated:].copy_(block[: flat.numel() - repeated])
    return out
