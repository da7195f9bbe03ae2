"""Seconds added by each option to every pass kind: bounds' columns.

A pass of a chunk takes at least the work of its layers, and at least the communication overlapped
with it (both are streams of their own, ``costmodel.simulation.pass_time``). So for every direction
and end of the step an option has columns of work and of overlapped traffic, and any sum of passes
is at least a weighted sum of one of them for each.

While work and overlapped traffic share the device both are slower by the stack's factor f. In a row
of like layers each shares with its neighbors, whose work is at least ω, the minimum of any option:
a layer's work is certainly longer by (f - 1) of the smaller of its traffic and ω/2 each for gathers
and reductions, all but once in the row. Nothing hides a pass's first gather, nor its last
reduction, which no message waits for; and among n layers no traffic overlaps with more than the n -
1 others' work. The traffic of a row comes before or after the exposed work of one of its layers: a
layer that both gathers and reduces promises the less. Or all traffic is on the wire, in turn. What
lanes do before a gather is slow beside work as the gather is, and shows with a pass's first one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import NamedTuple

import numpy as np

from ...spec.strategy import LayerStrategy
from ..space.in_flight import InFlight
from .arrays import NO_TIERS, Bools, Floats, Records, granted_columns, masked, with_tiers
from .layer_costs import SPLIT_COST, UNIT_COST, WEIGHT_PASS_COST, LayerCosts, StageContext
from .option_rows import option_rows
from .pass_kinds import DIRECTIONS, ENDS, KINDS, SENDING, STEP_END
from .value_chords import ValueChords

PASS_COLUMNS = np.dtype(
    [
        ("work", np.float64, (KINDS,)),
        ("traffic", np.float64, (KINDS,)),
        ("overlappable", np.float64, (KINDS,)),
        ("slowdown", np.float64, (KINDS,)),
        ("wire", np.float64, (KINDS,)),
    ]
)
"""Seconds (or their weights) by kind of pass: work; overlapped traffic with the exposed work of one
layer; the part of the work that may overlap with another pass; by how much work is longer beside
traffic; overlapped traffic."""
MAX_UNFILTERED, WEIGHT_SAMPLES, WEIGHT_EXPONENT = 32, 200, 4
"""Tables of few options are left whole; weights by which dominating options of others are found."""


@dataclass(frozen=True, slots=True)
class PassTable:
    """Options of a layer class in a stage context.

    ``columns``: ``PASS_COLUMNS``, shape (options,). Of shape (options, KINDS): ``hidden_s``,
    overlapped traffic; ``fetched_s``, work of lanes before its gather; ``first_exposed_s`` and
    ``last_exposed_s``, the exposed part where a chunk begins or ends with the layer; ``inner_s``,
    serial reductions before the pass's message unless the chunk begins with the layer. Of shape
    (KINDS,): ``once_s`` and ``traffic_once_s``, the slowdown and the traffic column's excess in a
    pass, negative; ``least_s`` and ``most_s``, minimum and maximum work of a layer. Of shape
    (options,): ``resident_bytes``, held all along; ``kept_bytes``, by every micro-batch in flight;
    ``backward_peak_bytes``, beyond those in a backward that begins with the layer;
    ``waiting_bytes``, by one waiting for weight gradients alone; ``accumulated_bytes``, gradients
    of earlier micro-batches; ``output_bytes``, sent to the next layer. Of shape (tiers, options),
    for granted tiers: ``resident_tier_bytes`` and ``kept_tier_bytes``, as on the device.
    """

    strategies: tuple[LayerStrategy, ...]
    columns: Records
    hidden_s: Floats
    fetched_s: Floats
    first_exposed_s: Floats
    last_exposed_s: Floats
    inner_s: Floats
    once_s: Floats
    least_s: Floats
    most_s: Floats
    resident_bytes: Floats
    accumulated_bytes: Floats
    kept_bytes: Floats
    backward_peak_bytes: Floats
    waiting_bytes: Floats
    output_bytes: Floats
    traffic_once_s: Floats = field(default_factory=lambda: np.zeros(KINDS))
    resident_tier_bytes: Floats = field(default_factory=lambda: NO_TIERS)
    kept_tier_bytes: Floats = field(default_factory=lambda: NO_TIERS)

    def exposed_s(self, layers: int, most_s: Floats, first: bool, last: bool) -> Floats:
        """Seconds of traffic beyond the columns, shape (options, KINDS).

        Args:
            layers: of the chunk.
            most_s: maximum work of any of them, shape (KINDS,).
            first: True if the chunk begins with this layer.
            last: True if it ends with it.
        """
        seconds: Floats = np.maximum(self.hidden_s - (layers - 1) * most_s, 0.0)
        seconds = np.maximum(seconds, self.first_exposed_s) if first else seconds
        seconds = np.maximum(seconds, self.last_exposed_s) if last else seconds
        return seconds if first else seconds + self.inner_s

    def only(self, mask: Bools) -> PassTable:
        """The table with these options only."""
        return replace(
            self,
            strategies=tuple(s for s, keep in zip(self.strategies, mask, strict=True) if keep),
            columns=self.columns[mask],
            hidden_s=self.hidden_s[mask],
            fetched_s=self.fetched_s[mask],
            first_exposed_s=self.first_exposed_s[mask],
            last_exposed_s=self.last_exposed_s[mask],
            inner_s=self.inner_s[mask],
            resident_bytes=self.resident_bytes[mask],
            accumulated_bytes=self.accumulated_bytes[mask],
            kept_bytes=self.kept_bytes[mask],
            backward_peak_bytes=self.backward_peak_bytes[mask],
            waiting_bytes=self.waiting_bytes[mask],
            output_bytes=self.output_bytes[mask],
            resident_tier_bytes=masked(self.resident_tier_bytes, mask),
            kept_tier_bytes=masked(self.kept_tier_bytes, mask),
        )

    def bytes_at(self, in_flight: InFlight, is_last: bool = False) -> Floats:
        """Bytes of the options, by micro-batches in the layer's chunk, at whose end it may be."""
        total = self.resident_bytes + in_flight.in_flight * self.kept_bytes
        total += in_flight.waiting * self.waiting_bytes
        if is_last and in_flight.backward:
            total += self.backward_peak_bytes
        return total + self.accumulated_bytes if in_flight.accumulated else total

    def memory_at(self, in_flight: InFlight, is_last: bool = False) -> Floats:
        """``bytes_at``, then bytes on each granted tier, shape (1 + tiers, options)."""
        tier_bytes = self.resident_tier_bytes + in_flight.in_flight * self.kept_tier_bytes
        return with_tiers(self.bytes_at(in_flight, is_last), tier_bytes)


