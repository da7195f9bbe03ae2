"""Measured grids of devices as programs: what the learners over leaves are fitted to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...datasets.catalogue.device import Device, device
from ...datasets.measured.timed_grid import SHARED_HEADS
from ...spec.report.work_items import FLASH, FUSED, Kernel
from ..arrays import Floats
from ..kernel_latency.gemm_features import gemm
from ..programs.device_vector import device_vector
from ..programs.kernels import program_of
from ..programs.sequence import Leaves, leaves_of
from ..programs.tile_work import DeviceRates, TileWork, rates, tile_work
from .samples import (
    NOT_GATED,
    Samples,
    attention_samples,
    expert_models,
    experts_samples,
    gemm_samples,
)

DTYPE = "bf16"
CHIP: Mapping[str, str] = {
    "H100-SXM-80GB": "Hopper",
    "H200-SXM-141GB": "Hopper",
    "B200-SXM-180GB": "Blackwell",
    "GB200-186GB": "Blackwell",
    "GB300-279GB": "Blackwell",
}
"""Devices of one architecture, which count as one where an unseen one is predicted."""
GATED, UNGATED = sorted(FUSED)


class KernelRows(NamedTuple):
    """Timed kernels of grids as programs; columns of one length."""

    leaves: Leaves
    work: TileWork
    on: DeviceRates
    vectors: NDArray[np.float32]
    device: NDArray[np.str_]
    time_s: Floats
    sizes: Mapping[str, NDArray[np.int64]]
    shipped: NDArray[np.float32]
    shipped_base_s: Floats

    @property
    def weights(self) -> Floats:
        """One for each architecture in all, scaled to a mean of one."""
        chips = np.array([CHIP.get(str(name), str(name)) for name in self.device])
        names, place, count = np.unique(chips, return_inverse=True, return_counts=True)
        weights: Floats = len(chips) / len(names) / count[place]
        return weights


def attention_kernel(sizes: Sequence[int]) -> Kernel:
    """Sizes in the order of the grid: head_dim, kv_place, heads, batch, seq."""
    head_dim, kv_place, heads, batch, seq = sizes
    kv_heads = (*SHARED_HEADS, heads)[kv_place]
    return Kernel(FLASH, (batch, heads, min(kv_heads, heads), seq, head_dim), DTYPE, 0, 0)


def product_kernel(sizes: Sequence[int]) -> Kernel:
    """Sizes in the order of the grid: m, n, k."""
    m, n, k = sizes
    return gemm(m, k, n, DTYPE)


def experts_kernel(sizes: Sequence[int]) -> Kernel:
    """Sizes in the order of the grid: model, uneven, tp, ep, tokens."""
    model, _, tp, ep, tokens = sizes
    hidden, ffn, topk, experts = expert_models()[model]
    op = UNGATED if (hidden, ffn, topk, experts) in NOT_GATED else GATED
    return Kernel(op, (tokens, hidden, ffn, topk, experts, tp, ep), DTYPE, 0, 0)


GRIDS: Mapping[str, tuple[Callable[..., Samples], Callable[[Sequence[int]], Kernel]]] = {
    "attention": (attention_samples, attention_kernel),
    "gemm": (gemm_samples, product_kernel),
    "experts": (experts_samples, experts_kernel),
}
"""Samples and kernels by grid."""


def kernel_rows(
    grid: str, lookup: Callable[[str], Device] = device, thinned: int = 1
) -> KernelRows:
    """Every ``thinned``-th row in bf16 of a grid, devices as ``lookup`` knows them."""
    make, kernel = GRIDS[grid]
    samples = make(lookup)
    samples = samples.where(samples.dtype == DTYPE)
    keep = np.zeros(len(samples.time_s), np.bool_)
    keep[::thinned] = True
    samples = samples.where(keep)
    columns = np.stack([samples.sizes[name] for name in samples.sizes], axis=1)
    distinct, place = np.unique(columns, axis=0, return_inverse=True)
    programs = [program_of(kernel(sizes)) for sizes in distinct.tolist()]
    work = tile_work(programs)
    names, owner = np.unique(samples.device, return_inverse=True)
    devices = [lookup(str(name)) for name in names]
    vectors = np.array([device_vector(on, DTYPE) for on in devices], np.float32)
    each = rates(devices, DTYPE)
    return KernelRows(
        leaves=leaves_of(programs).rows(place.ravel()),
        work=TileWork(*(x[place.ravel()] for x in work)),
        on=DeviceRates(*(x[owner] for x in each)),
        vectors=vectors[owner],
        device=samples.device,
        time_s=samples.time_s,
        sizes=samples.sizes,
        shipped=samples.features,
        shipped_base_s=samples.base_s,
    )
