"""Tensor workloads by family and sizes, as tensor expressions of TVM.

    workload("matmul", (128, 256, 64)) -> PrimFunc

Layer pieces have the proportions of preset models at a tenth of their width or less, so that a
naive schedule ends within a fifth of a second.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

Sizes = tuple[int, ...]
SIDES = (16, 24, 32, 48, 64, 80, 96, 128, 160, 192, 256, 320, 384, 512)
ROWS = (16, 32, 64, 128, 256, 512, 1024)
WIDTHS = (64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048)
MOST_OPERATIONS = 2e7
LEAST_OPERATIONS = 2e4


def tvm_module(name: str) -> Any:
    """A module of ``tvm``, loaded on demand."""
    return importlib.import_module(f"tvm.{name}")


def workload(family: str, sizes: Sizes) -> Any:
    """The ``PrimFunc`` of a family at ``sizes``.

    Raises:
        KeyError: no such family.
    """
    te = tvm_module("te")
    build, _ = FAMILIES[family]
    return te.create_prim_func(build(te, tvm_module("tirx"), sizes))


def _matmul(te: Any, _: Any, sizes: Sizes) -> list[Any]:
    m, n, k = sizes
    left, right = te.placeholder((m, k), name="left"), te.placeholder((k, n), name="right")
    return [left, right, _product(te, left, right, "product")]


def _product(te: Any, left: Any, right: Any, name: str) -> Any:
    k = te.reduce_axis((0, left.shape[1]), "k")
    shape = (left.shape[0], right.shape[1])
    return te.compute(shape, lambda i, j: te.sum(left[i, k] * right[k, j], axis=k), name=name)


def _transposed_matmul(te: Any, _: Any, sizes: Sizes) -> list[Any]:
    m, n, k = sizes
    left, right = te.placeholder((m, k), name="left"), te.placeholder((n, k), name="right")
    axis = te.reduce_axis((0, k), "k")
    out = te.compute(
        (m, n), lambda i, j: te.sum(left[i, axis] * right[j, axis], axis=axis), name="product"
    )
    return [left, right, out]


def _batched_matmul(te: Any, _: Any, sizes: Sizes) -> list[Any]:
    b, m, n, k = sizes
    left, right = te.placeholder((b, m, k), name="left"), te.placeholder((b, k, n), name="right")
    axis = te.reduce_axis((0, k), "k")
    out = te.compute(
        (b, m, n),
        lambda z, i, j: te.sum(left[z, i, axis] * right[z, axis, j], axis=axis),
        name="product",
    )
    return [left, right, out]


def _convolution(te: Any, _: Any, sizes: Sizes) -> list[Any]:
    channels, filters, side, window = sizes
    data = te.placeholder((channels, side + window - 1, side + window - 1), name="data")
    weight = te.placeholder((filters, channels, window, window), name="weight")
    c, y, x = (
        te.reduce_axis((0, extent), name)
        for extent, name in ((channels, "c"), (window, "y"), (window, "x"))
    )
    out = te.compute(
        (filters, side, side),
        lambda f, i, j: te.sum(data[c, i + y, j + x] * weight[f, c, y, x], axis=[c, y, x]),
        name="convolution",
    )
    return [data, weight, out]


def _reduce_rows(te: Any, _: Any, sizes: Sizes) -> list[Any]:
    rows, width = sizes
    data, k = te.placeholder((rows, width), name="data"), te.reduce_axis((0, width), "k")
    return [data, te.compute((rows,), lambda i: te.sum(data[i, k], axis=k), name="total")]


def _reduce_columns(te: Any, _: Any, sizes: Sizes) -> list[Any]:
    rows, width = sizes
    data, k = te.placeholder((rows, width), name="data"), te.reduce_axis((0, rows), "k")
    return [data, te.compute((width,), lambda j: te.sum(data[k, j], axis=k), name="total")]


def _softmax_of(te: Any, tirx: Any, data: Any) -> Any:
    rows, width = data.shape
    k, r = te.reduce_axis((0, width), "k"), te.reduce_axis((0, width), "r")
    most = te.compute((rows,), lambda i: te.max(data[i, k], axis=k), name="most")
    power = te.compute(data.shape, lambda i, j: tirx.exp(data[i, j] - most[i]), name="power")
    total = te.compute((rows,), lambda i: te.sum(power[i, r], axis=r), name="total")
    return te.compute(data.shape, lambda i, j: power[i, j] / total[i], name="softmax")


def _softmax(te: Any, tirx: Any, sizes: Sizes) -> list[Any]:
    data = te.placeholder(sizes, name="data")
    return [data, _softmax_of(te, tirx, data)]


def _rms_norm_of(te: Any, tirx: Any, data: Any, weight: Any) -> Any:
    rows, width = data.shape
    k = te.reduce_axis((0, width), "k")
    square = te.compute((rows,), lambda i: te.sum(data[i, k] * data[i, k], axis=k), name="square")
    return te.compute(
        data.shape,
        lambda i, j: data[i, j] / tirx.sqrt(square[i] / float(int(width)) + 1e-5) * weight[j],
        name="norm",
    )


def _rms_norm(te: Any, tirx: Any, sizes: Sizes) -> list[Any]:
    data, weight = te.placeholder(sizes, name="data"), te.placeholder(sizes[1:], name="weight")
    return [data, weight, _rms_norm_of(te, tirx, data, weight)]


def _layer_norm(te: Any, tirx: Any, sizes: Sizes) -> list[Any]:
    rows, width = sizes
    data = te.placeholder(sizes, name="data")
    k, r = te.reduce_axis((0, width), "k"), te.reduce_axis((0, width), "r")
    mean = te.compute((rows,), lambda i: te.sum(data[i, k] / float(width), axis=k), name="mean")
    spread = te.compute(
        (rows,),
        lambda i: te.sum((data[i, r] - mean[i]) * (data[i, r] - mean[i]), axis=r),
        name="spread",
    )
    out = te.compute(
        sizes,
        lambda i, j: (data[i, j] - mean[i]) / tirx.sqrt(spread[i] / float(width) + 1e-5),
        name="norm",
    )
    return [data, out]


def _chain(te: Any, tirx: Any, sizes: Sizes) -> list[Any]:
    """Elementwise operations in a row; ``sizes``: rows, width, which operations in base 5."""
    rows, width, code = sizes
    first, other = (te.placeholder((rows, width), name=name) for name in ("first", "other"))
    steps: tuple[Callable[[Any, Any], Any], ...] = (
        lambda x, y: x + y,
        lambda x, y: x * y,
        lambda x, y: tirx.max(x, 0.0),
        lambda x, y: x / (1.0 + tirx.exp(-x)),
        lambda x, y: tirx.sqrt(x * x + 1.0),
    )
    out = first
    for place in range(1 + code % 4):
        step = steps[code // 4 // len(steps) ** place % len(steps)]
        out = te.compute((rows, width), _pointwise(step, out, other), name=f"step{place}")
    return [first, other, out]


def _pointwise(step: Callable[[Any, Any], Any], data: Any, other: Any) -> Callable[..., Any]:
    return lambda i, j: step(data[i, j], other[i, j])


def _transpose(te: Any, _: Any, sizes: Sizes) -> list[Any]:
    rows, width = sizes
    data = te.placeholder((rows, width), name="data")
    return [data, te.compute((width, rows), lambda i, j: data[j, i], name="transposed")]


def _attention_scores(te: Any, tirx: Any, sizes: Sizes) -> list[Any]:
    seq, width = sizes
    query, key = (te.placeholder((seq, width), name=name) for name in ("query", "key"))
    k = te.reduce_axis((0, width), "c")
    scores = te.compute(
        (seq, seq), lambda i, j: te.sum(query[i, k] * key[j, k], axis=k), name="scores"
    )
    return [query, key, _softmax_of(te, tirx, scores)]


def _norm_and_projection(te: Any, tirx: Any, sizes: Sizes) -> list[Any]:
    rows, hidden, width = sizes
    data, weight = te.placeholder((rows, hidden), name="data"), te.placeholder((hidden,), name="w")
    right = te.placeholder((hidden, width), name="right")
    norm = _rms_norm_of(te, tirx, data, weight)
    return [data, weight, right, _product(te, norm, right, "product")]


def _gated_feed_forward(te: Any, tirx: Any, sizes: Sizes) -> list[Any]:
    rows, hidden, ffn = sizes
    data = te.placeholder((rows, hidden), name="data")
    gate, up = (te.placeholder((hidden, ffn), name=name) for name in ("gate", "up"))
    left, right = _product(te, data, gate, "gated"), _product(te, data, up, "upward")
    out = te.compute(
        (rows, ffn),
        lambda i, j: left[i, j] / (1.0 + tirx.exp(-left[i, j])) * right[i, j],
        name="activated",
    )
    return [data, gate, up, out]


def _biased_activation(te: Any, tirx: Any, sizes: Sizes) -> list[Any]:
    m, n, k = sizes
    left, right = te.placeholder((m, k), name="left"), te.placeholder((k, n), name="right")
    bias = te.placeholder((n,), name="bias")
    product = _product(te, left, right, "product")
    out = te.compute((m, n), lambda i, j: tirx.tanh(product[i, j] + bias[j]), name="activated")
    return [left, right, bias, out]


Draw = Callable[[np.random.Generator], Sizes]


def _draw(*axes: tuple[int, ...]) -> Draw:
    return lambda random: tuple(int(random.choice(axis)) for axis in axes)


FAMILIES: dict[str, tuple[Callable[[Any, Any, Sizes], list[Any]], Draw]] = {
    "matmul": (_matmul, _draw(SIDES, SIDES, SIDES)),
    "transposed_matmul": (_transposed_matmul, _draw(SIDES, SIDES, SIDES)),
    "batched_matmul": (_batched_matmul, _draw((2, 4, 8, 16), SIDES, SIDES, SIDES)),
    "convolution": (_convolution, _draw((4, 8, 16, 32), (8, 16, 32, 64), (14, 28, 56), (1, 3, 5))),
    "reduce_rows": (_reduce_rows, _draw(ROWS, WIDTHS)),
    "reduce_columns": (_reduce_columns, _draw(ROWS, WIDTHS)),
    "softmax": (_softmax, _draw(ROWS, WIDTHS)),
    "rms_norm": (_rms_norm, _draw(ROWS, WIDTHS)),
    "layer_norm": (_layer_norm, _draw(ROWS, WIDTHS)),
    "chain": (_chain, _draw(ROWS, WIDTHS, tuple(range(4 * 5**4)))),
    "transpose": (_transpose, _draw(ROWS, WIDTHS)),
    "attention_scores": (_attention_scores, _draw(SIDES[4:], (32, 64, 128))),
    "norm_and_projection": (_norm_and_projection, _draw(SIDES, SIDES, SIDES)),
    "gated_feed_forward": (_gated_feed_forward, _draw(SIDES, SIDES, SIDES)),
    "biased_activation": (_biased_activation, _draw(SIDES, SIDES, SIDES)),
}
"""Families, each with its builder and a draw of sizes."""
COSTS = {
    "convolution": lambda s: s[0] * s[1] * s[2] ** 2 * s[3] ** 2,
    "chain": lambda s: s[0] * s[1],
}
SQUARED = {"attention_scores": lambda s: s[0] ** 2 * s[1]}


def operations(family: str, sizes: Sizes) -> int:
    """Roughly the points of a workload's largest computation."""
    return int({**COSTS, **SQUARED}.get(family, math.prod)(sizes))


def drawn_sizes(family: str, random: np.random.Generator) -> Sizes:
    """Sizes whose largest computation is neither tiny nor slow."""
    while True:
        sizes = FAMILIES[family][1](random)
        if LEAST_OPERATIONS <= operations(family, sizes) <= MOST_OPERATIONS:
            return sizes