def once_per_pass(tables: Sequence[PassTable]) -> tuple[Floats, Floats]:
    """Seconds once per pass for any number of layers, shape (KINDS,) each.

    Returns:
        Excess of the slowdown columns, and work left exposed by the traffic, less the excess of
        its columns.
    """
    once_s: Floats = np.sum([table.once_s for table in tables], axis=0)
    least_s: Floats = np.min([table.least_s for table in tables], axis=0)
    traffic_once_s: Floats = np.sum([table.traffic_once_s for table in tables], axis=0)
    return once_s, least_s + traffic_once_s


def non_dominated(table: PassTable) -> PassTable:
    """The table without options dominated in every figure.

    No weighting of figures, none negative, has its minimum at those alone. Each is compared only
    with the minima of a few weightings, so some remain.
    """
    columns = table.columns
    figures = np.concatenate(
        [
            columns["work"] - columns["overlappable"],
            columns["overlappable"],
            columns["traffic"],
            columns["slowdown"],
            columns["wire"],
            table.hidden_s,
            table.fetched_s,
            table.first_exposed_s,
            table.last_exposed_s,
            table.inner_s,
            np.stack([table.resident_bytes, table.accumulated_bytes, table.kept_bytes], axis=1),
            np.stack([table.backward_peak_bytes, table.waiting_bytes, table.output_bytes], axis=1),
            *(t.T for t in (table.resident_tier_bytes, table.kept_tier_bytes) if len(t)),
        ],
        axis=1,
    )
    figures = figures[:, np.ptp(figures, axis=0) > 0]
    if len(figures) <= MAX_UNFILTERED or not figures.shape[1]:
        return table
    scaled = figures / figures.mean(axis=0)
    weights = np.random.default_rng(0).random((scaled.shape[1], WEIGHT_SAMPLES)) ** WEIGHT_EXPONENT
    kept = np.ones(len(figures), dtype=bool)
    for best in np.unique(np.argmin(scaled @ weights, axis=0)).tolist():
        if not kept[best]:  # by an identical one: which of them a weighting finds is rounding
            continue
        dominated = (figures >= figures[best]).all(axis=1)
        dominated[best] = False
        kept &= ~dominated
    return table.only(kept)


