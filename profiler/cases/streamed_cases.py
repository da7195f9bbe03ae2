"""Cases whose time depends on the bytes they move.

Torch's passes over memory.
"""

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
    """Activations of a case.

    (rows, width), and the rows of an indexed table.
    """

    rows: int
    width: int
    vocab: int
    tensor_spec: TensorSpec

    @property
    def full_bytes(self) -> int:
        """Bytes of the activations."""
        return self.rows * self.width * self.tensor_spec.itemsize

    @property
    def statistics_bytes(self) -> int:
        """Bytes of one fp32 number a row."""
        return 4 * self.rows

    @property
    def column_bytes(self) -> int:
        """Bytes of one element a row."""
        return self.rows * self.tensor_spec.itemsize

    @property
    def scale_bytes(self) -> int:
        """Bytes of one element a column, such as a norm's weight."""
        return self.width * self.tensor_spec.itemsize

    @property
    def table_bytes(self) -> int:
        """Bytes of the indexed table."""
        return self.vocab * self.width * self.tensor_spec.itemsize

    def random(self) -> torch.Tensor:
        """Random activations."""
        return self.tensor_spec.random(self.rows, self.width)

    def scale(self) -> torch.Tensor:
        """One element a column."""
        return self.tensor_spec.random(self.width)

    def tokens(self) -> torch.Tensor:
        """A row of the table for each row."""
        return torch.randint(0, self.vocab, (self.rows,), device=self.tensor_spec.device)


class MemoryBoundOp(NamedTuple):
    """A pass over memory.

    Its name, its traffic in bytes, and its operands.
    """

    op: str
    traffic_bytes: Callable[[RowOperands], int]
    prepare: Callable[[RowOperands], KernelRun]


def op_cases(ops: tuple[MemoryBoundOp, ...], operands: RowOperands) -> Iterator[Case]:
    """A case for each operation.

    The shape of a pass is the elements of its largest operand.
    """
    for op in ops:
        shape = (operands.rows * operands.width,)
        kernel = Kernel(op.op, shape, operands.tensor_spec.dtype, 0, op.traffic_bytes(operands))
        yield Case(kernel, partial(op.prepare, operands))


def memory_bound_cases(rows: int, sizes: Sizes, tensor_spec: TensorSpec) -> Iterator[Case]:
    """Elementwise, reducing and indexed operations over ``rows`` rows."""
    return op_cases(MEMORY_BOUND_OPS, RowOperands(rows, sizes.width, sizes.vocab, tensor_spec))


def _passes(count: int) -> Callable[[RowOperands], int]:
    return lambda operands: count * operands.full_bytes


def _unary(run: Callable[[torch.Tensor], object]) -> Callable[[RowOperands], KernelRun]:
    return lambda operands: partial(run, operands.random())


def _binary(
    run: Callable[[torch.Tensor, torch.Tensor], object],
) -> Callable[[RowOperands], KernelRun]:
    return lambda operands: partial(run, operands.random(), operands.random())


def _cast(operands: RowOperands) -> KernelRun:
    """To the case's type from the other one.

    bf16 and fp32 are two and four bytes.
    """
    other = torch.bfloat16 if operands.tensor_spec.itemsize == 4 else torch.float32
    return partial(operands.random().to(other).to, operands.tensor_spec.torch_dtype)


def _addcmul(operands: RowOperands) -> KernelRun:
    return partial(torch.addcmul, operands.random(), operands.random(), operands.random())


def _subtract(operands: RowOperands) -> KernelRun:
    return partial(torch.sub, operands.random(), operands.tensor_spec.random(operands.rows, 1))


def _layer_norm(operands: RowOperands) -> KernelRun:
    return partial(
        F.layer_norm, operands.random(), (operands.width,), operands.scale(), operands.scale()
    )


