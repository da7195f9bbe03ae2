"""SwiGLU, GeGLU and GELU."""

from __future__ import annotations

from collections.abc import Iterator

from gpu.entry import Entry, Make, Sizes, Work
from torch import Tensor
from torch.nn import functional as F

from shardwright.kernels.dense import activation
from shardwright.kernels.dispatch import Dispatcher


def _swiglu_ours(kernels: Dispatcher, gate: Tensor, up: Tensor) -> Tensor:
    return activation.swiglu(kernels, gate, up)


def _swiglu_eager(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


def _geglu_ours(kernels: Dispatcher, gate: Tensor, up: Tensor) -> Tensor:
    return activation.geglu(kernels, gate, up)


def _geglu_eager(gate: Tensor, up: Tensor) -> Tensor:
    return F.gelu(gate, approximate="tanh") * up


def _gelu_ours(kernels: Dispatcher, x: Tensor) -> Tensor:
    return activation.gelu(x, tanh=True)


def _gelu_eager(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def entries(sizes: Sizes) -> Iterator[Entry]:
    """Gated kernels: two reads, one write forward; three reads, two writes backward."""
    for rows, width in sizes.activations:
        full = rows * width * sizes.dtype.itemsize
        case = f"{rows} x {width}"

        def one(make: Make, shape: tuple[int, int] = (rows, width)) -> tuple[Tensor]:
            return (make.normal(*shape),)

        def two(make: Make, shape: tuple[int, int] = (rows, width)) -> tuple[Tensor, Tensor]:
            return make.normal(*shape), make.normal(*shape)

        swiglu = {"family": "swiglu", "make": two, "ours": _swiglu_ours, "eager": _swiglu_eager}
        geglu = {"family": "geglu", "make": two, "ours": _geglu_ours, "eager": _geglu_eager}
        for gated in (swiglu, geglu):
            yield Entry(mode="forward", case=case, work=Work(3 * full), **gated)
            yield Entry(mode="backward", case=case, work=Work(5 * full), **gated)
        gelu = {"family": "gelu", "make": one, "ours": _gelu_ours, "eager": _gelu_eager}
        yield Entry(mode="forward", case=case, work=Work(2 * full), **gelu)
        yield Entry(mode="backward", case=case, work=Work(3 * full), **gelu)
