"""Costs of a layer's splits and FSDP units, each computed once.

Option and pass tables share splits and units, many of them for every number of micro-batches. A
split's passes depend on a replica's samples, a unit's communication on its stage's ranks alone.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from ...costmodel.lowering.layer_parts import LayerWork, LayerWorkCache
from ...costmodel.lowering.plan_lowering import Lowering
from ...costmodel.pricing.pricer import Pricer
from ...costmodel.sharding.fsdp_unit import FsdpUnit
from ...costmodel.simulation.layer_slots import traffic_seconds
from ...costmodel.symbolic.lane_work import NO_LANES
from ...costmodel.symbolic.lowered_pass import NO_PASS, LoweredPass
from ...costmodel.symbolic.tier_bytes import TIERS
from ...spec.strategy import LayerStrategy
from .arrays import record
from .option_rows import (
    KeyIndex,
    bytes_by_tier,
    gathered_bytes,
    resident_bytes,
    unit_key,
    waiting_bytes,
)
from .pass_kinds import KINDS, PASSES, STEP_END

PASS_COST = np.dtype([("time_s", np.float64), ("overlappable_s", np.float64)])
"""Seconds of a pass, and those of them that may overlap with another pass."""
SPLIT_COST = np.dtype(
    [
        ("kept_bytes", np.float64),
        ("backward_peak_bytes", np.float64),
        ("output_bytes", np.float64),
        ("forward", PASS_COST),
        ("backward", PASS_COST),
        ("accumulating_backward", PASS_COST),
        ("lanes_s", np.float64, (2,)),
        ("kept_tier_bytes", np.float64, (len(TIERS),)),
    ]
)
"""A split: activations kept for the backward, bytes beyond those in it, output, passes. An
accumulating backward adds to gradients that are there already. Then seconds of the busiest
lane beside a forward and a backward, and what is kept on each of ``TIERS``."""
WEIGHT_PASS_COST = np.dtype(
    [
        ("waiting_bytes", np.float64),
        ("backward", PASS_COST),
        ("accumulating_backward", PASS_COST),
    ]
)
"""The weight-gradient part of a split's backward: bytes that wait for it, and its passes."""
UNIT_COST = np.dtype(
    [
        ("resident_bytes", np.float64),
        ("waiting_one_bytes", np.float64),
        ("waiting_many_bytes", np.float64),
        ("gathered_bytes", np.float64),
        ("gathering_bytes", np.float64),
        ("copy_s", np.float64, (KINDS,)),
        ("gather_s", np.float64, (KINDS,)),
        ("reduce_s", np.float64, (KINDS,)),
        ("fetch_s", np.float64, (KINDS,)),
        ("starts_anew", np.bool_),
        ("hides_gather", np.bool_),
        ("hides_reduction", np.bool_),
        ("resident_tier_bytes", np.float64, (len(TIERS),)),
        ("gradient_line_s", np.float64),
        ("adds_to_gradients", np.bool_),
    ],
    align=True,
)
"""An FSDP unit: bytes that live all along; gradients that wait with one micro-batch, and with
several; parameters gathered for a backward, and the bytes while they are; communication by kind of
pass (at the step's end copies are techniques' updates); lanes' work before a gather; True if every
micro-batch starts gradients anew, if gathers and if reductions run beside other layers; bytes that
live on each of ``TIERS``; techniques' copies of gradients in line, and True if techniques add work
to the backward that completes them."""
NO_UNIT: np.void = np.zeros(1, UNIT_COST)[0]
NO_UNIT["starts_anew"] = True
NO_UNIT.setflags(write=False)


class StageContext(NamedTuple):
    """Stage ranks, micro-batch samples over it, link levels of its groups."""

    ranks: int
    samples: int
    link_span: int


