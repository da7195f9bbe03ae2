"""What a layer's splits and the units of its parameters cost, each found once for all tables.

Tables of options and of passes look at the same splits and units, many of them for every number of
micro-batches. A split's passes depend on the samples of one replica, a unit's traffic on the ranks
of its stage alone.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from ...costmodel.lowering.layer_parts import LayerWork, LayerWorkCache
from ...costmodel.lowering.plan_lowering import Lowering, split_key
from ...costmodel.pricing.pricer import Pricer
from ...costmodel.simulation.overlapped_passes import overlappable_terms
from ...costmodel.simulation.pass_time import traffic_seconds
from ...costmodel.symbolic.lowered_pass import LoweredPass
from ...spec.strategy import LayerStrategy
from .option_rows import KeyIndex, resident_bytes, unit_key, waiting_bytes
from .pass_kinds import KINDS, PASSES

Floats = NDArray[np.float64]
StageContext = tuple[int, int, int]
"""Ranks of a stage, samples of a micro-batch over it, link levels that its groups cross."""

KEPT, OUTPUT, FORWARD, BACKWARD, ADDING = 0, 1, 2, 4, 6
"""Columns of a split's row: bytes kept and handed on; then of each pass its seconds, and what of
them hides beside another pass. ``ADDING`` is a backward that adds to gradients."""
WAITING, WEIGHT, WEIGHT_ADDING = 0, 1, 3
"""Columns of the row of its weight gradients alone: bytes that wait for them, and their passes."""
RESIDENT, WAITING_ONE, WAITING_MANY, FRESH, MOVES = range(5)
"""Columns of a unit's row: bytes that live all along, gradients that wait with one micro-batch and
with several, whether gradients start anew; then copies, gathers and reductions by kind of pass."""
NO_UNIT = np.zeros(MOVES + 3 * KINDS)
NO_UNIT[FRESH] = 1.0
NO_UNIT.setflags(write=False)


class LayerCosts:
    """Rows of the splits and units of a request.

    Args:
        lowering: of the model, workload and stack.
        works: of its layers.
        pricer: of the machine.

    ``split_number`` and ``unit_number`` tell splits and units apart.
    """

    def __init__(self, lowering: Lowering, works: LayerWorkCache, pricer: Pricer) -> None:
        self.lowering, self.works, self.pricer = lowering, works, pricer
        self.split_number, self.unit_number = KeyIndex(split_key), KeyIndex(unit_key)
        self._splits: dict[tuple[Hashable, ...], Floats] = {}
        self._weights: dict[tuple[Hashable, ...], Floats] = {}
        self._units: dict[tuple[Hashable, ...], Floats] = {}

    def split(
        self, layer: int, strategy: LayerStrategy, place: StageContext, adds_to_tied: bool
    ) -> Floats:
        """Bytes and passes of a layer's split, by ``KEPT`` to ``ADDING``.

        Args:
            layer: layer number.
            strategy: its decisions.
            place: where.
            adds_to_tied: whether a layer without members certainly adds to another's gradients.
        """
        key = self._split_key(layer, strategy, place, adds_to_tied)
        if key not in self._splits:
            work, pricer = self._work(layer, strategy, place, adds_to_tied)
            passes = (work.forward, work.backward(False), work.backward(True))
            row = [work.kept_bytes, work.output_bytes, *_seconds(pricer, passes)]
            self._splits[key] = np.array(row, dtype=np.float64)
        return self._splits[key]

    def weights(
        self, layer: int, strategy: LayerStrategy, place: StageContext, adds_to_tied: bool
    ) -> Floats:
        """The same of its weight gradients alone, by ``WAITING`` to ``WEIGHT_ADDING``."""
        key = self._split_key(layer, strategy, place, adds_to_tied)
        if key not in self._weights:
            work, pricer = self._work(layer, strategy, place, adds_to_tied)
            passes = (work.weight_part(False), work.weight_part(True))
            row = [work.waiting_bytes, *_seconds(pricer, passes)]
            self._weights[key] = np.array(row, dtype=np.float64)
        return self._weights[key]

    def unit(
        self, members: tuple[int, ...], strategy: LayerStrategy, ranks: int, link_span: int
    ) -> Floats:
        """Bytes and traffic of a unit, by ``RESIDENT`` to ``MOVES``.

        Args:
            members: the layers whose parameters move together; where there are none, nothing does.
            strategy: their decisions.
            ranks: of the stage.
            link_span: how many link levels the stage's groups cross.
        """
        if not members:
            return NO_UNIT
        kinds = tuple(self.lowering.kinds[i] for i in members)
        key = (kinds, self.unit_number(strategy), ranks, link_span)
        if key not in self._units:
            self._units[key] = self._unit_row(members, strategy, ranks, link_span)
        return self._units[key]

    @property
    def contiguous(self) -> bool:
        """Whether gradients have buffers of their own all along."""
        return self.lowering.stack.state_layout == "contiguous"

    def _split_key(
        self, layer: int, strategy: LayerStrategy, place: StageContext, adds_to_tied: bool
    ) -> tuple[Hashable, ...]:
        ranks, samples, link_span = place
        batch = samples // strategy.data_parallel(ranks)
        return (
            self.lowering.kinds[layer],
            self.split_number(strategy),
            batch,
            link_span,
            adds_to_tied,
        )

    def _work(
        self, layer: int, strategy: LayerStrategy, place: StageContext, adds_to_tied: bool
    ) -> tuple[LayerWork, Pricer]:
        """A layer's work in a place, and the prices there."""
        ranks, samples, link_span = place
        return self.works.of(
            layer, strategy, ranks, samples, adds_to_tied
        ), self.pricer.with_link_span(link_span)

    def _unit_row(
        self, members: tuple[int, ...], strategy: LayerStrategy, ranks: int, link_span: int
    ) -> Floats:
        unit = self.lowering.uncached_unit(members, strategy, ranks)
        cost = self.pricer.with_link_span(link_span).unit(unit)
        found = np.empty(MOVES + 3 * KINDS)
        found[RESIDENT] = resident_bytes(unit, self.contiguous)
        found[WAITING_ONE], found[WAITING_MANY] = (waiting_bytes(unit, n) for n in (1, 2))
        found[FRESH] = unit.starts_anew
        traffic = [traffic_seconds(unit, cost, kind) for kind in PASSES]
        found[MOVES:] = np.array(traffic).T.ravel()
        return found


def _seconds(pricer: Pricer, passes: tuple[tuple[LoweredPass, ...], ...]) -> list[float]:
    """Seconds of each pass, and what of them hides beside another."""
    hides = overlappable_terms(pricer)
    found = []
    for own in passes:
        cost = pricer.chained(own)
        found += [cost.time_s, sum(cost.terms_s[number] for number in hides)]
    return found
