"""The linear program of a relaxed step, over some options of each cell and some chains.

Variables: the step T; seconds of each kind of pass of each position, t; layers of a cell under an
option, y ≥ 0, which need not be whole. T is at least every chain's sum of t; each t is at least
what its layers take by each of ``WEIGHTED_COLUMNS``; pairs of passes that overlap take at least
what both
leave; each stage's layers fit its bytes, or cost what no step does. Its dual values are the prices
of :mod:`dual_prices`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

import numpy as np

from ..chains.chain_weights import WEIGHTED_COLUMNS
from ..chains.fixed_cuts import Floats
from ..chains.pass_chains import Chain
from ..tables.pass_kinds import KINDS
from ..tables.pass_table import INSIDE, WORK
from .dual_prices import DualPrices, make_dual_prices, outgoing_messages
from .layer_groups import WEIGHTING_COUNT, LayerGroups
from .lp_solver import INFINITE, LpSolver

FractionalOptions = list[dict[int, float]]
"""Layers of each cell by their option."""
TINY = 1e-9
OVERFLOW_PENALTY_S = 1e5
"""Seconds that a stage's whole memory too much costs: no program is infeasible, and where nothing
fits the prices of memory say so."""
PAIR_FORMS = (0, 1, 2)
"""What pairs of passes take: no less than their communication leaves, than their work does, or
than passes that hide the shorter one."""


class ChainConstraint(NamedTuple):
    """A chain: how often it has each pass, alone and in pairs, (positions, KINDS); its messages.

    ``hops`` are those into each position, shape (2, positions), ``sent`` those of what each
    position hands on, shape (positions,).
    """

    single: Floats
    paired: Floats
    hops: Floats
    sent: Floats


class MasterSolution(NamedTuple):
    """Seconds of the relaxed step, its layers and prices."""

    seconds: float
    mix: FractionalOptions
    dual_prices: DualPrices


def chain_constraint(chain: Chain) -> ChainConstraint:
    """A chain position by position."""
    roles = list(chain.roles)
    return ChainConstraint(
        chain.single[roles], chain.paired[roles], chain.hops, outgoing_messages(chain.hops)
    )


class RestrictedMaster:
    """The program of a pipeline: it grows, and is solved again from where it was.

    Args:
        groups: of the pipeline.
        budget_bytes: of each stage.
        slowdown: factor of work and communication while they share the device, at most 2.
    """

    def __init__(self, groups: LayerGroups, budget_bytes: Floats, slowdown: float) -> None:
        self.groups, self.budget_bytes, self.overlap_gain = groups, budget_bytes, 2 - slowdown
        self.chains: list[ChainConstraint] = []
        self.options: list[list[int]] = [[] for _ in groups.groups]
        self._solver = LpSolver()
        self._columns, self._rows = self._solver.columns, self._solver.rows
        self._passes: list[list[int]] = [[] for _ in groups.by_position]
        self._pairs: list[list[int]] = [[] for _ in groups.by_position]
        self._known_layers: dict[int, tuple[list[int], Floats]] = {}
        self._solver.column("step", 1.0)
        self._add_base_rows()

    def _add_base_rows(self) -> None:
        """Rows that every program has: layers to place, bytes and layers of stages."""
        for number, group in enumerate(self.groups.groups):
            self._solver.row(("count", number), (group.layers, group.layers))
        for stage in range(len(self.budget_bytes)):
            excess = self._solver.column(("excess", stage), OVERFLOW_PENALTY_S)
            self._solver.row(("bytes", stage), (-INFINITE, 1.0), [excess], [-1.0])
        if self.groups.stage_arcs:
            self._add_path_rows()

    def _add_path_rows(self) -> None:
        """One path of runs of layers leads from the first layer to the last."""
        for position, flow in enumerate(self.groups.stage_arcs):
            for node in dict.fromkeys(flow.starts.tolist()):
                one = float(position == 0)
                self._solver.row(("node", position, node), (one, one))
        for position, flow in enumerate(self.groups.stage_arcs):
            for start, stop, content in zip(*(each.tolist() for each in flow), strict=True):
                values = {
                    self._rows["count", number]: -float(layers)
                    for number, layers in self.groups.contents[content].layers
                }
                values[self._rows["node", position, start]] = 1.0
                if position + 1 < len(self.groups.stage_arcs):
                    values[self._rows["node", position + 1, stop]] = -1.0
                self._column(("run", position, start, stop), values)

    def _column(self, name: Hashable, values: dict[int, float]) -> None:
        self._solver.column(name, 0.0, list(values), list(values.values()))

    def _row(self, name: Hashable, low: float, values: dict[int, float]) -> None:
        self._solver.row(name, (low, INFINITE), list(values), list(values.values()))

    def add_option(self, number: int, option: int) -> bool:
        """Offer an option of a cell; whether it is new."""
        if option in self.options[number]:
            return False
        self.options[number].append(option)
        group, columns = self.groups.groups[number], self.groups.columns(number)[option]
        place, stage = group.position, self.groups.stages[number]
        values = {self._rows["count", number]: 1.0}
        values[self._rows["bytes", stage]] = (
            float(self.groups.bytes[number][option]) / self.budget_bytes[stage]
        )
        weightings = self.groups.weightings(number)[option]
        for kind in self._passes[place]:
            for way in range(WEIGHTING_COUNT):
                row = self._rows.get(("weighed", place, way, kind))
                if row is not None:
                    values[row] = -float(weightings[way, kind])
        for pair in self._pairs[place]:
            for share in PAIR_FORMS[:2]:
                own_s = columns[WORK] * self._work_weight(share) + columns[
                    INSIDE
                ] * self._overlap_weight(share)
                values[self._rows["pair", pair, share]] = -float(
                    own_s @ self.chains[pair].paired[place]
                )
        if number in self.groups.extra_send_s:
            for other, chain in enumerate(self.chains):
                extra_send_s = chain.sent[place] * self.groups.extra_send_s[number][option]
                values[self._rows["chain", other]] = -float(extra_send_s)
        self._column(("layers", number, option), values)
        return True

    def enforce(self, chain: ChainConstraint) -> None:
        """Have the step be at least as long as a chain."""
        number = len(self.chains)
        self.chains.append(chain)
        for place, kind in _places(chain.single + chain.paired):
            self._weigh(place, kind)
        values = {self._columns["step"]: 1.0}
        for place, kind in _places(chain.single):
            values[self._columns["pass", place, kind]] = -float(chain.single[place, kind])
        if chain.paired.any():
            values[self._solver.column(("pairs", number))] = -1.0
            for share in PAIR_FORMS[:2]:
                self._pair(number, chain, share)
            left = {
                self._columns["pass", place, kind]: -self._work_weight(2)
                * float(chain.paired[place, kind])
                for place, kind in _places(chain.paired)
            }
            own = self._columns["pairs", number]
            self._row(("pair", number, 2), 0.0, {own: 1.0, **left})
            for place in _with_pairs(chain):
                self._pairs[place].append(number)
        for group, extra_send_s in self.groups.extra_send_s.items():
            sent = float(chain.sent[self.groups.groups[group].position])
            for option in self.options[group] if sent else ():
                values[self._columns["layers", group, option]] = -sent * float(extra_send_s[option])
        hops_s = float((chain.hops * self.groups.travel_s).sum())
        self._row(("chain", number), hops_s, values)

    def _weigh(self, place: int, kind: int) -> None:
        """A pass takes at least what its layers do, by each way to weigh them."""
        if ("pass", place, kind) in self._columns:
            return
        own = self._solver.column(("pass", place, kind))
        self._passes[place].append(kind)
        index, figures = self._layers_at(place)
        is_binding = self.groups.is_binding(place)[:, kind]
        for way in is_binding.nonzero()[0].tolist():
            low = float(self.groups.per_pass_s[place, way, kind])
            values = [1.0, *(-figures[:, way, kind]).tolist()]
            self._solver.row(("weighed", place, way, kind), (low, INFINITE), [own, *index], values)

    def _layers_at(self, place: int) -> tuple[list[int], Floats]:
        """Columns of a position, and their seconds, shape (columns, WEIGHTING_COUNT, KINDS)."""
        known = self._known_layers.get(place)
        count = sum(len(self.options[number]) for number in self.groups.by_position[place])
        if known is None or len(known[0]) != count:
            index = [
                self._columns["layers", number, option]
                for number in self.groups.by_position[place]
                for option in self.options[number]
            ]
            figures = [
                self.groups.weightings(number)[self.options[number]]
                for number in self.groups.by_position[place]
            ]
            known = self._known_layers[place] = (index, np.concatenate(figures))
        return known

    def _work_weight(self, share: int) -> float:
        """Weight of the work of passes in pairs."""
        return (1.0, 1 - self.overlap_gain, 1 - self.overlap_gain / 2)[share]

    def _overlap_weight(self, share: int) -> float:
        """Weight of what of it is communication."""
        return (-self.overlap_gain, self.overlap_gain, 0.0)[share]

    def _pair(self, number: int, chain: ChainConstraint, share: int) -> None:
        """Pairs hide no more than their communication (0), nor than their work (1)."""
        values = {self._columns["pairs", number]: 1.0}
        for place in _with_pairs(chain):
            for group in self.groups.by_position[place]:
                figures = self.groups.columns(group)[self.options[group]]
                own_s = figures[:, WORK] * self._work_weight(share) + figures[
                    :, INSIDE
                ] * self._overlap_weight(share)
                own = own_s @ chain.paired[place]
                for option, value in zip(self.options[group], own.tolist(), strict=True):
                    values[self._columns["layers", group, option]] = -value
        self._row(("pair", number, share), 0.0, values)

    def solution(self) -> MasterSolution | None:
        """The optimum; None where the solver found none, and nothing more is known then."""
        found = self._solver.optimum()
        if found is None:
            return None
        return MasterSolution(
            float(found.values[0]), self._mix(found.values), self._dual_prices(found.duals)
        )

    def _mix(self, values: Floats) -> FractionalOptions:
        return [
            {
                option: float(values[column])
                for option in own
                if values[column := self._columns["layers", number, option]] > TINY
            }
            for number, own in enumerate(self.options)
        ]

    def _dual_prices(self, duals: Floats) -> DualPrices:
        """Prices from dual values, mended to be legal ones."""

        def dual(names: Iterable[Hashable]) -> Floats:
            rows = [self._rows.get(name) for name in names]
            return np.array([0.0 if row is None else float(duals[row]) for row in rows])

        count, places = len(self.chains), range(len(self.groups.by_position))
        shares = np.maximum(dual(("chain", number) for number in range(count)), 0.0)
        shares = shares / shares.sum() if shares.sum() > 0 else np.full(count, 1 / count)
        passes, work, inside = (np.zeros((len(places), KINDS)) for _ in range(3))
        for number in shares.nonzero()[0].tolist():
            chain = self.chains[number]
            passes += shares[number] * chain.single
            if chain.paired.any():
                parts = np.maximum(dual(("pair", number, share) for share in PAIR_FORMS), 0.0)
                parts = parts / parts.sum() if parts.sum() > 0 else np.array([1.0, 0.0, 0.0])
                for share, part in zip(PAIR_FORMS, (shares[number] * parts).tolist(), strict=True):
                    alone = passes if share == 2 else work
                    alone += part * self._work_weight(share) * chain.paired
                    inside += part * self._overlap_weight(share) * chain.paired
        weightings = np.zeros((len(places), WEIGHTING_COUNT, KINDS))
        for place in places:
            for kind in self._passes[place]:
                names = [("weighed", place, way, kind) for way in range(WEIGHTING_COUNT)]
                weightings[place, :, kind] = np.maximum(dual(names), 0.0)
        total = weightings.sum(axis=1, keepdims=True)
        even = np.zeros_like(weightings)
        even[:, WEIGHTED_COLUMNS.index(WORK)] = 1.0
        weightings = np.where(total > 0, weightings / np.where(total > 0, total, 1.0), even)
        byte_price_s = -dual(("bytes", stage) for stage in range(len(self.budget_bytes)))
        weights = weightings * passes[:, None]
        weights[:, WEIGHTED_COLUMNS.index(WORK)] += work
        return make_dual_prices(
            self.groups,
            weights,
            np.sum([s * c.hops for s, c in zip(shares, self.chains, strict=True)], axis=0),
            inside,
            np.maximum(byte_price_s, 0.0) / self.budget_bytes,
        )


def _places(counts: Floats) -> Iterable[tuple[int, int]]:
    """Positions and kinds of the passes that are counted."""
    return zip(*(axis.tolist() for axis in counts.nonzero()), strict=True)


def _with_pairs(chain: ChainConstraint) -> list[int]:
    """Positions that have passes in pairs on a chain."""
    found: list[int] = np.flatnonzero(chain.paired.any(axis=1)).tolist()
    return found
