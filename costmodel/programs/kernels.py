"""Lowered kernels as programs: tiled nests of products, attention, scans, and streamed passes.

A tile is what one multiprocessor computes at a time; loops over tiles are parallel, loops inside a
matrix instruction are of kind ``tensor``. What a kernel's name says of its operations is in
:data:`PASSES`; an unknown elementwise kernel is one pass of one addition.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ...spec.report.work_items import (
    ATTENTIONS,
    FLASH,
    FLASH_BAND,
    FUSED,
    FUSED_GATED,
    GROUPED,
    SCANS,
    WEIGHT_GRADIENT,
    Kernel,
    computed_fraction,
)
from .nest import Access, Leaf, Loop, Program, counts

TILE, DEPTH, LANES = 128, 64, 8
"""Rows and columns of a tile, its step along the sum, values a thread moves at once."""
VALUE_BYTES: Mapping[str, float] = {
    **dict.fromkeys(("fp32", "int32", "tf32"), 4.0),
    **dict.fromkeys(("fp8", "int8", "bool"), 1.0),
    "fp64": 8.0,
    "int64": 8.0,
    "nvfp4": 0.5625,
}
"""Bytes a value by format; 2 for those not named."""
ROW = 4096
"""Values of a row of a streamed kernel, whose shape keeps elements only."""


class Pass(NamedTuple):
    """A pass over all elements; ``reduces``: along rows."""

    operations: tuple[float, ...]
    reduces: bool = False


_MOVE, _ONE = Pass(counts()), Pass(counts(add=1))
_SUM, _APPLY = Pass(counts(add=1, mul=1), reduces=True), Pass(counts(mul=2, add=1))
_GATE = Pass(counts(mul=2, add=1, div=1, special=1))
_SOFTMAX = (
    Pass(counts(compare=1), reduces=True),
    Pass(counts(add=2, special=1), reduces=True),
    Pass(counts(div=1)),
)
PASSES: Mapping[str, tuple[Pass, ...]] = {
    **dict.fromkeys(("copy", "gather", "permute", "zeros", "ones", "embedding"), (_MOVE,)),
    "cast": (Pass(counts(cast=1)),),
    **dict.fromkeys(("mul", "div", "addcmul", "rope"), (Pass(counts(mul=2, add=1)),)),
    **dict.fromkeys(("exp", "log", "tanh", "sigmoid", "rsqrt", "pow"), (Pass(counts(special=1)),)),
    **dict.fromkeys(("silu", "gelu", "swiglu", "geglu", "bias_gelu", "weighted_swiglu"), (_GATE,)),
    **dict.fromkeys(("sum", "mean", "amax", "row_norm", "foreach_norm"), (_SUM,)),
    **dict.fromkeys(("layer_norm", "rms_norm", "gated_norm"), (_SUM, _APPLY)),
    **dict.fromkeys(("softmax", "masked_softmax", "cross_entropy"), _SOFTMAX),
    **dict.fromkeys(("permute", "unpermute", "scatter_add"), (Pass(counts(add=1, exchange=1)),)),
    **dict.fromkeys(("fused_adamw", "fused_adam"), (Pass(counts(mul=6, add=4, div=1, special=1)),)),
}
"""Passes by the name of a kernel's forward."""


def passes_of(op: str) -> tuple[Pass, ...]:
    """Passes of a streamed kernel, forward or backward."""
    return PASSES.get(op.removesuffix("_backward"), (_ONE,))


def program_of(kernel: Kernel) -> Program:
    """The program of a lowered kernel."""
    if kernel.op in ATTENTIONS:
        return _attention(kernel)
    if kernel.op in SCANS:
        return _scan(kernel)
    if kernel.op in FUSED:
        return _experts(kernel)
    builder = _PRODUCTS.get(kernel.op)
    return _streamed(kernel) if builder is None else builder(kernel)


def _bytes(dtype: str) -> float:
    return VALUE_BYTES.get(dtype, 2.0)


