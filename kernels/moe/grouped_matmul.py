"""Grouped matrix product over row groups, as for a layer's experts.

The library's grouped product is one kernel on Hopper and Blackwell; elsewhere it loops, reading the
offsets on the host, so there our own loop replaces it, with no stride rules.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from ...spec.errors import InputError
from ..dispatch import Dispatcher, Family, Request, Variant
from ..fused import capability
from ..group_ends import read_offsets

MAX_GROUPS = 1023
ALIGNMENT_BYTES = 16
LEAVES_EMPTY_GROUPS = (10,)
"""Major capabilities on which weight gradients of empty groups come out unwritten: pytorch issue
172439."""


def one_kernel_unsupported(request: Request) -> str | None:
    """Return why one kernel cannot multiply all groups, or None.

    Sources, the same in torch 2.11 and 2.13: devices and types, ``_grouped_mm_cuda`` in
    ``aten/src/ATen/native/cuda/GroupedBlas.cpp``; strides, ``GroupedMMUtils.h``; number of groups,
    ``cuda/GroupMM.cu``, not built for Windows.
    """
    if request.device.type != "cuda" or torch.version.cuda is None or sys.platform == "win32":
        return "no single kernel but for CUDA"
    version = capability(request.device.index or 0)
    if version[0] not in (9, 10):
        return f"a loop on the host at compute capability {version[0]}.{version[1]}, not 9 or 10"
    if request.dtype != torch.bfloat16:
        return f"a loop on the host for {str(request.dtype).removeprefix('torch.')}"
    groups, k, n = request.shape
    if groups > MAX_GROUPS:
        return f"{groups} groups are more than {MAX_GROUPS}"
    step = ALIGNMENT_BYTES // request.dtype.itemsize
    if k % step or n % step:
        return f"rows of {k} and {n} elements are no multiples of {ALIGNMENT_BYTES} bytes"
    return None


def kernel_rows(x: Tensor) -> Tensor:
    """(rows, k) for the kernel: k dense, so groups may start anywhere."""
    fits = x.stride(1) == 1 and x.stride(0) >= x.shape[1] and _aligned(x, x.stride(0))
    return x if fits else x.clone(memory_format=torch.contiguous_format)


def kernel_stack(weight: Tensor) -> Tensor:
    """(groups, k, n) for the kernel: either k or n dense."""
    group, row, column = weight.stride()
    k, n = weight.shape[1:]
    dense = (column == 1 and row >= n) or (row == 1 and column >= k)
    fits = dense and _aligned(weight, group, max(row, column))
    return weight if fits else weight.clone(memory_format=torch.contiguous_format)


def _aligned(x: Tensor, *strides: int) -> bool:
    places = (x.data_ptr(), *(stride * x.element_size() for stride in strides))
    return all(place % ALIGNMENT_BYTES == 0 for place in places)


def clear_empty(grad_weight: Tensor, offsets: Tensor) -> None:
    device = grad_weight.device
    if device.type == "cuda" and capability(device.index or 0)[0] in LEAVES_EMPTY_GROUPS:
        empty = torch.diff(offsets, prepend=offsets.new_zeros(1)) == 0
        grad_weight.masked_fill_(empty.view(-1, 1, 1), 0)


class _OneKernel(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:
        x, weight = kernel_rows(x), kernel_stack(weight)
        ctx.save_for_backward(x, weight, offsets)
        return F.grouped_mm(x, weight, offs=offsets)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, weight, offsets = ctx.saved_tensors
        grad = kernel_rows(grads[0])
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            grad_x = F.grouped_mm(grad, weight.transpose(-2, -1), offs=offsets)
        if ctx.needs_input_grad[1]:
            grad_weight = F.grouped_mm(x.t(), grad, offs=offsets)
            clear_empty(grad_weight, offsets)
        return grad_x, grad_weight, None


def filled_groups(offsets: Tensor, rows: int) -> Iterator[tuple[int, slice]]:
    """Yield index and row slice of each nonempty group.

    Raises:
        InputError: the offsets do not rise to the number of rows.
    """
    ends = [0, *read_offsets(offsets, rows)]
    if ends != sorted(ends) or ends[-1] != rows:
        raise InputError("offsets", ends[1:], f"rising to the {rows} rows")
    for group, (start, end) in enumerate(pairwise(ends)):
        if end > start:
            yield group, slice(start, end)


class _Loop(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:
        out = x.new_empty(x.shape[0], weight.shape[2])
        filled = list(filled_groups(offsets, x.shape[0]))
        for group, rows in filled:
            torch.mm(x[rows], weight[group], out=out[rows])
        ctx.save_for_backward(x, weight)
        ctx.filled = filled
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        (grad,) = grads
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            grad_x = torch.empty(x.shape, dtype=x.dtype, device=x.device)
            for group, rows in ctx.filled:
                torch.mm(grad[rows], weight[group].t(), out=grad_x[rows])
        if ctx.needs_input_grad[1]:
            grad_weight = torch.zeros(weight.shape, dtype=weight.dtype, device=weight.device)
            for group, rows in ctx.filled:
                torch.mm(x[rows].t(), grad[rows], out=grad_weight[group])
        return grad_x, grad_weight, None


GROUPED_MATMUL = Family(
    "grouped_matmul",
    (
        Variant("one_kernel", _OneKernel.apply, one_kernel_unsupported),
        Variant("loop", _Loop.apply, fused=False),
    ),
)
"""Decided by the weights, (groups, k, n)."""


def grouped_matmul(kernels: Dispatcher, x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:
    """Every group's rows times the group's matrix.

    Args:
        kernels: of the run.
        x: (rows, k), group after group.
        weight: (groups, k, n), in the type of ``x``.
        offsets: (groups,) int32 on the same device: each group's end, the last at ``rows``; a group
            may be empty. Checked only where read on the host anyway, which the single kernel never
            does.

    Returns:
        (rows, n).

    Raises:
        InputError: shapes, types or offsets do not fit together.
    """
    groups, k, n = weight.shape
    if x.dim() != 2 or x.shape[1] != k or x.dtype != weight.dtype:
        kind = str(weight.dtype).removeprefix("torch.")
        description = f"{str(x.dtype).removeprefix('torch.')} {tuple(x.shape)}"
        raise InputError("x", description, f"{kind} (rows, {k})")
    if offsets.shape != (groups,) or offsets.dtype != torch.int32:
        description = f"{str(offsets.dtype).removeprefix('torch.')} {tuple(offsets.shape)}"
        raise InputError("offsets", description, f"int32 ({groups},)")
    # Operands without elements have no strides that the single kernel takes.
    run = kernels.pick(GROUPED_MATMUL, weight) if x.numel() and n else _Loop.apply
    out: Tensor = run(x, weight, offsets)
    return out


def grouped_matmul_reference(x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:
    """Float64 reference, differentiable by autograd."""
    rows = torch.arange(x.shape[0], device=x.device)
    group = torch.bucketize(rows, offsets.to(rows), right=True)
    return torch.einsum("rk,rkn->rn", x.double(), weight.double()[group])


__all__ = ["GROUPED_MATMUL", "grouped_matmul", "grouped_matmul_reference"]
