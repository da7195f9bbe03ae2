"""RMS norm and layer norm."""

from __future__ import annotations

from collections.abc import Iterator

from gpu.entry import Entry, Make, Sizes, Work
from torch import Tensor
from torch.nn import functional as F

from shardwright.kernels.dense import norm
from shardwright.kernels.dispatch import Dispatcher

EPS = 1e-6


def _rms_ours(kernels: Dispatcher, x: Tensor, weight: Tensor) -> Tensor:
    return norm.rms_norm(kernels, x, weight, EPS)


def _rms_eager(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x, (x.shape[-1],), weight, EPS)


def _layer_ours(kernels: Dispatcher, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return norm.layer_norm(x, weight, bias, EPS)


def _layer_eager(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, (x.shape[-1],), weight, bias, EPS)


def entries(sizes: Sizes) -> Iterator[Entry]:
    """Forward: one read, one write; backward: two reads, one write."""
    for rows, width in sizes.activations:
        full = rows * width * sizes.dtype.itemsize
        case = f"{rows} x {width}"

        def two(make: Make, shape: tuple[int, int] = (rows, width)) -> tuple[Tensor, Tensor]:
            return make.normal(*shape), make.normal(shape[1])

        def three(
            make: Make, shape: tuple[int, int] = (rows, width)
        ) -> tuple[Tensor, Tensor, Tensor]:
            return make.normal(*shape), make.normal(shape[1]), make.normal(shape[1])

        rms = {"family": "rms_norm", "make": two, "ours": _rms_ours, "eager": _rms_eager}
        layer = {"family": "layer_norm", "make": three, "ours": _layer_ours, "eager": _layer_eager}
        for kind in (rms, layer):
            yield Entry(mode="forward", case=case, work=Work(2 * full), **kind)
            yield Entry(mode="backward", case=case, work=Work(3 * full), **kind)
