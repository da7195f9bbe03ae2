"""What each option of a layer adds to every kind of pass: the columns that bounds weigh.

A pass of a chunk takes at least the work of its layers, and at least the traffic that the stack
hides beside them (both are streams of their own, :mod:`pass_time`). So for every
direction and end of the step an option has columns of work and of hidden traffic, and whatever is
a sum of passes is at least a weighted sum of one of them for each.

While work and hidden traffic share the device both are slower by the stack's factor f. In a row of
like layers each shares with its neighbours, whose work is at least ω, the least of any option: it
is certain that a layer's work is longer by (f - 1) of the smaller of its traffic and ω/2 each for
gathers and reductions, all but once in the row. Nothing hides the gather of the layer that a pass
begins with, nor the reduction of the one it ends with; and among n layers no traffic hides beside
more than the n - 1 others' work. Alone, the traffic of a row comes before or after the work of one
of its layers, which no other hides: a layer that both gathers and reduces promises the less. Or all
traffic is on the wire, in turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ...spec.strategy import LayerStrategy
from ..space.in_flight import InFlight
from .layer_costs import (
    ADDING,
    BACKWARD,
    FORWARD,
    FRESH,
    KEPT,
    MOVES,
    OUTPUT,
    RESIDENT,
    WAITING,
    WAITING_MANY,
    WEIGHT,
    WEIGHT_ADDING,
    LayerCosts,
    StageContext,
)
from .option_rows import option_rows
from .pass_kinds import DIRECTIONS, ENDS, KINDS

Floats = NDArray[np.float64]

WORK, TRAFFIC, INSIDE, SHARED, WIRE = range(5)
"""Columns of a kind of pass: work; hidden traffic with some work of one layer; what of the work
hides beside another pass; by how much work is longer beside traffic; hidden traffic."""
COLUMNS = 5
MAX_UNFILTERED, WEIGHT_SAMPLES, WEIGHT_EXPONENT = 32, 200, 4
"""Tables of few options are left whole; weights by which the best of others are found."""


@dataclass(frozen=True, slots=True)
class PassTable:
    """The options of a layer kind in a place.

    ``columns``: seconds, shape (options, COLUMNS, KINDS). ``hidden_s``: hidden traffic in all, of
    a layer that a chunk begins with, of one that it ends with, shape (3, options, KINDS).
    ``once_s``: what the SHARED column of such layers promises too much in a pass, as a negative
    number, ``least_s`` and ``most_s``: the least and the most work of a layer, each of shape
    (KINDS,). ``resident_bytes`` and ``kept_bytes``: held all along and by every micro-batch in
    flight, ``waiting_bytes``: by one whose weight gradients alone are to come,
    ``accumulated_bytes``:
    gradients of micro-batches before, ``output_bytes``: what the layer hands to the next, each of
    shape (options,).
    """

    strategies: tuple[LayerStrategy, ...]
    columns: Floats
    hidden_s: Floats
    once_s: Floats
    least_s: Floats
    most_s: Floats
    resident_bytes: Floats
    accumulated_bytes: Floats
    kept_bytes: Floats
    waiting_bytes: Floats
    output_bytes: Floats

    def exposed_s(self, layers: int, most_s: Floats, first: bool, last: bool) -> Floats:
        """Hidden traffic that shows all the same, shape (options, KINDS).

        Args:
            layers: of the chunk.
            most_s: the most work of any of them, shape (KINDS,).
            first: whether the chunk begins with this layer.
            last: whether it ends with it.
        """
        every_s, first_s, last_s = self.hidden_s
        found: Floats = np.maximum(every_s - (layers - 1) * most_s, 0.0)
        found = np.maximum(found, first_s) if first else found
        found = np.maximum(found, last_s) if last else found
        return found

    def only(self, kept: NDArray[np.bool_]) -> PassTable:
        """The table with these options only."""
        return replace(
            self,
            strategies=tuple(s for s, keep in zip(self.strategies, kept, strict=True) if keep),
            columns=self.columns[kept],
            hidden_s=self.hidden_s[:, kept],
            resident_bytes=self.resident_bytes[kept],
            accumulated_bytes=self.accumulated_bytes[kept],
            kept_bytes=self.kept_bytes[kept],
            waiting_bytes=self.waiting_bytes[kept],
            output_bytes=self.output_bytes[kept],
        )

    def bytes_at(self, held: InFlight) -> Floats:
        """Bytes while the layer's chunk holds so much."""
        found = self.resident_bytes + held.in_flight * self.kept_bytes
        found += held.waiting * self.waiting_bytes
        return found + self.accumulated_bytes if held.accumulated else found