class _PassSeconds(NamedTuple):
    """Arrays of seconds of a pass table, by its field names."""

    columns: Records
    hidden_s: Floats
    fetched_s: Floats
    first_exposed_s: Floats
    last_exposed_s: Floats
    inner_s: Floats
    once_s: Floats
    least_s: Floats
    most_s: Floats


class PassTables:
    """Builder of pass tables, with bytes on the ``tiers`` of these numbers."""

    def __init__(self, rows: LayerCosts, tiers: Sequence[int] = ()) -> None:
        self._layer_costs = rows
        self._tiers = tiers
        self._pricer = rows.pricer
        self._chords = ValueChords()

    def table(
        self,
        layer: int,
        strategies: tuple[LayerStrategy, ...],
        context: StageContext,
        members: tuple[int, ...],
        splits: bool,
        adds_to_tied: bool = True,
    ) -> PassTable:
        """Pass table of ``layer`` under ``strategies``.

        Args:
            layer: layer number.
            strategies: its legal strategies.
            context: of its stage.
            members: layers of its FSDP unit.
            splits: True if some schedule splits backwards.
            adds_to_tied: True if a layer without members certainly adds to another's gradients.
        """
        costs = self._layer_costs
        adds_to_tied = adds_to_tied and not members
        numbers = costs.split_number.numbers(strategies)
        unit = option_rows(
            strategies,
            costs.unit_number.numbers(strategies),
            lambda s: costs.unit(members, s, context.ranks, context.link_span),
            UNIT_COST,
        )
        split = option_rows(
            strategies, numbers, lambda s: costs.split(layer, s, context, adds_to_tied), SPLIT_COST
        )
        weight_passes = np.zeros(len(strategies), WEIGHT_PASS_COST)
        if splits:
            weight_passes = option_rows(
                strategies,
                numbers,
                lambda s: costs.weight_passes(layer, s, context, adds_to_tied),
                WEIGHT_PASS_COST,
            )
        kept = self._chords.ends(strategies, split, weight_passes, unit)
        if not kept.all():
            split, weight_passes, unit = split[kept], weight_passes[kept], unit[kept]
            strategies = tuple(s for s, keep in zip(strategies, kept, strict=True) if keep)
        # where gradients are contiguous, those of earlier micro-batches are resident
        accumulated = 0.0 if costs.contiguous else 1.0
        table = PassTable(
            strategies,
            *self._seconds(split, weight_passes, unit),
            resident_bytes=unit["resident_bytes"],
            accumulated_bytes=accumulated * unit["waiting_many_bytes"],
            kept_bytes=split["kept_bytes"],
            backward_peak_bytes=np.maximum(
                unit["gathering_bytes"], unit["gathered_bytes"] + split["backward_peak_bytes"]
            ),
            waiting_bytes=weight_passes["waiting_bytes"],
            output_bytes=split["output_bytes"],
            resident_tier_bytes=granted_columns(unit["resident_tier_bytes"], self._tiers),
            kept_tier_bytes=granted_columns(split["kept_tier_bytes"], self._tiers),
        )
        return non_dominated(table)

    def _seconds(self, split: Records, weight_passes: Records, unit: Records) -> _PassSeconds:
        passes_s, overlappable_s = (
            _by_kind(split, weight_passes, unit["starts_anew"], field)
            for field in ("time_s", "overlappable_s")
        )
        gathers, reductions = unit["gather_s"], unit["reduce_s"].copy()
        hides_gather, hides_reduction = unit["hides_gather"], unit["hides_reduction"]
        extra = self._pricer.stack.overlap_slowdown - 1.0
        serial_s = passes_s + unit["copy_s"]
        inner_s = np.zeros_like(serial_s)
        inner_s[~hides_reduction, SENDING] = reductions[~hides_reduction, SENDING]
        reductions[:, SENDING] = 0.0
        gathered_s = np.where(hides_gather[:, None], gathers, 0.0)
        reduced_s = np.where(hides_reduction[:, None], reductions, 0.0)
        least_s = serial_s.min(axis=0)
        least_s[STEP_END] = 0.0  # nothing runs beside an update
        fetched_s = unit["fetch_s"]
        beside_s = (gathered_s + fetched_s, reduced_s)
        slowdown_s = [extra * np.minimum(t, least_s / 2) for t in beside_s]
        exposed_work_s = np.where((gathered_s > 0) & (reduced_s > 0), least_s, 0.0)
        columns = np.empty(len(split), PASS_COLUMNS)
        columns["work"] = serial_s + (gathers - gathered_s) + (reductions - reduced_s)
        columns["traffic"] = np.maximum(gathered_s + reduced_s - exposed_work_s, 0.0)
        columns["overlappable"] = overlappable_s
        columns["slowdown"] = slowdown_s[0] + slowdown_s[1]
        columns["wire"] = gathered_s + reduced_s
        for name in ("traffic", "wire"):  # nothing is overlapped: all weightings say the same
            columns[name][:, STEP_END] = columns["work"][:, STEP_END]
        forward = np.arange(KINDS) < len(ENDS)
        return _PassSeconds(
            columns,
            hidden_s=gathered_s + reduced_s,
            fetched_s=fetched_s,
            first_exposed_s=np.where(forward, gathered_s + fetched_s, reduced_s),
            last_exposed_s=np.where(forward, 0.0, gathered_s + fetched_s),
            inner_s=inner_s,
            once_s=-slowdown_s[0].max(axis=0) - slowdown_s[1].max(axis=0),
            least_s=least_s,
            most_s=serial_s.max(axis=0),
        )


