"""Costs of a layer's legal strategies as arrays: bounds and estimates.

A strategy is a split (the layer's own work) and a sharding (communication of its parameters).
Splits and FSDP units are lowered once, and a table adds up the two, all rows at a time. Figures
are of one layer alone. ``bound`` figures never exceed the layer's part of the simulated step of
any plan with the strategy; ``estimate`` figures are its part among like neighbors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ...spec.strategy import LayerStrategy
from .arrays import NO_TIERS, Bools, Floats, Ints, Records, granted_columns, masked, with_tiers
from .layer_costs import SPLIT_COST, UNIT_COST, LayerCosts, StageContext
from .option_rows import StrategyArrays, option_rows
from .pass_kinds import ENDS, STEP_END

CP_STEP = 2**32
"""Above twice any tensor-parallel degree."""
GRADIENT_COST = np.dtype([("backward_one_s", np.float64), ("backward_many_s", np.float64)])
TECHNIQUE_COST = np.dtype([*GRADIENT_COST.descr, ("update_s", np.float64)])
"""Seconds that techniques add to the last micro-batch's backward, with one micro-batch and with
several, and to the update. Only work in the backward itself depends on split and unit together."""


@dataclass(frozen=True, slots=True)
class OptionTable:
    """Options of a layer class, for a stage width and a micro-batch.

    ``microbatch_s``: forward and backward of any one micro-batch (bound). ``step_bound_s`` and
    ``step_estimate_s``: the whole step. ``reductions_s``: those of the bound that no other stage
    waits for. ``resident_bytes``: live from the first forward on.
    ``kept_bytes``: added by every micro-batch in flight. ``extra_bytes``: gradients and buffers on
    top at the memory peak (estimate). ``layouts``: number of the activation layout (tp, cp and
    sequence parallelism). ``resident_tier_bytes`` and ``kept_tier_bytes``: the same on granted
    tiers, shape (tiers, options).
    """

    strategies: tuple[LayerStrategy, ...]
    microbatch_s: Floats
    step_bound_s: Floats
    step_estimate_s: Floats
    reductions_s: Floats
    resident_bytes: Floats
    kept_bytes: Floats
    extra_bytes: Floats
    layouts: Ints
    resident_tier_bytes: Floats = field(default_factory=lambda: NO_TIERS)
    kept_tier_bytes: Floats = field(default_factory=lambda: NO_TIERS)

    def only(self, mask: Bools) -> OptionTable:
        """The table with these rows only."""
        strategies = tuple(s for s, keep in zip(self.strategies, mask, strict=True) if keep)
        return OptionTable(
            strategies,
            self.microbatch_s[mask],
            self.step_bound_s[mask],
            self.step_estimate_s[mask],
            self.reductions_s[mask],
            self.resident_bytes[mask],
            self.kept_bytes[mask],
            self.extra_bytes[mask],
            self.layouts[mask],
            masked(self.resident_tier_bytes, mask),
            masked(self.kept_tier_bytes, mask),
        )

    def bytes_at(self, in_flight: float) -> Floats:
        """Estimated bytes with this many micro-batches in flight."""
        return self.resident_bytes + in_flight * self.kept_bytes + self.extra_bytes

    def tier_bytes_at(self, in_flight: float) -> Floats:
        """Bytes on granted tiers, shape (tiers, options)."""
        return self.resident_tier_bytes + in_flight * self.kept_tier_bytes

    def memory_at(self, in_flight: float) -> Floats:
        """``bytes_at``, then bytes on each granted tier, shape (1 + tiers, options)."""
        return with_tiers(self.bytes_at(in_flight), self.tier_bytes_at(in_flight))


def layout_number(strategy: LayerStrategy) -> int:
    """Number of an activation layout; equal ones need no redistribution."""
    tp, cp, splits = strategy.layout
    return (cp - 1) * CP_STEP + tp * 2 + int(splits)


class _StepContext(NamedTuple):
    """Stage context, micro-batches of a step, and True if passes overlap."""

    stage: StageContext
    microbatches: int
    overlaps_passes: bool


class OptionTables:
    """Cached option tables of a search, with bytes on the ``tiers`` of these numbers."""

    def __init__(self, rows: LayerCosts, tiers: Sequence[int] = ()) -> None:
        self.rows = rows
        self._tiers = tiers
        self.pricer = rows.pricer
        self._tables: dict[tuple[object, ...], OptionTable] = {}
        self._layouts = StrategyArrays(layout_number)

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
        """Option table of ``layer`` under ``strategies``.

        Args:
            layer: layer number (layers of one class share a table).
            strategies: its legal strategies; the same tuple object for equal questions.
            ranks: of the stage.
            samples: of a micro-batch over the stage.
            microbatches: of a step.
            members: layers of its FSDP unit (itself alone if None, empty if in another layer's).
            link_span: link levels spanned by the stage's groups.
            overlaps_passes: True if passes overlap: communication that overlaps with another pass
                then counts nothing, for the estimate too.
            adds_to_tied: True if a layer without members certainly adds to another's gradients.
        """
        members = (layer,) if members is None else members
        layer_classes = tuple(self.rows.lowering.kinds[i] for i in members)
        context = _StepContext(
            StageContext(ranks, samples, link_span), microbatches, overlaps_passes
        )
        adds_to_tied = adds_to_tied and not members
        layer_class = self.rows.lowering.kinds[layer]
        key = (layer_class, id(strategies), context, layer_classes, adds_to_tied)
        if key not in self._tables:
            self._tables[key] = self._build(layer, strategies, context, members, adds_to_tied)
        return self._tables[key]

    def _build(
        self,
        layer: int,
        strategies: tuple[LayerStrategy, ...],
        context: _StepContext,
        members: tuple[int, ...],
        adds_to_tied: bool,
    ) -> OptionTable:
        costs, (stage, microbatches, overlaps_passes) = self.rows, context
        units = option_rows(
            strategies,
            costs.unit_number.numbers(strategies),
            lambda s: costs.unit(members, s, stage.ranks, stage.link_span),
            UNIT_COST,
        )
        splits = option_rows(
            strategies,
            costs.split_number.numbers(strategies),
            lambda s: costs.split(layer, s, stage, adds_to_tied),
            SPLIT_COST,
        )
        accumulates = microbatches > 1 and not units["starts_anew"].all()
        added = self._technique_costs(layer, strategies, stage, members, units, accumulates)
        layer_seconds = _LayerSeconds.of(splits, added, units["starts_anew"], overlaps_passes)
        seconds = self._seconds(layer_seconds, units, microbatches)
        waiting = "waiting_many_bytes" if microbatches > 1 else "waiting_one_bytes"
        return OptionTable(
            strategies,
            *seconds,
            resident_bytes=units["resident_bytes"],
            kept_bytes=splits["kept_bytes"],
            extra_bytes=units[waiting],
            layouts=self._layouts(strategies),
            resident_tier_bytes=granted_columns(units["resident_tier_bytes"], self._tiers),
            kept_tier_bytes=granted_columns(splits["kept_tier_bytes"], self._tiers),
        )

    def _technique_costs(
        self,
        layer: int,
        strategies: tuple[LayerStrategy, ...],
        context: StageContext,
        members: tuple[int, ...],
        units: Records,
        accumulates: bool,
    ) -> Records:
        """``TECHNIQUE_COST`` of strategies; ``accumulates``: True if some backward adds up."""
        added = np.zeros(len(strategies), TECHNIQUE_COST)
        added["update_s"] = units["copy_s"][:, STEP_END]
        added["backward_one_s"] = added["backward_many_s"] = units["gradient_line_s"]
        costs, rows = self.rows, np.flatnonzero(units["adds_to_gradients"])
        if len(rows):
            units_of = costs.unit_number.numbers(strategies)
            pairs = costs.split_number.numbers(strategies) * (units_of.max() + 1) + units_of
            beside = option_rows(
                [strategies[row] for row in rows.tolist()],
                pairs[rows],
                lambda s: self._gradient_seconds(layer, s, context, members, accumulates),
                GRADIENT_COST,
            )
            for name in GRADIENT_COST.names or ():
                added[name][rows] += beside[name]
        return added

    def _gradient_seconds(
        self,
        layer: int,
        strategy: LayerStrategy,
        context: StageContext,
        members: tuple[int, ...],
        accumulates: bool,
    ) -> tuple[float, float]:
        """A ``GRADIENT_COST``; ``accumulates``: True if some backward adds to gradients."""
        costs, (ranks, samples, link_span) = self.rows, context
        pricer = self.pricer.with_link_span(link_span)
        unit = costs.lowering.uncached_unit(members, strategy, ranks)
        work = costs.works.of(layer, strategy, ranks, samples, not members)
        passes = (work.backward(accumulates=False), work.backward(accumulates=accumulates))
        one_s, many_s = (pricer.longer_s(backward, unit.added) for backward in passes)
        return one_s, many_s

    def _seconds(
        self, layer_seconds: _LayerSeconds, units: Records, microbatches: int
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """Seconds added by each row, as the fields of an option table.

        Techniques' update work follows all passes of a stage, so it is part of its step. Without
        overlap both are exact. With overlap the traffic may hide behind neighbors, so only the
        computation is certain; between like neighbors the longer of both is exposed, slowed down.
        """
        after_passes_s = units["reduce_s"][:, STEP_END]
        bound_s = estimate_s = after_passes_s + layer_seconds.update_s
        least_s, reductions_s = np.zeros(len(units)), after_passes_s
        hides = units["hides_gather"] | units["hides_reduction"]
        slowdown = self.pricer.stack.overlap_slowdown - 1.0
        for forward in (True, False):
            bounds_s = []
            for number, count in _pass_counts(microbatches):
                copy_s, wire_s, reduce_s = _traffic(units, forward, number)
                work_s = layer_seconds.pass_s(forward, *ENDS[number]) + copy_s
                kind = number + (0 if forward else len(ENDS))
                overlapped_s = np.minimum(work_s, wire_s + units["fetch_s"][:, kind])
                pass_bound_s = np.where(hides, work_s, work_s + wire_s)
                pass_estimate_s = np.where(
                    hides, np.maximum(work_s + slowdown * overlapped_s, wire_s), work_s + wire_s
                )
                lane_s = np.maximum(layer_seconds.lane_s(forward), units["fetch_s"][:, kind])
                pass_estimate_s = np.maximum(pass_estimate_s, lane_s)
                if ENDS[number][1]:
                    reductions_s = reductions_s + np.where(hides, 0.0, reduce_s)
                bound_s = bound_s + count * pass_bound_s
                estimate_s = estimate_s + count * pass_estimate_s
                bounds_s.append(np.where(hides, work_s, pass_bound_s - reduce_s))
            least_s = least_s + np.minimum.reduce(bounds_s)
        return least_s, bound_s, estimate_s, reductions_s


@dataclass(frozen=True, slots=True)
class _LayerSeconds:
    """Pass seconds by option, and techniques' additions, shape (options,).

    ``accumulating_s``: a backward that adds to gradients; ``added_one_s`` and ``added_many_s``: on
    top of the last backward, with one micro-batch and with several.
    """

    forward_s: Floats
    backward_s: Floats
    accumulating_s: Floats
    added_one_s: Floats
    added_many_s: Floats
    update_s: Floats
    starts_anew: Bools
    lanes_s: Floats

    def lane_s(self, forward: bool) -> Floats:
        """The busiest lane beside a pass."""
        seconds: Floats = self.lanes_s[:, 0 if forward else 1]
        return seconds

    @classmethod
    def of(
        cls, splits: Records, added: Records, starts_anew: Bools, overlaps_passes: bool
    ) -> _LayerSeconds:
        """Seconds of splits, less the overlappable part if passes overlap."""

        def seconds(name: str) -> Floats:
            cost = splits[name]
            time_s: Floats = cost["time_s"]
            return time_s - cost["overlappable_s"] if overlaps_passes else time_s

        return cls(
            seconds("forward"),
            seconds("backward"),
            seconds("accumulating_backward"),
            added["backward_one_s"],
            added["backward_many_s"],
            added["update_s"],
            starts_anew,
            splits["lanes_s"],
        )

    def pass_s(self, forward: bool, first: bool, last: bool) -> Floats:
        """One pass; a later backward adds to gradients still present."""
        if forward:
            return self.forward_s
        if first:
            return self.backward_s + self.added_one_s if last else self.backward_s
        seconds = np.where(self.starts_anew, self.backward_s, self.accumulating_s)
        if not last:
            return seconds
        return seconds + np.where(self.starts_anew, self.added_one_s, self.added_many_s)


def _traffic(units: Records, forward: bool, number: int) -> tuple[Floats, Floats, Floats]:
    """Copies, all communication, and the reductions in it."""
    kind = number + (0 if forward else len(ENDS))
    reduce_s = units["reduce_s"][:, kind]
    return units["copy_s"][:, kind], units["gather_s"][:, kind] + reduce_s, reduce_s


def _pass_counts(microbatches: int) -> list[tuple[int, int]]:
    """Micro-batch types (number in ``ENDS``) and the count of each."""
    if microbatches == 1:
        return [(0, 1)]
    middle = [(2, microbatches - 2)] if microbatches > 2 else []
    return [(1, 1), *middle, (3, 1)]
