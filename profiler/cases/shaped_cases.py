"""Cases whose time depends on several sizes: matrix products and flash attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend

from ...spec.report.work_items import FLASH, Kernel
from .case import Case, KernelRun, TensorSpec
from .sizes import Sizes

aten = torch.ops.aten
Operands = tuple[Tensor, Tensor, Tensor]
FLASH_TYPES = ("bf16", "fp16")
"""Types of a GPU's flash kernels; a core's also take fp32."""


def matmul_cases(sizes: Sizes, tensor_spec: TensorSpec) -> Iterator[Case]:
    """Matrix products (m, k) · (k, n), the right side transposed."""
    for m, k, n in product(sizes.sides, repeat=3):
        yield matmul_of(m, k, n, tensor_spec)


def matmul_of(m: int, k: int, n: int, tensor_spec: TensorSpec) -> Case:
    """The product (m, k) · (k, n)."""
    traffic = (m * k + k * n + m * n) * tensor_spec.itemsize
    kernel = Kernel("matmul", (m, k, n), tensor_spec.dtype, 2 * m * k * n, traffic)
    return Case(kernel, partial(_product, tensor_spec, m, k, n))


def _product(tensor_spec: TensorSpec, m: int, k: int, n: int) -> KernelRun:
    return partial(tensor_spec.random(m, k).mm, tensor_spec.random(n, k).t())


def batched_matmul_cases(sizes: Sizes, tensor_spec: TensorSpec) -> Iterator[Case]:
    """The products of unfused attention: scores, and their product with the values."""
    for batch, seq, dim in product(sizes.heads, sizes.score_sequences, sizes.head_dims):
        traffic = (2 * batch * seq * dim + batch * seq * seq) * tensor_spec.itemsize
        flops = 2 * batch * seq * seq * dim
        scores = Kernel("batched_matmul", (batch, seq, dim, seq), tensor_spec.dtype, flops, traffic)
        yield Case(scores, partial(_scores, tensor_spec, batch, seq, dim))
        mix = Kernel("batched_matmul", (batch, seq, seq, dim), tensor_spec.dtype, flops, traffic)
        yield Case(mix, partial(_mix, tensor_spec, batch, seq, dim))


def batched_matmul_of(batch: int, m: int, k: int, n: int, tensor_spec: TensorSpec) -> Case:
    """The products (m, k) · (k, n) of a batch."""
    traffic = batch * (m * k + k * n + m * n) * tensor_spec.itemsize
    flops = 2 * batch * m * k * n
    kernel = Kernel("batched_matmul", (batch, m, k, n), tensor_spec.dtype, flops, traffic)
    return Case(kernel, partial(_batched, tensor_spec, batch, m, k, n))


def _batched(tensor_spec: TensorSpec, batch: int, m: int, k: int, n: int) -> KernelRun:
    return partial(tensor_spec.random(batch, m, k).bmm, tensor_spec.random(batch, k, n))


def _scores(tensor_spec: TensorSpec, batch: int, seq: int, dim: int) -> KernelRun:
    query = tensor_spec.random(batch, seq, dim)
    return partial(query.bmm, query.transpose(1, 2))


def _mix(tensor_spec: TensorSpec, batch: int, seq: int, dim: int) -> KernelRun:
    return partial(tensor_spec.random(batch, seq, seq).bmm, tensor_spec.random(batch, seq, dim))


def attention(sizes: Sizes, tensor_spec: TensorSpec) -> Iterator[Case]:
    """Causal flash attention, both directions, by a run's kernels."""
    for heads, seq, dim in product(sizes.heads, sizes.sequences, sizes.head_dims):
        yield from attention_of(heads, seq, dim, tensor_spec)