def with_adjacent_layers(tables: Mapping[int, PassTable], slowdown: float) -> dict[int, PassTable]:
    """Tables of possible neighbors, with their common minimum work.

    Args:
        tables: of each layer class of a stage context.
        slowdown: factor of work and traffic sharing the device.
    """
    half_s = np.min([table.least_s for table in tables.values()], axis=0) / 2
    adjacent = {}
    for layer_class, table in tables.items():
        first_s = table.first_exposed_s
        other_s = table.hidden_s + table.fetched_s - first_s
        terms = [(slowdown - 1.0) * np.minimum(t, half_s) for t in (first_s, other_s)]
        columns = table.columns.copy()
        columns["slowdown"] = np.minimum(columns["slowdown"], terms[0] + terms[1])
        once_s = np.minimum(table.once_s, -terms[0].max(axis=0) - terms[1].max(axis=0))
        adjacent[layer_class] = replace(table, columns=columns, once_s=once_s)
    return adjacent


def _by_kind(split: Records, weight_passes: Records, starts_anew: Bools, field: str) -> Floats:
    """A field of ``PASS_COST`` by pass kind, shape (options, KINDS).

    Args:
        split: ``SPLIT_COST`` of the options.
        weight_passes: ``WEIGHT_PASS_COST`` of the options.
        starts_anew: by option, True if every micro-batch starts gradients anew.
        field: of ``PASS_COST``.
    """
    by_direction = {}
    for backward in ("backward", "accumulating_backward"):
        whole, weight = split[backward][field], weight_passes[backward][field]
        by_direction[backward] = {
            "forward": split["forward"][field],
            "whole": whole,
            "input": whole - weight,
            "weight": weight,
            "sending": whole,
        }
    seconds = np.zeros((len(split), KINDS))
    for number, (direction, (first, _)) in enumerate(product(DIRECTIONS, ENDS)):
        plain = by_direction["backward"][direction]
        later = plain if first else by_direction["accumulating_backward"][direction]
        seconds[:, number] = np.where(starts_anew, plain, later)
    return seconds
