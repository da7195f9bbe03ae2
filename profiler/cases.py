"""What is timed: every kernel that the executor's layers run, over a range of sizes.

A case is a kernel as the lowering names it and a function that runs it on fresh data; outputs
are allocated as a training step allocates them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ..spec.kernels import Kernel

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
WIDTH = 256
"""Row width of the reducing and normalising cases."""


class Case(NamedTuple):
    """A kernel and how to run it; ``first`` where it is the only one of its kind so far."""

    kernel: Kernel
    run: Callable[[], object]
    first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How finely sizes are covered: products' sides, elements, attention's shapes."""

    sides: tuple[int, ...]
    elements: tuple[int, ...]
    heads: tuple[int, ...]
    sequences: tuple[int, ...]
    head_dims: tuple[int, ...]

    def middle(self) -> Sizes:
        """One size of each, the lower middle one."""
        return Sizes(**{f.name: _middle(getattr(self, f.name)) for f in fields(self)})


def _middle(ascending: tuple[int, ...]) -> tuple[int, ...]:
    return (ascending[(len(ascending) - 1) // 2],)


COARSE = Sizes(
    sides=(64, 256, 1024),
    elements=(2**12, 2**16, 2**20),
    heads=(8,),
    sequences=(128, 512),
    head_dims=(32, 64),
)
FINE = Sizes(
    sides=(48, 96, 192, 384, 768, 1536),
    elements=(2**10, 2**12, 2**14, 2**16, 2**18, 2**20, 2**22),
    heads=(4, 16),
    sequences=(64, 128, 256, 512, 1024),
    head_dims=(32, 64, 128),
)


def all_cases(sizes: Sizes, dtypes: Sequence[str]) -> Iterator[Case]:
    """Every case once: one size of every kind first, then those that matter most."""
    seen: set[Kernel] = set()
    for part in (sizes.middle(), sizes):
        for dtype in dtypes:
            for case in _cases(part, dtype):
                if case.kernel not in seen:
                    seen.add(case.kernel)
                    yield case._replace(first=part is not sizes)


def _cases(sizes: Sizes, dtype: str) -> Iterator[Case]:
    yield from products(sizes, dtype)
    yield from attention(sizes, dtype)
    for elements in sizes.elements:
        yield from elementwise(elements, dtype)
        yield from optimizer(elements)
    yield from batched_products(sizes, dtype)


def products(sizes: Sizes, dtype: str) -> Iterator[Case]:
    """Matrix products (m, k) · (k, n), the right side transposed as a weight is."""
    kind = DTYPES[dtype]
    size = kind.itemsize
    for m in sizes.sides:
        for k in sizes.sides:
            for n in sizes.sides:
                left, right = torch.randn(m, k, dtype=kind), torch.randn(n, k, dtype=kind)
                traffic = (m * k + k * n + m * n) * size
                kernel = Kernel("matmul", (m, k, n), dtype, 2 * m * k * n, traffic)
                yield Case(kernel, partial(left.mm, right.t()))


def batched_products(sizes: Sizes, dtype: str) -> Iterator[Case]:
    """The products of unfused attention, scores and mix."""
    kind = DTYPES[dtype]
    for batch in sizes.heads:
        for seq in sizes.sequences:
            for dim in sizes.head_dims:
                query = torch.randn(batch, seq, dim, dtype=kind)
                scores = torch.randn(batch, seq, seq, dtype=kind)
                traffic = (2 * query.numel() + scores.numel()) * kind.itemsize
                flops = 2 * batch * seq * seq * dim
                up = Kernel("batched_matmul", (batch, seq, dim, seq), dtype, flops, traffic)
                yield Case(up, partial(query.bmm, query.transpose(1, 2)))
                down = Kernel("batched_matmul", (batch, seq, seq, dim), dtype, flops, traffic)
                yield Case(down, partial(scores.bmm, query))


def attention(sizes: Sizes, dtype: str) -> Iterator[Case]:
    """Causal flash attention, forward and backward."""
    kind = DTYPES[dtype]
    for heads in sizes.heads:
        for seq in sizes.sequences:
            for dim in sizes.head_dims:
                query = torch.randn(1, heads, seq, dim, dtype=kind)
                shape = (1, heads, heads, seq, dim)
                product = 2 * heads * seq * seq * dim
                tensor_bytes = query.numel() * kind.itemsize
                name = "flash_attention"
                forward = Kernel(name, shape, dtype, 2 * product, 4 * tensor_bytes)
                run = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
                yield Case(forward, partial(run, query, query, query, 0.0, True))
                out, log_sum = run(query, query, query, 0.0, True)
                back = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default
                arguments = (out, query, query, query, out, log_sum, 0.0, True)
                kernel = Kernel(name + "_backward", shape, dtype, 5 * product, 8 * tensor_bytes)
                yield Case(kernel, partial(back, *arguments))


def elementwise(elements: int, dtype: str) -> Iterator[Case]:
    """Operations whose time follows the bytes they move."""
    kind = DTYPES[dtype]
    rows = max(1, elements // WIDTH)
    x, y = (torch.randn(rows, WIDTH, dtype=kind) for _ in range(2))
    column = torch.rand(rows, 1)
    weight, bias = torch.rand(WIDTH, dtype=kind), torch.rand(WIDTH, dtype=kind)
    full, n = x.numel() * kind.itemsize, x.numel()

    def case(op: str, traffic: int, run: Callable[[], object]) -> Case:
        return Case(Kernel(op, (n,), dtype, 0, traffic), run)

    yield case("add", 3 * full, lambda: x + y)
    yield case("mul", 3 * full, lambda: x * y)
    yield case("addcmul", 4 * full, lambda: torch.addcmul(x, x, y))
    yield case("copy", 2 * full, lambda: x.clone())
    yield case("div", 2 * full, lambda: x / 1.0)
    yield case("sub", 2 * full, lambda: x - column)
    yield case("exp", 2 * full, lambda: torch.exp(x))
    yield case("silu", 2 * full, lambda: F.silu(x))
    yield case("silu_backward", 3 * full, lambda: torch.ops.aten.silu_backward(x, y))
    yield case("gelu", 2 * full, lambda: F.gelu(x, approximate="tanh"))
    yield case(
        "gelu_backward", 3 * full, lambda: torch.ops.aten.gelu_backward(x, y, approximate="tanh")
    )
    yield from _reductions(case, x, weight, bias, full)
    yield from _indexed(case, elements, dtype)


def _reductions(
    case: Callable[[str, int, Callable[[], object]], Case],
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    full: int,
) -> Iterator[Case]:
    """Operations along rows."""
    rows_bytes = 4 * x.shape[0]
    out, mean, inverse = torch.native_layer_norm(x, [WIDTH], weight, bias, 1e-5)
    yield case("row_norm", full, lambda: torch.linalg.vector_norm(x, dim=-1, keepdim=True))
    yield case("mean", full, lambda: x.mean(-1, keepdim=True))
    yield case("sum", full, lambda: x.sum(0))
    yield case("amax", full, lambda: x.amax(-1, keepdim=True))
    yield case("softmax", 2 * full, lambda: torch.softmax(x, -1))
    backward = torch._softmax_backward_data
    yield case("softmax_backward", 3 * full, lambda: backward(x, out, -1, x.dtype))
    traffic = 2 * full + 2 * rows_bytes
    yield case("layer_norm", traffic, lambda: F.layer_norm(x, (WIDTH,), weight, bias))
    arguments = (x, out, [WIDTH], mean, inverse, weight, bias, [True, True, True])
    yield case(
        "layer_norm_backward",
        3 * full + 2 * rows_bytes,
        lambda: torch.ops.aten.native_layer_norm_backward(*arguments),
    )


def _indexed(
    case: Callable[[str, int, Callable[[], object]], Case], elements: int, dtype: str
) -> Iterator[Case]:
    """Embedding rows, forward and backward."""
    rows = max(1, elements // WIDTH)
    kind = DTYPES[dtype]
    table = torch.randn(4096, WIDTH, dtype=kind)
    tokens = torch.randint(0, 4096, (rows,))
    grad = torch.randn(rows, WIDTH, dtype=kind)
    full = grad.numel() * kind.itemsize
    yield case("embedding", 2 * full, lambda: F.embedding(tokens, table))
    backward = torch.ops.aten.embedding_dense_backward
    traffic = full + table.numel() * kind.itemsize
    yield case("embedding_backward", traffic, lambda: backward(grad, tokens, 4096, -1, False))


def optimizer(elements: int) -> Iterator[Case]:
    """Norm, clipping and AdamW over one parameter; all in fp32."""
    parameter = torch.nn.Parameter(torch.randn(elements))
    parameter.grad = torch.randn(elements)
    adamw = torch.optim.AdamW([parameter], fused=True)
    size = 4 * elements
    grads = [parameter.grad]

    def case(op: str, traffic: int, run: Callable[[], object]) -> Case:
        return Case(Kernel(op, (elements,), "fp32", 0, traffic), run)

    yield case("fused_adamw", 7 * size, adamw.step)
    yield case("foreach_norm", size, lambda: torch._foreach_norm(grads, 2))
    yield case("foreach_mul", 2 * size, lambda: torch._foreach_mul_(grads, 1.0))
