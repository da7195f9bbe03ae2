"""Costs of every legal strategy of a layer, as arrays: for bounds, estimates and searches.

A strategy is a split (what shapes the layer's own work) and a sharding (what moves its
parameters). Splits are lowered once, units of parameters once, and a row of a table adds up
the two, all rows at a time. All figures are of one layer alone. ``bound`` figures never exceed
what the layer adds to the simulated step of any plan that uses the strategy; ``estimate``
figures are what it adds where its neighbours look alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...spec.strategy import LayerStrategy
from .layer_costs import (
    ADDING,
    BACKWARD,
    FORWARD,
    FRESH,
    KEPT,
    MOVES,
    RESIDENT,
    WAITING_MANY,
    WAITING_ONE,
    LayerCosts,
    StageContext,
)
from .option_rows import option_rows
from .pass_kinds import ENDS, KINDS

CP_STEP = 2**32
"""Above twice any tensor-parallel degree."""
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class OptionTable:
    """One row a strategy of a layer kind, for a stage width and a micro-batch.

    ``microbatch_s``: forward and backward of any one micro-batch (bound).
    ``step_bound_s`` and ``step_estimate_s``: the whole step. ``resident_bytes``: live from the
    first forward on. ``kept_bytes``: added by every micro-batch in flight. ``extra_bytes``:
    gradients and buffers on top at the fullest moment (estimate). ``layouts``: number of the
    activation layout (tp, cp and sequence parallelism).
    """

    strategies: tuple[LayerStrategy, ...]
    microbatch_s: Floats
    step_bound_s: Floats
    step_estimate_s: Floats
    resident_bytes: Floats
    kept_bytes: Floats
    extra_bytes: Floats
    layouts: NDArray[np.int64]

    def only(self, rows: NDArray[np.bool_]) -> OptionTable:
        """The table with these rows only."""
        strategies = tuple(s for s, keep in zip(self.strategies, rows, strict=True) if keep)
        return OptionTable(
            strategies,
            self.microbatch_s[rows],
            self.step_bound_s[rows],
            self.step_estimate_s[rows],
            self.resident_bytes[rows],
            self.kept_bytes[rows],
            self.extra_bytes[rows],
            self.layouts[rows],
        )

    def bytes_at(self, in_flight: float) -> Floats:
        """Estimated bytes with this many micro-batches in flight."""
        return self.resident_bytes + in_flight * self.kept_bytes + self.extra_bytes


def layout_number(strategy: LayerStrategy) -> int:
    """A number for an activation layout: layers with equal ones need no move between."""
    tp, cp, splits = strategy.layout
    return (cp - 1) * CP_STEP + tp * 2 + int(splits)


class OptionTables:
    """Builds the tables of a search and keeps them.

    Args:
        rows: of the splits and units of a request.
    """

    def __init__(self, rows: LayerCosts) -> None:
        self.rows = rows
        self.pricer = rows.pricer
        self._tables: dict[tuple[object, ...], OptionTable] = {}

    def table(
        self,
        layer: int,
        strategies: tuple[LayerStrategy, ...],
        ranks: int,
        samples: int,
        microbatches: int,
        members: tuple[int, ...] | None = None,
        link_span: int = 1,
        overlaps_passes: bool = False,
        adds_to_tied: bool = True,
    ) -> OptionTable:
        """The table of ``layer`` under ``strategies``.

        Args:
            layer: layer number (layers of one kind share a table).
            strategies: its legal strategies; the same tuple object for equal questions.
            ranks: ranks of the stage.
            samples: samples of a micro-batch over the stage.
            microbatches: micro-batches of a step.
            members: the layers whose parameters move with this one's (itself alone if None,
                none where they move with another layer's).
            link_span: how many link levels the stage's groups cross.
            overlaps_passes: whether passes overlap: communication that hides in another then counts
                nothing, for the estimate too.
            adds_to_tied: whether a layer without members certainly adds to another's gradients.
        """
        members = (layer,) if members is None else members
        kinds = tuple(self.rows.lowering.kinds[i] for i in members)
        place = (ranks, samples, microbatches, link_span, overlaps_passes)
        adds_to_tied = adds_to_tied and not members
        key = (self.rows.lowering.kinds[layer], id(strategies), *place, kinds, adds_to_tied)
        if key not in self._tables:
            self._tables[key] = self._build(layer, strategies, place, members, adds_to_tied)
        return self._tables[key]

    def _build(
        self,
        layer: int,
        strategies: tuple[LayerStrategy, ...],
        place: tuple[int, int, int, int, bool],
        members: tuple[int, ...],
        adds_to_tied: bool,
    ) -> OptionTable:
        ranks, samples, microbatches, link_span, overlaps_passes = place
        rows, held = self.rows, (ranks, samples, link_span)
        units = option_rows(
            strategies, rows.unit_number, lambda s: rows.unit(members, s, ranks, link_span)
        )
        splits = option_rows(
            strategies, rows.split_number, lambda s: rows.split(layer, s, held, adds_to_tied)
        )
        added = np.zeros((len(strategies), 3))
        if members and any(strategy.techniques for strategy in strategies):
            accumulates = microbatches > 1 and not units[:, FRESH].all()
            added = option_rows(
                strategies,
                lambda s: (rows.split_number(s), rows.unit_number(s)),
                lambda s: self._added_row(layer, s, held, members, accumulates),
            )
        seconds = self._seconds(
            np.hstack([_beside(splits, overlaps_passes), added]), units, microbatches
        )
        waits = units[:, WAITING_MANY] if microbatches > 1 else units[:, WAITING_ONE]
        return OptionTable(
            strategies,
            *seconds,
            resident_bytes=units[:, RESIDENT],
            kept_bytes=splits[:, KEPT],
            extra_bytes=waits,
            layouts=np.array([layout_number(s) for s in strategies], dtype=np.int64),
        )

    def _added_row(
        self,
        layer: int,
        strategy: LayerStrategy,
        place: StageContext,
        members: tuple[int, ...],
        accumulates: bool,
    ) -> list[float]:
        """By how much techniques make the last backward longer, of one and of several, and updates.

        ``accumulates``: whether some backward adds to gradients.
        """
        rows, (ranks, samples, link_span) = self.rows, place
        pricer = self.pricer.with_link_span(link_span)
        unit = rows.lowering.uncached_unit(members, strategy, ranks)
        work = rows.works.of(layer, strategy, ranks, samples, not members)
        ways = (work.backward(accumulates=False), work.backward(accumulates=accumulates))
        update_s = sum(sum(pricer.split(items)) for _, items in unit.added_update)
        return [*(pricer.longer_s(way, unit.added) for way in ways), update_s]

    def _seconds(
        self, splits: Floats, units: Floats, microbatches: int
    ) -> tuple[Floats, Floats, Floats]:
        """What each row adds: bound on any one micro-batch, bound and estimate of the step.

        A stage does what techniques add to its update after all of its passes, so that is part of
        its step. In line both are exact. With overlap the traffic may hide behind neighbours, so
        only the computation is certain; between like neighbours the longer of both shows,
        stretched.
        """
        least_s = bound_s = estimate_s = np.zeros(len(splits))
        for forward in (True, False):
            lows = []
            for number, count in _pass_counts(microbatches):
                copy_s, wire_s = _traffic(units, forward, number)
                work_s = _layer_seconds(splits, units, forward, *ENDS[number]) + copy_s
                if not self.pricer.hides_sharding:
                    low_s = estimated_s = work_s + wire_s
                else:
                    beside_s = np.minimum(work_s, wire_s)
                    slowdown = self.pricer.stack.overlap_slowdown - 1.0
                    low_s, estimated_s = work_s, np.maximum(work_s + slowdown * beside_s, wire_s)
                bound_s = bound_s + count * low_s
                estimate_s = estimate_s + count * estimated_s
                lows.append(low_s)
            least_s = least_s + np.minimum.reduce(lows)
        return least_s, bound_s + splits[:, UPDATES], estimate_s + splits[:, UPDATES]


OWN_FORWARD, OWN_BACKWARD, ACCUMULATING, COMPLETES_ALONE, COMPLETES, UPDATES = range(6)
"""Seconds of passes, by how much the last micro-batch's backward is longer for what techniques do
then (of one micro-batch, of several), and seconds that they add to the update."""


def _beside(splits: Floats, overlaps_passes: bool) -> Floats:
    """Seconds of forward, backward and one that adds, less what may hide beside other passes."""
    passes = splits[:, [FORWARD, BACKWARD, ADDING]]
    return (
        passes - splits[:, [FORWARD + 1, BACKWARD + 1, ADDING + 1]] if overlaps_passes else passes
    )


def _layer_seconds(splits: Floats, units: Floats, forward: bool, first: bool, last: bool) -> Floats:
    """The layer's own pass; a later backward adds to gradients unless they were moved away."""
    if forward:
        return splits[:, OWN_FORWARD]
    if first:
        own_s = splits[:, OWN_BACKWARD]
        return own_s + splits[:, COMPLETES_ALONE] if last else own_s
    fresh = units[:, FRESH] > 0
    own_s = np.where(fresh, splits[:, OWN_BACKWARD], splits[:, ACCUMULATING])
    if not last:
        return own_s
    return own_s + np.where(fresh, splits[:, COMPLETES_ALONE], splits[:, COMPLETES])


def _traffic(units: Floats, forward: bool, number: int) -> tuple[Floats, Floats]:
    """Copies, and gather and reduction together, of units in a whole pass."""
    kind = MOVES + number + (0 if forward else len(ENDS))
    return units[:, kind], units[:, kind + KINDS] + units[:, kind + 2 * KINDS]


def _pass_counts(microbatches: int) -> list[tuple[int, int]]:
    """Kinds of micro-batches (number in ``ENDS``) and how many there are of each."""
    if microbatches == 1:
        return [(0, 1)]
    middle = [(2, microbatches - 2)] if microbatches > 2 else []
    return [(1, 1), *middle, (3, 1)]