def once_per_pass(tables: Sequence[PassTable]) -> tuple[Floats, Floats]:
    """What a pass of such layers has but once, whatever their number, each of shape (KINDS,).

    Returns:
        What their SHARED columns promise too much, and the work that their traffic leaves alone.
    """
    once_s: Floats = np.sum([table.once_s for table in tables], axis=0)
    least_s: Floats = np.min([table.least_s for table in tables], axis=0)
    return once_s, least_s


def non_dominated(table: PassTable) -> PassTable:
    """The table without options that another beats, or equals, in every figure.

    Whatever weighs figures, none of them below zero, is never best with those alone. Not all are
    found: each is compared with the best by a few weights.
    """
    work_s, inside_s = table.columns[:, WORK], table.columns[:, INSIDE]
    figures = np.concatenate(
        [
            work_s - inside_s,
            inside_s,
            table.columns[:, TRAFFIC],
            table.columns[:, SHARED],
            table.columns[:, WIRE],
            *table.hidden_s,
            np.stack([table.resident_bytes, table.accumulated_bytes, table.kept_bytes], axis=1),
            np.stack([table.waiting_bytes, table.output_bytes], axis=1),
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
        if not kept[best]:  # by one that is alike: which of them a weight finds is rounding
            continue
        beaten = (figures >= figures[best]).all(axis=1)
        beaten[best] = False
        kept &= ~beaten
    return table.only(kept)


class PassTables:
    """Builds pass tables.

    Args:
        rows: of the splits and units of the request.
    """

    def __init__(self, rows: LayerCosts) -> None:
        self._rows = rows
        self._pricer = rows.pricer

    def table(
        self,
        layer: int,
        strategies: tuple[LayerStrategy, ...],
        place: StageContext,
        members: tuple[int, ...],
        splits: bool,
        adds_to_tied: bool = True,
    ) -> PassTable:
        """The table of ``layer`` under ``strategies``.

        Args:
            layer: layer number.
            strategies: its legal strategies.
            place: ranks of the stage, samples of a micro-batch over it, link levels that its
                groups cross.
            members: the layers whose parameters move with this one's.
            splits: whether backwards are in two parts somewhere.
            adds_to_tied: whether a layer without members certainly adds to another's gradients.
        """
        rows, (ranks, _, link_span) = self._rows, place
        adds_to_tied = adds_to_tied and not members
        unit = option_rows(
            strategies, rows.unit_number, lambda s: rows.unit(members, s, ranks, link_span)
        )
        split = option_rows(
            strategies, rows.split_number, lambda s: rows.split(layer, s, place, adds_to_tied)
        )
        weights = np.zeros((len(strategies), WEIGHT_ADDING + 2))
        if splits:
            weights = option_rows(
                strategies, rows.split_number, lambda s: rows.weights(layer, s, place, adds_to_tied)
            )
        # where gradients are contiguous, those of micro-batches before are resident
        accumulated = 0.0 if rows.contiguous else 1.0
        found = PassTable(
            strategies,
            **self._columns(_passes(split, weights), unit),
            resident_bytes=unit[:, RESIDENT],
            accumulated_bytes=accumulated * unit[:, WAITING_MANY],
            kept_bytes=split[:, KEPT],
            waiting_bytes=weights[:, WAITING],
            output_bytes=split[:, OUTPUT],
        )
        return non_dominated(found)

    def _columns(self, split: Floats, unit: Floats) -> dict[str, Floats]:
        """The seconds of a table, by the names that it has for them."""
        copies, gathers, reductions = np.split(unit[:, MOVES:], 3, axis=1)
        bare_s, inside_s = _by_kind(split, fresh=unit[:, FRESH] > 0)
        hides, extra = self._pricer.overlaps, self._pricer.stack.overlap_slowdown - 1.0
        own_s = bare_s + copies
        gathered_s = gathers if hides.dp_parameter else np.zeros_like(gathers)
        reduced_s = reductions if hides.dp_gradient else np.zeros_like(reductions)
        work_s = own_s + (gathers - gathered_s) + (reductions - reduced_s)
        least_s = own_s.min(axis=0)
        shared_s = [extra * np.minimum(t, least_s / 2) for t in (gathered_s, reduced_s)]
        both = (gathered_s > 0) & (reduced_s > 0)
        lone_s = np.where(both, least_s, 0.0)
        traffic_s = np.maximum(gathered_s + reduced_s - lone_s, 0.0)
        wire_s = gathered_s + reduced_s
        forward = np.arange(KINDS) < len(ENDS)
        first_s = np.where(forward, gathered_s, reduced_s)
        last_s = np.where(forward, 0.0, gathered_s)
        return {
            "columns": np.stack([work_s, traffic_s, inside_s, sum(shared_s), wire_s], axis=1),
            "hidden_s": np.stack([gathered_s + reduced_s, first_s, last_s]),
            "once_s": -shared_s[0].max(axis=0) - shared_s[1].max(axis=0),
            "least_s": least_s,
            "most_s": own_s.max(axis=0),
        }


def with_adjacent_layers(tables: Mapping[int, PassTable], slowdown: float) -> dict[int, PassTable]:
    """Tables whose layers may stand beside each other: the least work of any of them is shared.

    Args:
        tables: of each kind of a place.
        slowdown: factor of work and traffic while they share the device.
    """
    half_s = np.min([table.least_s for table in tables.values()], axis=0) / 2
    found = {}
    for kind, table in tables.items():
        every_s, first_s, _ = table.hidden_s
        parts = [(slowdown - 1.0) * np.minimum(t, half_s) for t in (first_s, every_s - first_s)]
        columns = table.columns.copy()
        columns[:, SHARED] = np.minimum(columns[:, SHARED], parts[0] + parts[1])
        once_s = np.minimum(table.once_s, -parts[0].max(axis=0) - parts[1].max(axis=0))
        found[kind] = replace(table, columns=columns, once_s=once_s)
    return found


def _passes(split: Floats, weights: Floats) -> Floats:
    """Seconds of passes, each with what of it hides beside another.

    Forward; the backward whole, its input part, its weight part; those where they add to gradients.
    """
    forward = split[:, FORWARD : FORWARD + 2]
    parts = [forward]
    for whole, weight in ((BACKWARD, WEIGHT), (ADDING, WEIGHT_ADDING)):
        every_s, own_s = split[:, whole : whole + 2], weights[:, weight : weight + 2]
        parts += [every_s, every_s - own_s, own_s]
    return np.concatenate(parts, axis=1)


def _by_kind(split: Floats, fresh: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Seconds of each kind of pass, and what of them hides beside another, (options, KINDS).

    Args:
        split: seconds of passes that add to gradients or not, as :func:`_passes` lists them.
        fresh: whether gradients start anew with every micro-batch, of each option.
    """
    own_s, inside_s = np.empty((len(split), KINDS)), np.empty((len(split), KINDS))
    for number, (direction, (first, _)) in enumerate(product(range(len(DIRECTIONS)), ENDS)):
        plain = 0 if direction == 0 else 2 * direction
        added = plain if direction == 0 or first else plain + 6
        own_s[:, number] = np.where(fresh, split[:, plain], split[:, added])
        inside_s[:, number] = np.where(fresh, split[:, plain + 1], split[:, added + 1])
    return own_s, inside_s