class _Nest:
    """Leaves under common outer loops, numbered in pre-order."""

    def __init__(self, *outer: Loop) -> None:
        self.outer, self.nodes, self.leaves = outer, len(outer), list[Leaf]()

    def leaf(
        self,
        inner: tuple[Loop, ...],
        operations: tuple[float, ...],
        *accesses: tuple[float, dict[int, int], bool],
    ) -> None:
        """Append a leaf; an access is bytes a value, strides by loop number, writes."""
        loops = (*self.outer, *inner)
        self.nodes += len(inner) + 1
        made = tuple(
            Access(size, tuple(strides.get(n, 0) for n in range(len(loops))), writes)
            for size, strides, writes in accesses
        )
        self.leaves.append(Leaf(self.nodes, loops, operations, made))

    def program(self) -> Program:
        """The program of all leaves."""
        return Program(tuple(self.leaves))


def _tiles(size: float, tile: int = TILE) -> tuple[int, int]:
    """Tiles along a side, and the side of one."""
    return math.ceil(size / tile), min(tile, max(1, math.ceil(size)))


_MULTIPLY_ADD = counts(add=1, mul=1)


def _product_leaves(nest: _Nest, sides: tuple[float, float, float], dtype: str) -> None:
    """A tile's steps along the sum and its result; outer loops: batch, tiles of m, tiles of n."""
    m, k, n = sides
    (_, tile_m), (_, tile_n), (steps, depth) = _tiles(m), _tiles(n), _tiles(k, DEPTH)
    wide, long, size = max(1, math.ceil(n)), max(1, math.ceil(k)), _bytes(dtype)
    rows = max(1, math.ceil(m))
    tensor = (
        Loop(steps, "serial", reduces=True),
        Loop(tile_m, "tensor"),
        Loop(tile_n, "tensor"),
        Loop(depth, "tensor", reduces=True),
    )
    nest.leaf(
        tensor,
        _MULTIPLY_ADD,
        (size, {0: rows * long, 1: TILE * long, 3: depth, 4: long, 6: 1}, False),
        (size, {0: long * wide, 2: TILE, 3: depth * wide, 5: 1, 6: wide}, False),
    )
    nest.leaf(
        (Loop(tile_m), Loop(max(1, tile_n // LANES)), Loop(min(LANES, tile_n), "vectorized")),
        counts(cast=1),
        (2.0, {0: rows * wide, 1: TILE * wide, 2: TILE, 3: wide, 4: LANES, 5: 1}, True),
    )


def _product(batch: float, m: float, k: float, n: float, dtype: str) -> Program:
    tiled = (Loop(max(1, math.ceil(batch)), "parallel"), *_parallel(m), *_parallel(n))
    nest = _Nest(*tiled)
    _product_leaves(nest, (m, k, n), dtype)
    return nest.program()


def _parallel(size: float) -> tuple[Loop]:
    return (Loop(_tiles(size)[0], "parallel"),)


def _matmul(kernel: Kernel) -> Program:
    m, k, n = kernel.shape
    return _product(1, m, k, n, kernel.dtype)


def _batched(kernel: Kernel) -> Program:
    batch, m, k, n = kernel.shape
    return _product(batch, m, k, n, kernel.dtype)


def _grouped(kernel: Kernel) -> Program:
    groups, m, k, n = kernel.shape
    if kernel.op == WEIGHT_GRADIENT:
        return _product(groups, m, k / groups, n, kernel.dtype)
    return _product(groups, m / groups, k, n, kernel.dtype)


_PRODUCTS: Mapping[str, Callable[[Kernel], Program]] = {
    "matmul": _matmul,
    "batched_matmul": _batched,
    **dict.fromkeys(GROUPED, _grouped),
}


def _attention(kernel: Kernel) -> Program:
    """Scores, their softmax, values: for each tile of queries, over the visible keys.

    Queries of heads that share keys and values fill a tile together.
    """
    op = kernel.op.removesuffix("_backward")
    batch, heads, kv_heads, queries = kernel.shape[:4]
    if op == FLASH:
        keys, width, values = queries, kernel.shape[4], kernel.shape[4]
    else:
        keys, width, values = kernel.shape[4:7]
    seen = min(keys, kernel.shape[7]) if op == FLASH_BAND else keys
    blocks, step = _tiles(seen)
    steps = max(1, math.ceil((blocks + 1) * computed_fraction(kernel.op, kernel.shape)))
    together = queries * max(1, heads // kv_heads)
    rows, tile = _tiles(together)
    nest = _Nest(Loop(batch, "parallel"), Loop(kv_heads, "parallel"), Loop(rows, "parallel"))
    size = _bytes(kernel.dtype)
    of_keys, of_rows = ({0: kv_heads * n * width, 1: n * width} for n in (keys, together))
    for _ in range(1 if op == kernel.op else 2):
        nest.leaf(
            (Loop(steps), *_tensor(tile, step), Loop(width, "tensor", reduces=True)),
            _MULTIPLY_ADD,
            (size, {**of_rows, 2: TILE * width, 4: width, 6: 1}, False),
            (size, {**of_keys, 3: step * width, 5: width, 6: 1}, False),
        )
        nest.leaf((Loop(steps), Loop(tile), Loop(step)), counts(add=2, compare=1, special=1))
        nest.leaf(
            (Loop(steps), *_tensor(tile, values), Loop(step, "tensor", reduces=True)),
            _MULTIPLY_ADD,
            (size, {**of_keys, 3: step * values, 5: 1, 6: values}, False),
        )
    nest.leaf(
        (Loop(tile), Loop(values, "vectorized")),
        counts(div=1, cast=1),
        (size, {**of_rows, 2: TILE * values, 3: values, 4: 1}, True),
    )
    return nest.program()


def _tensor(rows: int, columns: int) -> tuple[Loop, Loop]:
    return Loop(rows, "tensor"), Loop(columns, "tensor")


def _scan(kernel: Kernel) -> Program:
    """Products inside a chunk, then the state's update, chunk after chunk."""
    batch, heads, _, seq, width, state, chunk = kernel.shape
    chunks = max(1, math.ceil(seq / chunk))
    nest = _Nest(Loop(batch, "parallel"), Loop(heads, "parallel"), Loop(chunks))
    size = _bytes(kernel.dtype)
    rows = {0: heads * seq * width, 1: seq * width, 2: chunk * width}
    repeats = 2 if kernel.op.endswith("_backward") else 1
    for inner in ((chunk, chunk, width), (chunk, state, chunk), (width, state, chunk)) * repeats:
        loops = (*(Loop(n, "tensor") for n in inner[:2]), Loop(inner[2], "tensor", reduces=True))
        nest.leaf(
            loops, _MULTIPLY_ADD, (size, {**rows, 3: width, 5: 1}, False), (4.0, {3: 1, 4: 1}, True)
        )
    return nest.program()


def _experts(kernel: Kernel) -> Program:
    """Both projections of every expert, with the activation between them."""
    tokens, hidden, ffn, topk, experts, tp, ep = kernel.shape
    local, rows, inner = max(1, experts // ep), tokens * topk / ep, max(1, ffn // tp)
    each, gates = max(1.0, rows / local), 2 if kernel.op == FUSED_GATED else 1
    nest = _Nest(Loop(local, "parallel"), *_parallel(each), *_parallel(gates * inner))
    _product_leaves(nest, (each, hidden, gates * inner), kernel.dtype)
    down = _Nest(Loop(local, "parallel"), *_parallel(each), *_parallel(hidden))
    down.nodes += nest.nodes
    _product_leaves(down, (each, inner, hidden), kernel.dtype)
    return Program((*nest.leaves, *down.leaves))


def _streamed(kernel: Kernel) -> Program:
    """Passes over elements; bytes beyond one buffer are more buffers of the same size."""
    elements = max(1, kernel.shape[0])
    passes = passes_of(kernel.op)
    size = _bytes(kernel.dtype)
    buffers = max(1, round(kernel.traffic_bytes / (elements * size)))
    rows, row = max(1, math.ceil(elements / ROW)), min(ROW, elements)
    nest = _Nest(Loop(rows, "parallel"))
    lanes = min(LANES, row)
    strides = {0: row, 1: lanes, 2: 1}
    for number, each in enumerate(passes):
        is_last = number == len(passes) - 1
        reads = [(size, strides, False)] * (max(1, buffers - 1) if is_last else 1)
        writes = [(size, {0: 1} if each.reduces else strides, True)]
        inner = (
            Loop(max(1, row // lanes), "serial", each.reduces),
            Loop(lanes, "vectorized", each.reduces),
        )
        nest.leaf(inner, each.operations, *writes, *reads)
    return nest.program()
