"""Cases whose time follows the bytes they move: the library's passes over memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple
from weakref import WeakValueDictionary

import torch
from torch.nn import functional as F

from ...spec.report.work_items import Kernel
from .case import Case, Place, Run, drawn
from .sizes import Sizes

aten = torch.ops.aten


class Rows(NamedTuple):
    """Activations of a case: (rows, width), and the rows of an indexed table."""

    rows: int
    width: int
    vocab: int
    place: Place

    @property
    def full_bytes(self) -> int:
        """Of the activations."""
        return self.rows * self.width * self.place.itemsize

    @property
    def statistics_bytes(self) -> int:
        """Of one fp32 number a row."""
        return 4 * self.rows

    @property
    def column_bytes(self) -> int:
        """Of one element a row."""
        return self.rows * self.place.itemsize

    @property
    def scale_bytes(self) -> int:
        """Of one element a column, as a norm's weight."""
        return self.width * self.place.itemsize

    @property
    def table_bytes(self) -> int:
        """Of the indexed table."""
        return self.vocab * self.width * self.place.itemsize

    def random(self) -> torch.Tensor:
        """Activations."""
        return self.place.random(self.rows, self.width)

    def scale(self) -> torch.Tensor:
        """One element a column."""
        return self.place.random(self.width)

    def tokens(self) -> torch.Tensor:
        """A row of the table for each row."""
        return torch.randint(0, self.vocab, (self.rows,), device=self.place.device)


class Streamed(NamedTuple):
    """A pass over memory: its name, the bytes that it reads and writes, and its operands."""

    op: str
    traffic_bytes: Callable[[Rows], int]
    prepare: Callable[[Rows], Run]


def cases_of(listed: tuple[Streamed, ...], rows: Rows) -> Iterator[Case]:
    """A case for each; the shape of a pass is the elements of its largest operand."""
    for item in listed:
        shape = (rows.rows * rows.width,)
        kernel = Kernel(item.op, shape, rows.place.dtype, 0, item.traffic_bytes(rows))
        yield Case(kernel, partial(item.prepare, rows))


def streamed(rows: int, sizes: Sizes, place: Place) -> Iterator[Case]:
    """Elementwise operations, reductions and indexed ones over so many rows."""
    return cases_of(STREAMED, Rows(rows, sizes.width, sizes.vocab, place))


def _passes(count: int) -> Callable[[Rows], int]:
    return lambda rows: count * rows.full_bytes


def _one(run: Callable[[torch.Tensor], object]) -> Callable[[Rows], Run]:
    return lambda rows: partial(run, rows.random())


def _two(run: Callable[[torch.Tensor, torch.Tensor], object]) -> Callable[[Rows], Run]:
    return lambda rows: partial(run, rows.random(), rows.random())


def _cast(rows: Rows) -> Run:
    """To the case's type from the other one: bf16 and fp32 are two and four bytes."""
    other = torch.bfloat16 if rows.place.itemsize == 4 else torch.float32
    return partial(rows.random().to(other).to, rows.place.kind)


def _addcmul(rows: Rows) -> Run:
    return partial(torch.addcmul, rows.random(), rows.random(), rows.random())


def _subtract(rows: Rows) -> Run:
    """A number of each row, as a softmax takes off its maximum."""
    return partial(torch.sub, rows.random(), rows.place.random(rows.rows, 1))


def _layer_norm(rows: Rows) -> Run:
    return partial(F.layer_norm, rows.random(), (rows.width,), rows.scale(), rows.scale())


def _layer_norm_backward(rows: Rows) -> Run:
    x, weight, bias = rows.random(), rows.scale(), rows.scale()
    out, mean, inverse = torch.native_layer_norm(x, [rows.width], weight, bias, 1e-5)
    arguments = (x, out, [rows.width], mean, inverse, weight, bias, [True, True, True])
    return partial(aten.native_layer_norm_backward, *arguments)


def _softmax_backward(rows: Rows) -> Run:
    x = rows.random()
    return partial(torch._softmax_backward_data, x, torch.softmax(x, -1), -1, x.dtype)


