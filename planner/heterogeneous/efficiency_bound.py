"""Proven bound on every plan over several device groups, listed or not.

Let e_gk be the minimum device-seconds of a sample in a layer of class k on group g: over all
splits over w ranks and all samples b of a replica, w·t(w, b)/b, without communication. The n_g
devices of a group have n_g·T seconds, whatever the stages, widths and shares, so with B samples
and n_k layers of a class, for any ν_g ≥ 0 with Σ ν_g·n_g = 1,

    T ≥ B · Σ_k n_k · min_g ν_g·e_gk.

ν_g is proportional to 1/e_g of the commonest class, which maximizes that term. Its e_g is priced
(t does not shrink as b grows, so between priced b the smaller one's t counts); other classes count
their matrix products at the device's peak. With planned experts, or techniques that leave only the
products certain, all classes do. Where not even those are certain, or a machine was measured and
may beat its catalogue figures, the bound is the host's time.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter

from ...costmodel.kernel_latency.roofline import peak_flops_per_s
from ...costmodel.pricing.costs import TERMS
from ...costmodel.pricing.pricer import Pricer
from ...costmodel.simulation.simulator import Simulator
from ...spec.cluster.cluster_spec import DeviceGroup
from ...spec.model.experts import experts_of
from ...spec.report.work_items import MATMULS
from ...spec.strategy import LayerStrategy
from ...spec.workload.number_formats import rate_name
from .fill_drain_bounds import ROUNDING
from .option_tables import StageOptions

EXACT = 8
"""Samples of a replica up to which each number is priced; above, every seventh part more."""
STEP = 7


class EfficiencyBound:
    """Efficiency bound of a request."""

    def __init__(self, options: StageOptions, simulator: Simulator) -> None:
        self._options, self._simulator = options, simulator
        self._counts = Counter(options.whole.layer_classes)
        self._main = max(self._counts, key=lambda number: self._counts[number])

    def global_bound_s(self) -> float:
        """Minimum seconds of every plan."""
        simulator, request = self._simulator, self._options.whole.request
        if simulator.pricer.machine.profile is not None or "nothing" in self._sure:
            return simulator.pricer.step_s
        groups = request.cluster.groups
        seconds = {group.name: self._seconds(group) for group in groups}
        if not all(seconds[g.name][self._main] for g in groups):
            return simulator.pricer.step_s  # a layer without products: no group is the better one
        total = sum(g.device_count / seconds[g.name][self._main] for g in groups)
        weights = {g.name: 1 / seconds[g.name][self._main] / total for g in groups}
        sample_s = sum(
            count * min(weights[g.name] * seconds[g.name][layer_class] for g in groups)
            for layer_class, count in self._counts.items()
        )
        samples = request.workload.global_batch
        return samples * sample_s * (1 - ROUNDING) + simulator.pricer.step_s

    def _seconds(self, group: DeviceGroup) -> dict[int, float]:
        space = self._options.whole
        pricer = self._simulator.prices.inside(group.name)
        seconds = {c: self._peak_s(space.first_of_class[c], pricer) for c in self._counts}
        if self._sure <= {"work"} and experts_of(space.layers[self._index]) is None:
            seconds[self._main] = max(seconds[self._main], self._priced_s(pricer))
        return seconds

    @property
    def _sure(self) -> set[str]:
        return {price.at_least for price in self._options.whole.techniques.in_play()}

    @property
    def _index(self) -> int:
        return self._options.whole.first_of_class[self._main]

    def _priced_s(self, pricer: Pricer) -> float:
        space, best = self._options.whole, math.inf
        grid = self._grid()
        for split in space.splits_of_a_sample(self._index):
            seconds = [self._pass_s(split, b, pricer) for b in grid]
            highs = [*grid[1:], grid[-1] + 1]
            for low, t, high in zip(grid, seconds, highs, strict=True):
                best = min(best, split.width * t / max(low, high - 1))
        return best

    def _grid(self) -> list[int]:
        space = self._options.whole
        most = space.most_samples(self._index)
        grid = list(range(1, min(EXACT, most) + 1))
        while grid[-1] < most:
            grid.append(min(most, grid[-1] + max(1, grid[-1] // STEP)))
        return grid

    def _pass_s(self, split: LayerStrategy, samples: int, pricer: Pricer) -> float:
        work = self._options.works.of(self._index, split, split.width, samples, False)
        return sum(
            seconds
            for direction in (work.forward, work.backward(accumulates=False))
            for name, seconds in zip(TERMS, pricer.chained(direction).terms_s, strict=True)
            if not name.startswith("exposed_")
        )

    def _peak_s(self, index: int, pricer: Pricer) -> float:
        dtype = self._options.whole.request.workload.dtype
        device = pricer.machine.device
        rate = peak_flops_per_s(device, dtype.param)
        if dtype.matmul is not None:
            rate = max(rate, peak_flops_per_s(device, rate_name(dtype.matmul)))
        lowered = self._simulator.lowering.layer(index, LayerStrategy(), None, 1, 1)
        kernels = itertools.chain(lowered.forward.kernels(), lowered.backward.kernels())
        flops = sum(kernel.flops for kernel in kernels if kernel.op in MATMULS)
        return min(1.0, pricer.machine.factors.matmul) * flops / rate