def attention_of(heads: int, seq: int, dim: int, tensor_spec: TensorSpec) -> Iterator[Case]:
    """Forward and backward of so many heads; none in a type that the kernels do not take."""
    on_core = tensor_spec.device.type == "cpu"
    if not on_core and tensor_spec.dtype not in FLASH_TYPES:
        return
    preparations = (_core_forward, _core_backward) if on_core else (_forward, _backward)
    shape = (1, heads, heads, seq, dim)
    product_flops, tensor_bytes = (
        2 * heads * seq * seq * dim,
        heads * seq * dim * tensor_spec.itemsize,
    )
    directions = ((FLASH, 2, 4), (f"{FLASH}_backward", 5, 8))
    for prepare, (op, count, tensors) in zip(preparations, directions, strict=True):
        traffic = tensors * tensor_bytes + 4 * heads * seq  # log-sum-exp of every row
        kernel = Kernel(op, shape, tensor_spec.dtype, count * product_flops, traffic)
        yield Case(kernel, partial(prepare, tensor_spec, heads, seq, dim))


def _operands(tensor_spec: TensorSpec, heads: int, seq: int, dim: int) -> Operands:
    """Query, key and value laid out as in a run.

    (seq, batch, heads, head_dim) in memory.
    """
    query, key, value = (
        tensor_spec.random(seq, 1, heads, dim).permute(1, 2, 0, 3) for _ in range(3)
    )
    return query, key, value


def _core_forward(tensor_spec: TensorSpec, *shape: int) -> KernelRun:
    run = aten._scaled_dot_product_flash_attention_for_cpu.default
    return partial(run, *_operands(tensor_spec, *shape), 0.0, True)


def _core_backward(tensor_spec: TensorSpec, *shape: int) -> KernelRun:
    operands = _operands(tensor_spec, *shape)
    forward = aten._scaled_dot_product_flash_attention_for_cpu.default
    out, log_sum = forward(*operands, 0.0, True)
    run = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    return partial(run, torch.randn_like(out), *operands, out, log_sum, 0.0, True)


def _forward(tensor_spec: TensorSpec, *shape: int) -> KernelRun:
    operands = _operands(tensor_spec, *shape)
    return _cudnn(operands) if _takes_cudnn(operands) else _flash(operands)


def _backward(tensor_spec: TensorSpec, *shape: int) -> KernelRun:
    operands = _operands(tensor_spec, *shape)
    return _cudnn_backward(operands) if _takes_cudnn(operands) else _flash_backward(operands)


def _takes_cudnn(operands: Operands) -> bool:
    """True if torch, asked as kernels.attention does in training, chooses cuDNN.

    Its other choices end in its flash kernel there, for kernels that keep scores are excluded.
    """
    query, key, value = (operand.detach().requires_grad_() for operand in operands)
    choice = torch._fused_sdp_choice(query, key, value, None, 0.0, True, enable_gqa=False)
    return choice == SDPBackend.CUDNN_ATTENTION.value


def _flash(operands: Operands) -> Callable[[], Any]:
    run = aten._scaled_dot_product_flash_attention.default
    return partial(run, *operands, 0.0, True, False)


def _flash_backward(operands: Operands) -> KernelRun:
    out, log_sum, query_ends, key_ends, queries, keys, seed, offset, _ = _flash(operands)()
    run = aten._scaled_dot_product_flash_attention_backward.default
    lengths = (query_ends, key_ends, queries, keys)
    grad = torch.randn_like(out)
    return partial(run, grad, *operands, out, log_sum, *lengths, 0.0, True, seed, offset)


def _cudnn(operands: Operands) -> Callable[[], Any]:
    run = aten._scaled_dot_product_cudnn_attention.default
    return partial(run, *operands, None, True, 0.0, True, False)


def _cudnn_backward(operands: Operands) -> KernelRun:
    out, log_sum, query_ends, key_ends, queries, keys, seed, offset, _ = _cudnn(operands)()
    run = aten._scaled_dot_product_cudnn_attention_backward.default
    lengths = (query_ends, key_ends, queries, keys)
    grad = torch.randn_like(out)
    return partial(run, grad, *operands, out, log_sum, seed, offset, None, *lengths, 0.0, True)
