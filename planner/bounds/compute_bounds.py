"""Quick proven bounds: layer computation without sharding or memory.

Sharding only adds copies and traffic to a pass, and a plan that does not fit is slower or none. So
a micro-batch takes at least w = Σ over layers of the minimum forward and backward under any split
and recomputation, and a step the bound of ``knapsack_bounds`` from that work. No plan beats the
model's matrix products, each once a sample, at the peak of all devices.

After its last pass every stage waits for the host and for the norm over all devices.

Some stage has at least ⌈n/p⌉ of n layers of a class. Where passes overlap in pairs, communication
that they may hide is not certain; nor is, if the communication is longer, their work. Where
backwards are split only the fill is certain, f = Σ of the minimum forwards: a stage of a zero
bubble waits for one micro-batch of the earlier stages. For any share φ let x = Σ over layers of
min(w, f/φ); then as in ``knapsack_bounds`` T ≥ φ·x/(1 - (1 - φ/m)^p), with φ = f/w of all layers.
In a V the first chunks wait only for each other, which leaves f itself.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from ...costmodel.kernel_latency.roofline import peak_flops_per_s
from ...costmodel.lowering.layer_parts import LayerWorkCache
from ...costmodel.lowering.plan_lowering import Lowering
from ...costmodel.lowering.step_work import norm_sum
from ...costmodel.pricing.pricer import Pricer
from ...costmodel.simulation.overlapped_passes import (
    MAX_SLOWDOWN,
    min_overlapped_s,
)
from ...spec.recomputation import recompute_rank
from ...spec.report.work_items import MATMULS
from ...spec.strategy import LayerStrategy
from ...spec.workload.number_formats import rate_name
from ..space.pipeline_shape import PipelineShape
from ..space.search_space import SearchSpace
from ..tables.option_rows import KeyIndex, StrategyArrays

ROUNDING = 1e-9
"""The same sums in another order differ by less than this fraction."""


class ClassCompute(NamedTuple):
    """Minimum seconds of one micro-batch through ``layers`` layers of a class.

    ``whole_s``: forward and backward. ``forward_s``: forward alone. ``overlapped_s``: ``whole_s``
    where passes overlap, with the communication still exposed.
    """

    layers: int
    forward_s: float
    whole_s: float
    overlapped_s: float


class ModelCompute(NamedTuple):
    """Minimum seconds of one micro-batch through all layers.

    ``whole_s``: forward and backward. ``forward_s``: forward alone. ``filled_s``: the part of
    ``whole_s`` with a forward share of at least ``forward_s / whole_s`` in every layer.
    ``layer_classes``: by class.
    """

    whole_s: float
    forward_s: float
    filled_s: float
    layer_classes: tuple[ClassCompute, ...]

    @classmethod
    def of(cls, layer_classes: list[ClassCompute]) -> ModelCompute:
        """Sum over all layers."""
        overlapped_s = sum(c.layers * c.overlapped_s for c in layer_classes)
        whole_s = sum(c.layers * c.whole_s for c in layer_classes)
        forward_s = sum(c.layers * c.forward_s for c in layer_classes) * (1 - ROUNDING)
        share = forward_s / (whole_s * (1 - ROUNDING))
        filled_s = sum(c.layers * min(c.whole_s, c.forward_s / share) for c in layer_classes)
        least = (max(whole_s, overlapped_s) * (1 - ROUNDING), forward_s, filled_s * (1 - ROUNDING))
        return cls(*least, tuple(layer_classes))

    def bound_s(self, shape: PipelineShape) -> float:
        """Minimum seconds of a step of ``shape``."""
        m, p = shape.microbatches, shape.stages
        even_s = max(m * self.whole_s / p, m * self._largest_stage_s(p))
        if shape.fills_and_drains:
            return max(even_s, self.whole_s / (1 - (1 - 1 / m) ** p))
        if shape.kind == "zero_bubble":
            share = self.forward_s / self.whole_s
            return max(even_s, share * self.filled_s / (1 - (1 - share / m) ** p))
        return max(even_s, self.forward_s)

    def _largest_stage_s(self, stages: int) -> float:
        most = (-(-c.layers // stages) * max(c.whole_s, c.overlapped_s) for c in self.layer_classes)
        return max(most) * (1 - ROUNDING)


class ComputeBounds:
    """Quick bounds of the shapes of a space."""

    def __init__(
        self, space: SearchSpace, lowering: Lowering, layer_works: LayerWorkCache, pricer: Pricer
    ) -> None:
        self._space = space
        self._lowering = lowering
        self._layer_works = layer_works
        self._pricer = pricer
        self._counts = Counter(space.layer_classes)
        self._split_number = KeyIndex(lambda strategy: lowering.split_key(strategy)[:-1])
        self._recompute_rank = StrategyArrays(lambda s: recompute_rank(s.recompute))
        self._passes: dict[tuple[object, ...], tuple[float, float, float]] = {}
        self._works: dict[tuple[int, int, bool, int, bool], ModelCompute] = {}
        self._ends: dict[int, float] = {}

    def bound(self, shape: PipelineShape, adds_to_tied: bool, link_span: int) -> float:
        """Minimum seconds of every plan of ``shape``.

        Args:
            shape: the pipeline shape.
            adds_to_tied: True if the embedding's weight is the head's of the same stage.
            link_span: number of link levels that the groups of a stage cross.
        """
        samples = self._space.request.workload.global_batch // shape.microbatches
        key = (shape.ranks, samples, adds_to_tied, link_span, shape.overlaps_passes)
        if key not in self._works:
            self._works[key] = self._work(*key)
        return self._works[key].bound_s(shape) + self.end_s(shape)

    def end_s(self, shape: PipelineShape) -> float:
        """Seconds after the last pass of every plan: norm and host."""
        used = shape.devices
        if used not in self._ends:
            reaching = self._pricer.with_link_span(self._pricer.machine.link_span_of(used, used))
            norm_s = reaching.collective(norm_sum(used)).time_s
            self._ends[used] = norm_s + self._pricer.step_s
        return self._ends[used]

    def _work(
        self, ranks: int, samples: int, adds_to_tied: bool, link_span: int, overlaps_passes: bool
    ) -> ModelCompute:
        context = (ranks, samples, link_span, overlaps_passes)
        first = self._space.layer_classes[0]
        return ModelCompute.of(
            [
                ClassCompute(count, *self._least(c, context, adds_to_tied and c == first))
                for c, count in self._counts.items()
            ]
        )

    def _least(
        self, layer_class: int, context: tuple[int, int, int, bool], adds_to_tied: bool
    ) -> tuple[float, ...]:
        """Minimum seconds over all splits, each with its minimum recomputation.

        Forward, forward and backward together, and overlapped.
        """
        index = self._space.first_of_class[layer_class]
        options = self._space.options(layer_class, *context[:2])
        numbers, ranks = self._split_number.numbers(options), self._recompute_rank(options)
        order = np.lexsort((ranks, numbers))  # stable: the first of equals
        firsts = order[np.unique(numbers[order], return_index=True)[1]]
        splits = [options[row] for row in firsts.tolist()]
        seconds = [self._pass_s(index, s, context, adds_to_tied) for s in splits]
        return tuple(min(values) for values in zip(*seconds, strict=True))

    def _pass_s(
        self,
        index: int,
        strategy: LayerStrategy,
        context: tuple[int, int, int, bool],
        adds_to_tied: bool,
    ) -> tuple[float, float, float]:
        """Seconds of a layer's micro-batch: forward, forward and backward, overlapped.

        An accumulating backward does at least the work of the first. The third figure includes
        exposed communication.
        """
        ranks, samples, link_span, overlaps_passes = context
        batch = samples // strategy.data_parallel(ranks)
        split = self._lowering.split_key(strategy)
        key = (index, split, batch, link_span, adds_to_tied, overlaps_passes)
        if key not in self._passes:
            work = self._layer_works.of(index, strategy, ranks, samples, adds_to_tied)
            pricer = self._pricer.with_link_span(link_span)
            hides = overlaps_passes and pricer.hides_sharding
            passes = (work.forward, work.backward(accumulates=False))
            costs = [pricer.chained(direction) for direction in passes]
            forward_s, backward_s = (min_overlapped_s(cost, hides) for cost in costs)
            alone_s = sum(cost.time_s for cost in costs)
            inside_s = alone_s - forward_s - backward_s
            slowdown = min(pricer.stack.overlap_slowdown, MAX_SLOWDOWN)
            overlapped_s = (slowdown - 1) * alone_s + (2 - slowdown) * inside_s if hides else 0.0
            self._passes[key] = forward_s, forward_s + backward_s, overlapped_s
        return self._passes[key]

    def floor(self) -> float:
        """Minimum seconds of every plan of the space, from matrix products alone."""
        if self._pricer.machine.profile is not None:  # a machine may beat its catalogue figures
            return self._pricer.step_s
        request = self._space.request
        flops = sum(
            count * self._matmul_flops(self._space.first_of_class[layer_class])
            for layer_class, count in self._counts.items()
        )
        dtype, device = request.workload.dtype, self._pricer.machine.fastest_device
        rate = peak_flops_per_s(device, dtype.param)
        if dtype.matmul is not None:
            rate = max(rate, peak_flops_per_s(device, rate_name(dtype.matmul)))
        shorter = min(1.0, self._pricer.machine.factors.matmul)
        samples_s = shorter * request.workload.global_batch * flops / rate
        return samples_s / request.cluster.device_count * (1 - ROUNDING) + self._pricer.step_s

    def _matmul_flops(self, index: int) -> int:
        lowered = self._lowering.layer(index, LayerStrategy(), None, 1, 1)
        return sum(
            kernel.flops
            for direction in (lowered.forward, lowered.backward)
            for kernel in direction.kernels()
            if kernel.op in MATMULS
        )
