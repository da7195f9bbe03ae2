"""Cases whose time follows the bytes they move: the library's passes over memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple
from weakref import WeakValueDictionary

import torch
from torch.nn import functional as F

from ...spec.report.work_items import Kernel
from .case import Case, KernelRun, TensorSpec, random_tensor
from .sizes import Sizes

aten = torch.ops.aten


class RowOperands(NamedTuple):
    """Activations of a case: (rows, width), and the rows of an indexed table."""

    rows: int
    width: int
    vocab: int
    tensor_spec: TensorSpec

    @property
    def full_bytes(self) -> int:
        """Of the activations."""
        return self.rows * self.width * self.tensor_spec.itemsize

    @property
    def statistics_bytes(self) -> int:
        """Of one fp32 number a row."""
        return 4 * self.rows

    @property
    def column_bytes(self) -> int:
        """Of one element a row."""
        return self.rows * self.tensor_spec.itemsize

    @property
    def scale_bytes(self) -> int:
        """Of one element a column, as a norm's weight."""
        return self.width * self.tensor_spec.itemsize

    @property
    def table_bytes(self) -> int:
        """Of the indexed table."""
        return self.vocab * self.width * self.tensor_spec.itemsize

    def random(self) -> torch.Tensor:
        """Activations."""
        return self.tensor_spec.random(self.rows, self.width)

    def scale(self) -> torch.Tensor:
        """One element a column."""
        return self.tensor_spec.random(self.width)

    def tokens(self) -> torch.Tensor:
        """A row of the table for each row."""
        return torch.randint(0, self.vocab, (self.rows,), device=self.tensor_spec.device)


class MemoryBoundOp(NamedTuple):
    """A pass over memory: its name, the bytes that it reads and writes, and its operands."""

    op: str
    traffic_bytes: Callable[[RowOperands], int]
    prepare: Callable[[RowOperands], KernelRun]


def op_cases(listed: tuple[MemoryBoundOp, ...], rows: RowOperands) -> Iterator[Case]:
    """A case for each; the shape of a pass is the elements of its largest operand."""
    for item in listed:
        shape = (rows.rows * rows.width,)
        kernel = Kernel(item.op, shape, rows.tensor_spec.dtype, 0, item.traffic_bytes(rows))
        yield Case(kernel, partial(item.prepare, rows))


def memory_bound_cases(rows: int, sizes: Sizes, tensor_spec: TensorSpec) -> Iterator[Case]:
    """Elementwise operations, reductions and indexed ones over so many rows."""
    return op_cases(MEMORY_BOUND_OPS, RowOperands(rows, sizes.width, sizes.vocab, tensor_spec))


def _passes(count: int) -> Callable[[RowOperands], int]:
    return lambda rows: count * rows.full_bytes


def _one(run: Callable[[torch.Tensor], object]) -> Callable[[RowOperands], KernelRun]:
    return lambda rows: partial(run, rows.random())


def _two(run: Callable[[torch.Tensor, torch.Tensor], object]) -> Callable[[RowOperands], KernelRun]:
    return lambda rows: partial(run, rows.random(), rows.random())


def _cast(rows: RowOperands) -> KernelRun:
    """To the case's type from the other one: bf16 and fp32 are two and four bytes."""
    other = torch.bfloat16 if rows.tensor_spec.itemsize == 4 else torch.float32
    return partial(rows.random().to(other).to, rows.tensor_spec.torch_dtype)


def _addcmul(rows: RowOperands) -> KernelRun:
    return partial(torch.addcmul, rows.random(), rows.random(), rows.random())


def _subtract(rows: RowOperands) -> KernelRun:
    """A number of each row, as a softmax takes off its maximum."""
    return partial(torch.sub, rows.random(), rows.tensor_spec.random(rows.rows, 1))


def _layer_norm(rows: RowOperands) -> KernelRun:
    return partial(F.layer_norm, rows.random(), (rows.width,), rows.scale(), rows.scale())


def _layer_norm_backward(rows: RowOperands) -> KernelRun:
    x, weight, bias = rows.random(), rows.scale(), rows.scale()
    out, mean, inverse = torch.native_layer_norm(x, [rows.width], weight, bias, 1e-5)
    arguments = (x, out, [rows.width], mean, inverse, weight, bias, [True, True, True])
    return partial(aten.native_layer_norm_backward, *arguments)


def _softmax_backward(rows: RowOperands) -> KernelRun:
    x = rows.random()
    return partial(torch._softmax_backward_data, x, torch.softmax(x, -1), -1, x.dtype)


_TABLES: WeakValueDictionary[tuple[int, int, TensorSpec], torch.Tensor] = WeakValueDictionary()
"""Tables that prepared cases hold."""