def _layer_norm_backward(operands: RowOperands) -> KernelRun:
    x, weight, bias = operands.random(), operands.scale(), operands.scale()
    out, mean, inverse = torch.native_layer_norm(x, [operands.width], weight, bias, 1e-5)
    arguments = (x, out, [operands.width], mean, inverse, weight, bias, [True, True, True])
    return partial(aten.native_layer_norm_backward, *arguments)


def _softmax_backward(operands: RowOperands) -> KernelRun:
    x = operands.random()
    return partial(torch._softmax_backward_data, x, torch.softmax(x, -1), -1, x.dtype)


_TABLES: WeakValueDictionary[tuple[int, int, TensorSpec], torch.Tensor] = WeakValueDictionary()
"""Tables of prepared cases."""


def _embedding(operands: RowOperands) -> KernelRun:
    """Fresh tokens, and one table for all prepared copies.

    The number of copies that miss the cache follows from the bytes of a run; as many tables would
    fill a device.
    """
    key = (operands.vocab, operands.width, operands.tensor_spec)
    table = _TABLES.get(key)
    if table is None:
        table = _TABLES[key] = operands.tensor_spec.random(operands.vocab, operands.width)
    return partial(F.embedding, operands.tokens(), table)


def _embedding_backward(operands: RowOperands) -> KernelRun:
    run = aten.embedding_dense_backward
    return partial(run, operands.random(), operands.tokens(), operands.vocab, -1, False)


def _to_column(operands: RowOperands) -> int:
    return operands.full_bytes + operands.column_bytes


def _norm(passes: int, scales: int) -> Callable[[RowOperands], int]:
    return lambda operands: (
        passes * operands.full_bytes + 2 * operands.statistics_bytes + scales * operands.scale_bytes
    )


MEMORY_BOUND_OPS = (
    MemoryBoundOp("add", _passes(3), _binary(torch.add)),
    MemoryBoundOp("mul", _passes(3), _binary(torch.mul)),
    MemoryBoundOp("addcmul", _passes(4), _addcmul),
    MemoryBoundOp("copy", _passes(2), _unary(torch.clone)),
    MemoryBoundOp("cast", lambda operands: 6 * operands.rows * operands.width, _cast),
    MemoryBoundOp("div", _passes(2), _unary(lambda x: x / 1.0)),
    MemoryBoundOp(
        "sub", lambda operands: 2 * operands.full_bytes + operands.column_bytes, _subtract
    ),
    MemoryBoundOp("exp", _passes(2), _unary(torch.exp)),
    MemoryBoundOp("silu", _passes(2), _unary(F.silu)),
    MemoryBoundOp("silu_backward", _passes(3), _binary(aten.silu_backward)),
    MemoryBoundOp("gelu", _passes(2), _unary(partial(F.gelu, approximate="tanh"))),
    MemoryBoundOp(
        "gelu_backward", _passes(3), _binary(partial(aten.gelu_backward, approximate="tanh"))
    ),
    MemoryBoundOp(
        "row_norm", _to_column, _unary(partial(torch.linalg.vector_norm, dim=-1, keepdim=True))
    ),
    MemoryBoundOp("mean", _to_column, _unary(lambda x: x.mean(-1, keepdim=True))),
    MemoryBoundOp(
        "sum",
        lambda operands: operands.full_bytes + operands.scale_bytes,
        _unary(lambda x: x.sum(0)),
    ),
    MemoryBoundOp("amax", _to_column, _unary(lambda x: x.amax(-1, keepdim=True))),
    MemoryBoundOp("softmax", _passes(2), _unary(partial(torch.softmax, dim=-1))),
    MemoryBoundOp("softmax_backward", _passes(3), _softmax_backward),
    MemoryBoundOp("layer_norm", _norm(2, 2), _layer_norm),
    MemoryBoundOp("layer_norm_backward", _norm(3, 4), _layer_norm_backward),
    MemoryBoundOp("embedding", _passes(2), _embedding),
    MemoryBoundOp(
        "embedding_backward",
        lambda operands: operands.full_bytes + operands.table_bytes + 8 * operands.rows,
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