_TABLES: WeakValueDictionary[tuple[int, int, Place], torch.Tensor] = WeakValueDictionary()
"""Tables that prepared cases hold."""


def _embedding(rows: Rows) -> Run:
    """Tokens of its own, and the table of every copy that is prepared: it is read in few places.

    Copies that miss the cache are counted by what a run touches; as many tables fill a device.
    """
    key = (rows.vocab, rows.width, rows.place)
    table = _TABLES.get(key)
    if table is None:
        table = _TABLES[key] = rows.place.random(rows.vocab, rows.width)
    return partial(F.embedding, rows.tokens(), table)


def _embedding_backward(rows: Rows) -> Run:
    run = aten.embedding_dense_backward
    return partial(run, rows.random(), rows.tokens(), rows.vocab, -1, False)


def _to_column(rows: Rows) -> int:
    return rows.full_bytes + rows.column_bytes


def _norm(passes: int, scales: int) -> Callable[[Rows], int]:
    """Activations, mean and inverse deviation of each row, weight and bias (and gradients)."""
    return lambda r: passes * r.full_bytes + 2 * r.statistics_bytes + scales * r.scale_bytes


STREAMED = (
    Streamed("add", _passes(3), _two(torch.add)),
    Streamed("mul", _passes(3), _two(torch.mul)),
    Streamed("addcmul", _passes(4), _addcmul),
    Streamed("copy", _passes(2), _one(torch.clone)),
    Streamed("cast", lambda rows: 6 * rows.rows * rows.width, _cast),
    Streamed("div", _passes(2), _one(lambda x: x / 1.0)),
    Streamed("sub", lambda rows: 2 * rows.full_bytes + rows.column_bytes, _subtract),
    Streamed("exp", _passes(2), _one(torch.exp)),
    Streamed("silu", _passes(2), _one(F.silu)),
    Streamed("silu_backward", _passes(3), _two(aten.silu_backward)),
    Streamed("gelu", _passes(2), _one(partial(F.gelu, approximate="tanh"))),
    Streamed("gelu_backward", _passes(3), _two(partial(aten.gelu_backward, approximate="tanh"))),
    Streamed("row_norm", _to_column, _one(partial(torch.linalg.vector_norm, dim=-1, keepdim=True))),
    Streamed("mean", _to_column, _one(lambda x: x.mean(-1, keepdim=True))),
    Streamed("sum", lambda rows: rows.full_bytes + rows.scale_bytes, _one(lambda x: x.sum(0))),
    Streamed("amax", _to_column, _one(lambda x: x.amax(-1, keepdim=True))),
    Streamed("softmax", _passes(2), _one(partial(torch.softmax, dim=-1))),
    Streamed("softmax_backward", _passes(3), _softmax_backward),
    Streamed("layer_norm", _norm(2, 2), _layer_norm),
    Streamed("layer_norm_backward", _norm(3, 4), _layer_norm_backward),
    Streamed("embedding", _passes(2), _embedding),
    Streamed(
        "embedding_backward",
        lambda rows: rows.full_bytes + rows.table_bytes + 8 * rows.rows,
        _embedding_backward,
    ),
)


def optimizer(elements: int, place: Place) -> Iterator[Case]:
    """Norm, clipping and AdamW over one parameter; all in fp32."""
    size = 4 * elements
    for op, passes, prepare in (
        ("fused_adamw", 7, _adamw),
        ("foreach_norm", 1, _all_norm),
        ("foreach_mul", 2, _clip),
    ):
        kernel = Kernel(op, (elements,), "fp32", 0, passes * size)
        yield Case(kernel, partial(prepare, elements, place.device))


def _flat(elements: int, device: torch.device) -> torch.Tensor:
    return drawn((elements,), torch.float32, device)


def _adamw(elements: int, device: torch.device) -> Run:
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


def _all_norm(elements: int, device: torch.device) -> Run:
    return partial(torch._foreach_norm, [_flat(elements, device)], 2)


def _clip(elements: int, device: torch.device) -> Run:
    return partial(torch._foreach_mul_, [_flat(elements, device)], 1.0)
