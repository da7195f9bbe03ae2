"""Rank classes of a stage: the facts behind its costs."""

from __future__ import annotations

from typing import NamedTuple

from ...costmodel.pricing.group_pricer import GroupPricer
from ...costmodel.pricing.link_span import LinkSpan, stage_link_spans
from ...costmodel.pricing.pricer import Pricer
from ...spec.plan.plan import Stage, StageDevices
from ..space.pipeline_shape import PipelineShape, StagePlacement


class StageClass(NamedTuple):
    """Ranks of one device group of a stage.

    ``ranks``: of the whole stage, over which states are replicated or sharded; ``samples``: the
    group's own of a micro-batch.
    """

    group: str
    own: int
    ranks: int
    samples: int
    link_span: LinkSpan

    @property
    def uniform_samples(self) -> int:
        """Samples of a uniform stage of ``ranks`` with as many a rank."""
        return self.samples * self.ranks // self.own


StageClasses = tuple[StageClass, ...]


class StageClassTable:
    """Rank classes of the stages of shapes."""

    def __init__(self, prices: GroupPricer) -> None:
        self._prices = prices
        self._cache: dict[tuple[object, ...], StageClasses] = {}

    def of(self, shape: PipelineShape) -> tuple[StageClasses, ...]:
        """The classes of every stage."""
        used: dict[str, int] = {}
        for part in (part for placement in shape.places for part in placement):
            used[part.group] = max(used.get(part.group, 0), part.first + part.devices)
        return tuple(self._stage(placement, used[placement[0].group]) for placement in shape.places)

    def _stage(self, placement: StagePlacement, used: int) -> StageClasses:
        key = (placement, used)
        if key not in self._cache:
            devices = tuple(
                StageDevices(device_group=p.group, first_rank=p.first, count=p.devices)
                for p in placement
            )
            ranks = sum(part.devices for part in placement)
            stage = Stage(devices=devices, virtual_stages=())
            cluster = self._prices.whole.machine.cluster
            machine = self._prices.inside(placement[0].group).machine
            link_spans = stage_link_spans(cluster, stage, machine, used)
            self._cache[key] = tuple(
                StageClass(part.group, part.devices, ranks, part.samples, link_span)
                for part, link_span in zip(placement, link_spans, strict=True)
            )
        return self._cache[key]

    def pricer(self, rank_class: StageClass) -> Pricer:
        """Prices on the ranks of a class."""
        return self._prices.at(rank_class.group, rank_class.link_span)