def _embedding(rows: RowOperands) -> KernelRun:
    """Tokens of its own, and the table of every copy that is prepared: it is read in few places.

    Copies that miss the cache are counted by what a run touches; as many tables fill a device.
    """
    key = (rows.vocab, rows.width, rows.tensor_spec)
    table = _TABLES.get(key)
    if table is None:
        table = _TABLES[key] = rows.tensor_spec.random(rows.vocab, rows.width)
    return partial(F.embedding, rows.tokens(), table)


def _embedding_backward(rows: RowOperands) -> KernelRun:
    run = aten.embedding_dense_backward
    return partial(run, rows.random(), rows.tokens(), rows.vocab, -1, False)


def _to_column(rows: RowOperands) -> int:
    return rows.full_bytes + rows.column_bytes


def _norm(passes: int, scales: int) -> Callable[[RowOperands], int]:
    """Activations, mean and inverse deviation of each row, weight and bias (and gradients)."""
    return lambda r: passes * r.full_bytes + 2 * r.statistics_bytes + scales * r.scale_bytes


MEMORY_BOUND_OPS = (
    MemoryBoundOp("add", _passes(3), _two(torch.add)),
    MemoryBoundOp("mul", _passes(3), _two(torch.mul)),
    MemoryBoundOp("addcmul", _passes(4), _addcmul),
    MemoryBoundOp("copy", _passes(2), _one(torch.clone)),
    MemoryBoundOp("cast", lambda rows: 6 * rows.rows * rows.width, _cast),
    MemoryBoundOp("div", _passes(2), _one(lambda x: x / 1.0)),
    MemoryBoundOp("sub", lambda rows: 2 * rows.full_bytes + rows.column_bytes, _subtract),
    MemoryBoundOp("exp", _passes(2), _one(torch.exp)),
    MemoryBoundOp("silu", _passes(2), _one(F.silu)),
    MemoryBoundOp("silu_backward", _passes(3), _two(aten.silu_backward)),
    MemoryBoundOp("gelu", _passes(2), _one(partial(F.gelu, approximate="tanh"))),
    MemoryBoundOp(
        "gelu_backward", _passes(3), _two(partial(aten.gelu_backward, approximate="tanh"))
    ),
    MemoryBoundOp(
        "row_norm", _to_column, _one(partial(torch.linalg.vector_norm, dim=-1, keepdim=True))
    ),
    MemoryBoundOp("mean", _to_column, _one(lambda x: x.mean(-1, keepdim=True))),
    MemoryBoundOp("sum", lambda rows: rows.full_bytes + rows.scale_bytes, _one(lambda x: x.sum(0))),
    MemoryBoundOp("amax", _to_column, _one(lambda x: x.amax(-1, keepdim=True))),
    MemoryBoundOp("softmax", _passes(2), _one(partial(torch.softmax, dim=-1))),
    MemoryBoundOp("softmax_backward", _passes(3), _softmax_backward),
    MemoryBoundOp("layer_norm", _norm(2, 2), _layer_norm),
    MemoryBoundOp("layer_norm_backward", _norm(3, 4), _layer_norm_backward),
    MemoryBoundOp("embedding", _passes(2), _embedding),
    MemoryBoundOp(
        "embedding_backward",
        lambda rows: rows.full_bytes + rows.table_bytes + 8 * rows.rows,
        _embedding_backward,
    ),
)


def optimizer(elements: int, tensor_spec: TensorSpec) -> Iterator[Case]:
    """Norm, clipping and AdamW over one parameter; all in fp32."""
    size = 4 * elements
    for op, passes, prepare in (
        ("fused_adamw", 7, _adamw),
        ("foreach_norm", 1, _all_norm),
        ("foreach_mul", 2, _clip),
    ):
        kernel = Kernel(op, (elements,), "fp32", 0, passes * size)
        yield Case(kernel, partial(prepare, elements, tensor_spec.device))


def _flat(elements: int, device: torch.device) -> torch.Tensor:
    return random_tensor((elements,), torch.float32, device)


def _adamw(elements: int, device: torch.device) -> KernelRun:
    """The kernel of the optimizer's step, without the Python around it."""
    parameter, grad, first = (_flat(elements, device) for _ in range(3))
    lists = [[parameter], [grad], [first], [first.square()], [], [torch.ones((), device=device)]]
    return partial(
        torch._fused_adamw_,
        *lists,
        amsgrad=False,
        lr=1e-6,
        beta1=0.9,
        beta2=0.999,
        weight_decay=0.01,
        eps=1e-8,
        maximize=False,
    )


def _all_norm(elements: int, device: torch.device) -> KernelRun:
    return partial(torch._foreach_norm, [_flat(elements, device)], 2)


def _clip(elements: int, device: torch.device) -> KernelRun:
    return partial(torch._foreach_mul_, [_flat(elements, device)], 1.0)