class LayerCosts:
    """Costs of the splits and units of a request.

    ``split_number`` and ``unit_number`` number distinct splits and units.
    """

    def __init__(self, lowering: Lowering, works: LayerWorkCache, pricer: Pricer) -> None:
        self.lowering, self.works, self.pricer = lowering, works, pricer
        self.split_number = KeyIndex(lowering.split_key)
        self.unit_number = KeyIndex(lambda s: unit_key(s, lowering.state_techniques(s)))
        self._splits: dict[tuple[Hashable, ...], np.void] = {}
        self._weight_passes: dict[tuple[Hashable, ...], np.void] = {}
        self._units: dict[tuple[Hashable, ...], np.void] = {}

    def split(
        self, layer: int, strategy: LayerStrategy, context: StageContext, adds_to_tied: bool
    ) -> np.void:
        """Bytes and passes of a layer's split, a ``SPLIT_COST``.

        Args:
            layer: layer number.
            strategy: its decisions.
            context: of its stage.
            adds_to_tied: True if a layer without members certainly adds to another's gradients.
        """
        key = self._split_key(layer, strategy, context, adds_to_tied)
        if key not in self._splits:
            work, pricer = self._work(layer, strategy, context, adds_to_tied)
            passes = (work.forward, work.backward(False), work.backward(True))
            sizes = (work.kept_bytes, work.backward_peak_bytes, work.output_bytes)
            lanes = NO_LANES if work.added is None else work.added.lanes
            line_s = [pricer.in_line_s(works) for works in (lanes[0], lanes[1], lanes[1])]
            costs = _pass_costs(pricer, passes)
            whole = [(s + more, beside) for (s, beside), more in zip(costs, line_s, strict=True)]
            lanes_s = tuple(pricer.busiest_lane_s(works) for works in lanes)
            kept = bytes_by_tier(() if work.added is None else work.added.kept_tier_bytes)
            row = (*sizes, *whole, lanes_s, kept)
            self._splits[key] = record(row, SPLIT_COST)
        return self._splits[key]

    def weight_passes(
        self, layer: int, strategy: LayerStrategy, context: StageContext, adds_to_tied: bool
    ) -> np.void:
        """Weight gradients of a split alone, a ``WEIGHT_PASS_COST``; arguments as `split`."""
        key = self._split_key(layer, strategy, context, adds_to_tied)
        if key not in self._weight_passes:
            work, pricer = self._work(layer, strategy, context, adds_to_tied)
            passes = (work.weight_part(False), work.weight_part(True))
            row = (work.waiting_bytes, *_pass_costs(pricer, passes))
            self._weight_passes[key] = record(row, WEIGHT_PASS_COST)
        return self._weight_passes[key]

    def unit(
        self, members: tuple[int, ...], strategy: LayerStrategy, ranks: int, link_span: int
    ) -> np.void:
        """Bytes and communication of a unit, a ``UNIT_COST``.

        Args:
            members: layers of the unit; empty without parameters.
            strategy: their decisions.
            ranks: of the stage.
            link_span: link levels spanned by the stage's groups.
        """
        if not members:
            return NO_UNIT
        layer_classes = tuple(self.lowering.kinds[i] for i in members)
        key = (layer_classes, self.unit_number(strategy), ranks, link_span)
        if key not in self._units:
            self._units[key] = self._unit_cost(members, strategy, ranks, link_span)
        return self._units[key]

    @property
    def contiguous(self) -> bool:
        """True if gradients have permanent buffers of their own."""
        return self.lowering.stack.state_layout == "contiguous"

    def _split_key(
        self, layer: int, strategy: LayerStrategy, context: StageContext, adds_to_tied: bool
    ) -> tuple[Hashable, ...]:
        return (
            self.lowering.kinds[layer],
            self.split_number(strategy),
            context.samples // strategy.data_parallel(context.ranks),
            context.link_span,
            adds_to_tied,
        )

    def _work(
        self, layer: int, strategy: LayerStrategy, context: StageContext, adds_to_tied: bool
    ) -> tuple[LayerWork, Pricer]:
        ranks, samples, link_span = context
        work = self.works.of(layer, strategy, ranks, samples, adds_to_tied)
        return work, self.pricer.with_link_span(link_span)

    def _unit_cost(
        self, members: tuple[int, ...], strategy: LayerStrategy, ranks: int, link_span: int
    ) -> np.void:
        unit = self.lowering.uncached_unit(members, strategy, ranks)
        pricer = self.pricer.with_link_span(link_span)
        cost = pricer.unit(unit)
        traffic_s = np.zeros((4, KINDS))
        traffic_s[:3, :STEP_END] = np.transpose([traffic_seconds(unit, cost, p) for p in PASSES])
        traffic_s[2, STEP_END] = cost.reduce.after_passes_s
        if unit.gather_lanes:
            gathers = [p.part != "weight" for p in PASSES]
            line_s = pricer.in_line_s(unit.gather_lanes)
            traffic_s[0, :STEP_END] += np.where(gathers, line_s, 0.0)
            beside_s = sum(map(pricer.lane_s, unit.gather_lanes)) - line_s
            traffic_s[3, :STEP_END] = np.where(gathers, beside_s, 0.0)
        traffic_s[0, STEP_END] = update_seconds(unit, pricer)
        row = (
            resident_bytes(unit, self.contiguous),
            waiting_bytes(unit, 1),
            waiting_bytes(unit, 2),
            *gathered_bytes(unit),
            *traffic_s.tolist(),
            unit.starts_anew,
            pricer.hides_gather(unit),
            pricer.hides_reduction(unit),
            bytes_by_tier(unit.added_tier_bytes),
            pricer.in_line_s(unit.gradient_lanes),
            unit.added != NO_PASS,
        )
        return record(row, UNIT_COST)


def update_seconds(unit: FsdpUnit, pricer: Pricer) -> float:
    """Techniques' seconds of an update that add up over units: in line, or on the host's lane."""
    seconds = sum(sum(pricer.split(added.items)) / added.every for added in unit.added_update)
    lanes = (w for w in unit.update_lanes if w.lane == "host" or pricer.in_line(w))
    return seconds + sum(map(pricer.lane_s, lanes))


def _pass_costs(
    pricer: Pricer, passes: tuple[tuple[LoweredPass, ...], ...]
) -> list[tuple[float, float]]:
    """A ``PASS_COST`` of each pass."""
    costs = [pricer.chained(chain) for chain in passes]
    hides = pricer.hides_sharding
    return [(cost.time_s, sum(cost.serial_s) if hides else 0.0) for cost in costs]
