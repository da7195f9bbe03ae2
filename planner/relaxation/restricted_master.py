"""The linear program of a relaxed step, over some options of each cell and some chains.

Variables: the step T; seconds of each kind of pass of each position, t; layers of a cell under an
option, y ≥ 0, which need not be whole. T is at least every chain's sum of t; each t is at least
what its layers take by each of ``WEIGHED``; pairs of passes that overlap take at least what both
leave; each stage's layers fit its bytes, or cost what no step does. Its dual values are the prices
of :mod:`dual_prices`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

import numpy as np

from ..chains.chain_weights import WEIGHED
from ..chains.fixed_cuts import Floats
from ..chains.pass_chains import Chain
from ..tables.pass_kinds import KINDS
from ..tables.pass_table import INSIDE, WORK
from .dual_prices import Prices, handed_on, priced
from .layer_groups import WAYS, Cells
from .lp_solver import INFINITE, Solver

Mix = list[dict[int, float]]
"""Layers of each cell by their option."""
TINY = 1e-9
EXCESS_S = 1e5
"""Seconds that a stage's whole memory too much costs: no program is infeasible, and where nothing
fits the prices of memory say so."""
SHARES = (0, 1, 2)
"""What pairs of passes take: no less than their communication leaves, than their work does, or
than passes that hide the shorter one."""


class ChainRow(NamedTuple):
    """A chain: how often it has each pass, alone and in pairs, (positions, KINDS); its messages.

    ``hops`` are those into each position, shape (2, positions), ``sent`` those of what each
    position hands on, shape (positions,).
    """

    single: Floats
    paired: Floats
    hops: Floats
    sent: Floats


class Solved(NamedTuple):
    """Seconds of the relaxed step, its layers and prices."""

    seconds: float
    mix: Mix
    prices: Prices


def chain_row(chain: Chain) -> ChainRow:
    """A chain position by position."""
    roles = list(chain.roles)
    return ChainRow(chain.single[roles], chain.paired[roles], chain.hops, handed_on(chain.hops))


class Program:
    """The program of a pipeline: it grows, and is solved again from where it was.

    Args:
        cells: of the pipeline.
        budget_bytes: of each stage.
        slowdown: factor of work and communication while they share the device, at most 2.
    """

    def __init__(self, cells: Cells, budget_bytes: Floats, slowdown: float) -> None:
        self.cells, self.budget_bytes, self.hides = cells, budget_bytes, 2 - slowdown
        self.chains: list[ChainRow] = []
        self.options: list[list[int]] = [[] for _ in cells.cells]
        self._solver = Solver()
        self._columns, self._rows = self._solver.columns, self._solver.rows
        self._passes: list[list[int]] = [[] for _ in cells.at]
        self._pairs: list[list[int]] = [[] for _ in cells.at]
        self._known_layers: dict[int, tuple[list[int], Floats]] = {}
        self._solver.column("step", 1.0)
        self._frame()

    def _frame(self) -> None:
        """Rows that every program has: layers to place, bytes and layers of stages."""
        for number, cell in enumerate(self.cells.cells):
            self._solver.row(("count", number), (cell.layers, cell.layers))
        for stage in range(len(self.budget_bytes)):
            excess = self._solver.column(("excess", stage), EXCESS_S)
            self._solver.row(("bytes", stage), (-INFINITE, 1.0), [excess], [-1.0])
        if self.cells.flows:
            self._flow()

    def _flow(self) -> None:
        """One path of runs of layers leads from the first layer to the last."""
        for position, flow in enumerate(self.cells.flows):
            for node in dict.fromkeys(flow.starts.tolist()):
                one = float(position == 0)
                self._solver.row(("node", position, node), (one, one))
        for position, flow in enumerate(self.cells.flows):
            for start, stop, content in zip(*(each.tolist() for each in flow), strict=True):
                values = {
                    self._rows["count", number]: -float(layers)
                    for number, layers in self.cells.contents[content].layers
                }
                values[self._rows["node", position, start]] = 1.0
                if position + 1 < len(self.cells.flows):
                    values[self._rows["node", position + 1, stop]] = -1.0
                self._column(("run", position, start, stop), values)

    def _column(self, name: Hashable, values: dict[int, float]) -> None:
        self._solver.column(name, 0.0, list(values), list(values.values()))

    def _row(self, name: Hashable, low: float, values: dict[int, float]) -> None:
        self._solver.row(name, (low, INFINITE), list(values), list(values.values()))

    def offer(self, number: int, option: int) -> bool:
        """Offer an option of a cell; whether it is new."""
        if option in self.options[number]:
            return False
        self.options[number].append(option)
        cell, columns = self.cells.cells[number], self.cells.columns(number)[option]
        place, stage = cell.position, self.cells.stages[number]
        values = {self._rows["count", number]: 1.0}
        values[self._rows["bytes", stage]] = (
            float(self.cells.bytes[number][option]) / self.budget_bytes[stage]
        )
        ways = self.cells.ways(number)[option]
        for kind in self._passes[place]:
            for way in range(WAYS):
                row = self._rows.get(("weighed", place, way, kind))
                if row is not None:
                    values[row] = -float(ways[way, kind])
        for pair in self._pairs[place]:
            for share in SHARES[:2]:
                own_s = columns[WORK] * self._alone(share) + columns[INSIDE] * self._inside(share)
                values[self._rows["pair", pair, share]] = -float(
                    own_s @ self.chains[pair].paired[place]
                )
        if number in self.cells.sent_s:
            for other, chain in enumerate(self.chains):
                sent_s = chain.sent[place] * self.cells.sent_s[number][option]
                values[self._rows["chain", other]] = -float(sent_s)
        self._column(("layers", number, option), values)
        return True

    def follow(self, chain: ChainRow) -> None:
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
            for share in SHARES[:2]:
                self._pair(number, chain, share)
            left = {
                self._columns["pass", place, kind]: -self._alone(2)
                * float(chain.paired[place, kind])
                for place, kind in _places(chain.paired)
            }
            own = self._columns["pairs", number]
            self._row(("pair", number, 2), 0.0, {own: 1.0, **left})
            for place in _with_pairs(chain):
                self._pairs[place].append(number)
        for cell, sent_s in self.cells.sent_s.items():
            sent = float(chain.sent[self.cells.cells[cell].position])
            for option in self.options[cell] if sent else ():
                values[self._columns["layers", cell, option]] = -sent * float(sent_s[option])
        hops_s = float((chain.hops * self.cells.travel_s).sum())
        self._row(("chain", number), hops_s, values)

    def _weigh(self, place: int, kind: int) -> None:
        """A pass takes at least what its layers do, by each way to weigh them."""
        if ("pass", place, kind) in self._columns:
            return
        own = self._solver.column(("pass", place, kind))
        self._passes[place].append(kind)
        index, figures = self._layers_at(place)
        says = self.cells.says(place)[:, kind]
        for way in says.nonzero()[0].tolist():
            low = float(self.cells.promised_s[place, way, kind])
            values = [1.0, *(-figures[:, way, kind]).tolist()]
            self._solver.row(("weighed", place, way, kind), (low, INFINITE), [own, *index], values)

    def _layers_at(self, place: int) -> tuple[list[int], Floats]:
        """Columns of the layers of a position, and their seconds by way, (columns, WAYS, KINDS)."""
        known = self._known_layers.get(place)
        count = sum(len(self.options[number]) for number in self.cells.at[place])
        if known is None or len(known[0]) != count:
            index = [
                self._columns["layers", number, option]
                for number in self.cells.at[place]
                for option in self.options[number]
            ]
            figures = [
                self.cells.ways(number)[self.options[number]] for number in self.cells.at[place]
            ]
            known = self._known_layers[place] = (index, np.concatenate(figures))
        return known

    def _alone(self, share: int) -> float:
        """Weight of the work of passes in pairs."""
        return (1.0, 1 - self.hides, 1 - self.hides / 2)[share]

    def _inside(self, share: int) -> float:
        """Weight of what of it is communication."""
        return (-self.hides, self.hides, 0.0)[share]

    def _pair(self, number: int, chain: ChainRow, share: int) -> None:
        """Pairs hide no more than their communication (0), nor than their work (1)."""
        values = {self._columns["pairs", number]: 1.0}
        for place in _with_pairs(chain):
            for cell in self.cells.at[place]:
                figures = self.cells.columns(cell)[self.options[cell]]
                own_s = figures[:, WORK] * self._alone(share) + figures[:, INSIDE] * self._inside(
                    share
                )
                own = own_s @ chain.paired[place]
                for option, value in zip(self.options[cell], own.tolist(), strict=True):
                    values[self._columns["layers", cell, option]] = -value
        self._row(("pair", number, share), 0.0, values)

    def solved(self) -> Solved | None:
        """The optimum; None where the solver found none, and nothing more is known then."""
        found = self._solver.optimum()
        if found is None:
            return None
        return Solved(float(found.values[0]), self._mix(found.values), self._prices(found.duals))

    def _mix(self, values: Floats) -> Mix:
        return [
            {
                option: float(values[column])
                for option in own
                if values[column := self._columns["layers", number, option]] > TINY
            }
            for number, own in enumerate(self.options)
        ]

    def _prices(self, duals: Floats) -> Prices:
        """Prices from dual values, mended to be legal ones."""

        def dual(names: Iterable[Hashable]) -> Floats:
            rows = [self._rows.get(name) for name in names]
            return np.array([0.0 if row is None else float(duals[row]) for row in rows])

        count, places = len(self.chains), range(len(self.cells.at))
        shares = np.maximum(dual(("chain", number) for number in range(count)), 0.0)
        shares = shares / shares.sum() if shares.sum() > 0 else np.full(count, 1 / count)
        passes, work, inside = (np.zeros((len(places), KINDS)) for _ in range(3))
        for number in shares.nonzero()[0].tolist():
            chain = self.chains[number]
            passes += shares[number] * chain.single
            if chain.paired.any():
                parts = np.maximum(dual(("pair", number, share) for share in SHARES), 0.0)
                parts = parts / parts.sum() if parts.sum() > 0 else np.array([1.0, 0.0, 0.0])
                for share, part in zip(SHARES, (shares[number] * parts).tolist(), strict=True):
                    alone = passes if share == 2 else work
                    alone += part * self._alone(share) * chain.paired
                    inside += part * self._inside(share) * chain.paired
        ways = np.zeros((len(places), WAYS, KINDS))
        for place in places:
            for kind in self._passes[place]:
                names = [("weighed", place, way, kind) for way in range(WAYS)]
                ways[place, :, kind] = np.maximum(dual(names), 0.0)
        total = ways.sum(axis=1, keepdims=True)
        even = np.zeros_like(ways)
        even[:, WEIGHED.index(WORK)] = 1.0
        ways = np.where(total > 0, ways / np.where(total > 0, total, 1.0), even)
        bytes_s = -dual(("bytes", stage) for stage in range(len(self.budget_bytes)))
        weights = ways * passes[:, None]
        weights[:, WEIGHED.index(WORK)] += work
        return priced(
            self.cells,
            weights,
            np.sum([s * c.hops for s, c in zip(shares, self.chains, strict=True)], axis=0),
            inside,
            np.maximum(bytes_s, 0.0) / self.budget_bytes,
        )


def _places(counts: Floats) -> Iterable[tuple[int, int]]:
    """Positions and kinds of the passes that are counted."""
    return zip(*(axis.tolist() for axis in counts.nonzero()), strict=True)


def _with_pairs(chain: ChainRow) -> list[int]:
    """Positions that have passes in pairs on a chain."""
    found: list[int] = np.flatnonzero(chain.paired.any(axis=1)).tolist()
    return found
