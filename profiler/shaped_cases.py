"""Cases whose time follows several sizes: matrix products and flash attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

from ..spec.kernels import FLASH, Kernel
from .case import Case, Place, Run
from .sizes import Sizes

FLASH_TYPES = ("bf16", "fp16")
"""Types of a GPU's flash kernels; a core's take fp32, too."""


def products(sizes: Sizes, place: Place) -> Iterator[Case]:
    """Matrix products (m, k) · (k, n), the right side transposed as a weight is."""
    for m, k, n in product(sizes.sides, repeat=3):
        traffic = (m * k + k * n + m * n) * place.itemsize
        kernel = Kernel("matmul", (m, k, n), place.dtype, 2 * m * k * n, traffic)
        yield Case(kernel, partial(_product, place, m, k, n))


def _product(place: Place, m: int, k: int, n: int) -> Run:
    return partial(place.random(m, k).mm, place.random(n, k).t())


def batched_products(sizes: Sizes, place: Place) -> Iterator[Case]:
    """The products of unfused attention, scores and mix."""
    for batch, seq, dim in product(sizes.heads, sizes.score_sequences, sizes.head_dims):
        traffic = (2 * batch * seq * dim + batch * seq * seq) * place.itemsize
        flops = 2 * batch * seq * seq * dim
        up = Kernel("batched_matmul", (batch, seq, dim, seq), place.dtype, flops, traffic)
        yield Case(up, partial(_scores, place, batch, seq, dim))
        down = Kernel("batched_matmul", (batch, seq, seq, dim), place.dtype, flops, traffic)
        yield Case(down, partial(_mix, place, batch, seq, dim))


def _scores(place: Place, batch: int, seq: int, dim: int) -> Run:
    query = place.random(batch, seq, dim)
    return partial(query.bmm, query.transpose(1, 2))


def _mix(place: Place, batch: int, seq: int, dim: int) -> Run:
    return partial(place.random(batch, seq, seq).bmm, place.random(batch, seq, dim))


def attention(sizes: Sizes, place: Place) -> Iterator[Case]:
    """Causal flash attention, forward and backward."""
    on_core = place.device.type == "cpu"
    if not on_core and place.dtype not in FLASH_TYPES:
        return
    ways = (_core_forward, _core_backward) if on_core else (_forward, _backward)
    for heads, seq, dim in product(sizes.heads, sizes.sequences, sizes.head_dims):
        shape = (1, heads, heads, seq, dim)
        one, tensor_bytes = 2 * heads * seq * seq * dim, heads * seq * dim * place.itemsize
        works = ((FLASH, 2, 4), (f"{FLASH}_backward", 5, 8))
        for prepare, (op, count, tensors) in zip(ways, works, strict=True):
            traffic = tensors * tensor_bytes + 4 * heads * seq  # log-sum-exp of every row
            kernel = Kernel(op, shape, place.dtype, count * one, traffic)
            yield Case(kernel, partial(prepare, place, heads, seq, dim))


def _operands(place: Place, heads: int, seq: int, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value."""
    query, key, value = (place.random(1, heads, seq, dim) for _ in range(3))
    return query, key, value


def _core_forward(place: Place, *shape: int) -> Run:
    run = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    return partial(run, *_operands(place, *shape), 0.0, True)


def _core_backward(place: Place, *shape: int) -> Run:
    operands = _operands(place, *shape)
    forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    out, log_sum = forward(*operands, 0.0, True)
    run = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    return partial(run, torch.randn_like(out), *operands, out, log_sum, 0.0, True)


def _forward(place: Place, *shape: int) -> Run:
    return _flash(_operands(place, *shape))


def _flash(operands: tuple[Tensor, Tensor, Tensor]) -> Callable[[], Any]:
    run = torch.ops.aten._scaled_dot_product_flash_attention.default
    return partial(run, *operands, 0.0, True, False)


def _backward(place: Place, *shape: int) -> Run:
    operands = _operands(place, *shape)
    out, log_sum, query_ends, key_ends, queries, keys, seed, offset, _ = _flash(operands)()
    run = torch.ops.aten._scaled_dot_product_flash_attention_backward.default
    lengths = (query_ends, key_ends, queries, keys)
    grad = torch.randn_like(out)
    return partial(run, grad, *operands, out, log_sum, *lengths, 0.0, True, seed, offset)
