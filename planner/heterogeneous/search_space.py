"""Pipeline shapes over several device groups, and their description for a report."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

from ...spec.model.towers import shared_tables
from ...spec.numbers import divisors
from ...spec.schedules.stage_order import V_KINDS
from ..space.pipeline_shape import PipelineShape
from ..space.search_space import Request, SearchSpace
from .device_layouts import (
    DeviceLayout,
    full_layouts,
    layout_count,
    layouts,
    place_layout,
    sample_splits,
)

MAX_LAYOUTS = 3000
"""Above this, device groups have as many stages as they can of widths that fill them."""
MAX_SPLITS = 24
"""Splits of the samples of a micro-batch that are listed for one layout, evenest first."""
MAX_SHAPES = 60_000


class HeterogeneousSpace:
    """Shapes over several device groups.

    Args:
        request: the question.
        whole: legal choices of layers and schedules.
        rates: peak FLOP/s of a device of each group, for the first sample split.
        wanted: filter of shapes.

    ``complete``, once listed: True if the shapes are all of the space.
    """

    def __init__(
        self,
        request: Request,
        whole: SearchSpace,
        rates: dict[str, float],
        wanted: Callable[[PipelineShape], bool] = lambda shape: True,
    ) -> None:
        self._request, self._whole, self._rates = request, whole, rates
        self._wanted = wanted
        cluster = request.cluster
        # A stage of several groups holds those of a zone side by side.
        groups = sorted(cluster.groups, key=lambda group: cluster.zones.index(group.zone))
        self._groups = [(group.name, group.device_count) for group in groups]
        self._tables = shared_tables(request.model)
        self.complete = True

    @property
    def layer_classes(self) -> tuple[int, ...]:
        """Class of every layer."""
        return self._whole.layer_classes

    def shapes(self) -> Iterator[PipelineShape]:
        """Shapes to search."""
        return filter(self._wanted, self._list())

    def _list(self) -> list[PipelineShape]:
        most, shapes = len(self._whole.layers), list[PipelineShape]()
        self.complete = layout_count(self._groups) <= MAX_LAYOUTS
        make = layouts if self.complete else full_layouts
        for layout in make(self._groups, most):
            for shape in self._of(layout):
                if len(shapes) >= MAX_SHAPES:
                    self.complete = False
                    return shapes
                shapes.append(shape)
        return shapes

    def _of(self, layout: DeviceLayout) -> Iterator[PipelineShape]:
        stages, batch = len(layout.stages), self._request.workload.global_batch
        if not self._whole.allows("pp", stages):
            return
        for count in divisors(batch):
            schedules = [
                shape
                for shape in self._whole.schedules(stages, 0, [count])
                if self._can_tie(layout, shape)
            ]
            if not schedules:
                continue
            for samples in self._sample_splits(layout, batch // count):
                placed = place_layout(layout, samples)
                yield from (shape._replace(places=placed) for shape in schedules)

    def _sample_splits(self, layout: DeviceLayout, samples: int) -> list[tuple[int, ...]]:
        """Samples of a micro-batch by group, most even loads first."""
        if not layout.shared:
            return [(samples,)]
        first = layout.stages[0]
        powers = [count * self._rates[name] for name, _, count in first]
        total = sum(powers)

        def unevenness(split: tuple[int, ...]) -> tuple[float, tuple[int, ...]]:
            loads = (n / power for n, power in zip(split, powers, strict=True))
            return max(loads) * total / samples, split

        counts = [count for _, _, count in first]
        even = tuple(samples * count // sum(counts) for count in counts)
        splits = sorted(sample_splits(samples, len(first)), key=unevenness)[:MAX_SPLITS]
        split_count = math.comb(samples - 1, len(first) - 1)
        self.complete = self.complete and split_count <= MAX_SPLITS
        is_whole = sum(even) == samples and min(even) > 0
        return list(dict.fromkeys([*splits, even] if is_whole else splits))

    def _can_tie(self, layout: DeviceLayout, shape: PipelineShape) -> bool:
        widths = layout.widths
        if len(self._tables) < 2 or len(set(widths)) == 1 or shape.kind in V_KINDS:
            return True
        return len(self._tables) == 2 and widths[0] == widths[-1]

    def describe(self, shapes: list[PipelineShape]) -> dict[str, list[Any]]:
        """Axes and values of plans over several groups only."""
        groups, widths, shares = set(), set(), set()
        for places in {shape.places for shape in shapes}:
            order = (",".join(p.group for p in placement) for placement in places)
            groups.add(" > ".join(name for name, _ in itertools.groupby(order)))
            for placement in places:
                widths.add(sum(part.devices for part in placement))
                if len(placement) > 1:
                    samples = sum(part.samples for part in placement)
                    shares |= {round(part.samples / samples, 6) for part in placement}
        return {
            "batch_share": sorted(shares),
            "device_groups": sorted(groups),
            "pp": sorted({shape.stages for shape in shapes}),
            "schedule": sorted({shape.kind for shape in shapes}),
            "stage_width": sorted(widths),
            "vpp": sorted({shape.chunks for shape in shapes}),
        }

    def left_out(self, has_solver: bool) -> list[dict[str, str]]:
        """Plans over several groups outside the space, with or without a solver."""
        items = [
            {
                "what": "stages of unequal width inside one device group",
                "why": "a rule: equal devices share a pipeline evenly; simulate them",
            },
            {
                "what": "stages of one device group before and after stages of another",
                "why": "a rule: the stages of a group follow one another; simulate them",
            },
            {
                "what": "shares of the batch that differ between stages",
                "why": "a rule: a group takes the same samples on every stage; simulate them",
            },
            {
                "what": "pipelines of which some stages hold one device group and others several",
                "why": "a rule: all stages share the groups, or none does; simulate them",
            },
            {
                "what": "recomputation that differs between the device groups of a stage",
                "why": "not searched yet; write by_device_group and simulate it",
            },
        ]
        if not self.complete:
            what = "stages, widths and shares over several groups beyond those that fill them best"
            why = "not looked into: too many; the bound speaks of them by what devices do at best"
            items.append({"what": what, "why": why})
        return items


def is_uniform(shape: PipelineShape) -> bool:
    """Return whether stages have one width and equal samples a device."""
    widths = {sum(part.devices for part in placement) for placement in shape.places}
    even = all(len({p.samples / p.devices for p in placement}) == 1 for placement in shape.places)
    return len(widths) == 1 and even
