"""Restricted master program of a relaxed step, over some options and chains.

Variables: the step T; seconds t of each pass kind of each position; layers y ≥ 0 of a group under
an option, possibly fractional. T is at least every chain's sum of t; each t at least its layers'
time by each of ``WEIGHTED_COLUMNS``; overlapping pairs take at least each ``PairForm``; each
stage's layers fit its bytes of each memory, at a prohibitive penalty. Dual values are those of
``dual_prices``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from enum import Enum
from typing import NamedTuple

import numpy as np

from ..chains.chain_weights import of_column
from ..chains.pass_chains import Chain
from ..tables.arrays import Floats
from ..tables.pass_kinds import KINDS
from .dual_prices import DualPrices, make_dual_prices, outgoing_messages
from .layer_groups import WEIGHTING_COUNT, LayerGroups
from .lp_solver import INFINITE, LpSolver

FractionalOptions = list[dict[int, float]]
"""Layers of each group by their option."""
TINY = 1e-9
OVERFLOW_PENALTY_S = 1e5
"""Seconds that overflow of a stage's whole memory costs: no program is infeasible, and where
nothing fits the dual prices of memory say so."""


class PairForm(Enum):
    """Lower bounds of an overlapping pair: the maximum hidden."""

    COMMUNICATION = "communication"
    WORK = "work"
    SHORTER_PASS = "shorter pass"


LAYER_FORMS = (PairForm.COMMUNICATION, PairForm.WORK)
"""Forms by the seconds of layers; the other is by those of passes."""


class PairWeights(NamedTuple):
    """Weights of a pair's work, and of its overlappable part."""

    work: float
    overlappable: float


class ChainConstraint(NamedTuple):
    """Chain counts of each pass, alone and paired, (positions, KINDS); messages.

    ``hops``: into each position, shape (2, positions); ``sent``: from each, shape (positions,).
    """

    single: Floats
    paired: Floats
    hops: Floats
    sent: Floats


class MasterSolution(NamedTuple):
    """Seconds of the relaxed step, its layers and dual prices."""

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
    """Growing program of a pipeline, solved again from its last optimum.

    Args:
        groups: of the pipeline.
        budgets: bytes of each memory and stage, shape (memories, stages).
        slowdown: factor of work and communication sharing the device, at most 2.
    """

    def __init__(self, groups: LayerGroups, budgets: Floats, slowdown: float) -> None:
        self.groups, self.budgets = groups, budgets
        gain = 2 - slowdown
        self._pair_weights = {
            PairForm.COMMUNICATION: PairWeights(1.0, -gain),
            PairForm.WORK: PairWeights(1 - gain, gain),
            PairForm.SHORTER_PASS: PairWeights(1 - gain / 2, 0.0),
        }
        self.chains: list[ChainConstraint] = []
        self.options: list[list[int]] = [[] for _ in groups.groups]
        self._solver = LpSolver()
        self._columns, self._rows = self._solver.columns, self._solver.rows
        self._passes: list[list[int]] = [[] for _ in groups.by_position]
        self._pairs: list[list[int]] = [[] for _ in groups.by_position]
        self._layer_columns: dict[int, tuple[list[int], Floats]] = {}
        self._solver.column("step", objective_weight=1.0)
        self._add_base_rows()

    def _add_base_rows(self) -> None:
        """Add rows for layers to place, bytes and layers of stages."""
        for number, group in enumerate(self.groups.groups):
            self._solver.row(("count", number), (group.layers, group.layers))
        for memory, stage in self._memories():
            excess = self._solver.column(("excess", memory, stage), OVERFLOW_PENALTY_S)
            self._solver.row(("bytes", memory, stage), (-INFINITE, 1.0), [excess], [-1.0])
        if self.groups.stage_arcs:
            self._add_path_rows()

    def _memories(self) -> Iterator[tuple[int, int]]:
        """Memories of stages: every device's, and the tiers that some option uses there."""
        for memory in range(len(self.budgets)):
            used = {
                stage
                for stage, bytes_ in zip(self.groups.stages, self.groups.bytes, strict=True)
                if memory == 0 or bytes_[memory].any()
            }
            for stage in range(self.budgets.shape[1]):
                if memory == 0 or stage in used:
                    yield memory, stage

    def _add_path_rows(self) -> None:
        """Add rows for one path of runs from first layer to last."""
        for position, arcs in enumerate(self.groups.stage_arcs):
            for node in dict.fromkeys(arcs.starts.tolist()):
                one = float(position == 0)
                self._solver.row(("node", position, node), (one, one))
        for position, arcs in enumerate(self.groups.stage_arcs):
            for start, stop, content in zip(*(ends.tolist() for ends in arcs), strict=True):
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
        """Offer an option of a group; True if it is new."""
        if option in self.options[number]:
            return False
        self.options[number].append(option)
        position, stage = self.groups.groups[number].position, self.groups.stages[number]
        values = {self._rows["count", number]: 1.0}
        for memory, bytes_ in enumerate(self.groups.bytes[number]):
            row = self._rows.get(("bytes", memory, stage))
            if row is not None:
                values[row] = float(bytes_[option]) / self.budgets[memory, stage]
        weighted_s = self.groups.weightings(number)[option]
        for pass_kind in self._passes[position]:
            for weighting in range(WEIGHTING_COUNT):
                row = self._rows.get(("weighted", position, weighting, pass_kind))
                if row is not None:
                    values[row] = -float(weighted_s[weighting, pass_kind])
        costs = self.groups.option_costs(number)[option]
        for pair in self._pairs[position]:
            for form in LAYER_FORMS:
                work, overlappable = self._pair_weights[form]
                layer_s = costs["work"] * work + costs["overlappable"] * overlappable
                pair_s = float(layer_s @ self.chains[pair].paired[position])
                values[self._rows["pair", pair, form]] = -pair_s
        if number in self.groups.extra_send_s:
            for other, chain in enumerate(self.chains):
                extra_send_s = chain.sent[position] * self.groups.extra_send_s[number][option]
                values[self._rows["chain", other]] = -float(extra_send_s)
        self._column(("layers", number, option), values)
        return True

    def enforce(self, chain: ChainConstraint) -> None:
        """Constrain the step to at least a chain."""
        number = len(self.chains)
        self.chains.append(chain)
        for position, pass_kind in _nonzero(chain.single + chain.paired):
            self._add_pass(position, pass_kind)
        values = {self._columns["step"]: 1.0}
        for position, pass_kind in _nonzero(chain.single):
            column = self._columns["pass", position, pass_kind]
            values[column] = -float(chain.single[position, pass_kind])
        if chain.paired.any():
            pairs = self._solver.column(("pairs", number))
            values[pairs] = -1.0
            self._add_pair_rows(number, chain, pairs)
        for group, extra_send_s in self.groups.extra_send_s.items():
            sent = float(chain.sent[self.groups.groups[group].position])
            for option in self.options[group] if sent else ():
                values[self._columns["layers", group, option]] = -sent * float(extra_send_s[option])
        hops_s = float((chain.hops * self.groups.travel_s).sum())
        self._row(("chain", number), hops_s, values)

    def _add_pair_rows(self, number: int, chain: ChainConstraint, pairs: int) -> None:
        """Constrain pairs by each form; ``pairs``: column of their seconds."""
        for form in LAYER_FORMS:
            self._add_layer_form(number, chain, form)
        pass_weight = self._pair_weights[PairForm.SHORTER_PASS].work
        passes = {
            self._columns["pass", position, pass_kind]: -pass_weight
            * float(chain.paired[position, pass_kind])
            for position, pass_kind in _nonzero(chain.paired)
        }
        self._row(("pair", number, PairForm.SHORTER_PASS), 0.0, {pairs: 1.0, **passes})
        for position in _paired_positions(chain):
            self._pairs[position].append(number)

    def _add_layer_form(self, number: int, chain: ChainConstraint, form: PairForm) -> None:
        values = {self._columns["pairs", number]: 1.0}
        work, overlappable = self._pair_weights[form]
        for position in _paired_positions(chain):
            for group in self.groups.by_position[position]:
                costs = self.groups.option_costs(group)[self.options[group]]
                layer_s = costs["work"] * work + costs["overlappable"] * overlappable
                pair_s = layer_s @ chain.paired[position]
                for option, value in zip(self.options[group], pair_s.tolist(), strict=True):
                    values[self._columns["layers", group, option]] = -value
        self._row(("pair", number, form), 0.0, values)

    def _add_pass(self, position: int, pass_kind: int) -> None:
        """Constrain a pass to its layers, by each binding weighting."""
        if ("pass", position, pass_kind) in self._columns:
            return
        seconds = self._solver.column(("pass", position, pass_kind))
        self._passes[position].append(pass_kind)
        layers, weighted_s = self._layers_at(position)
        is_binding = self.groups.is_binding(position)[:, pass_kind]
        for weighting in is_binding.nonzero()[0].tolist():
            self._solver.row(
                ("weighted", position, weighting, pass_kind),
                (float(self.groups.per_pass_s[position, weighting, pass_kind]), INFINITE),
                [seconds, *layers],
                [1.0, *(-weighted_s[:, weighting, pass_kind]).tolist()],
            )

    def _layers_at(self, position: int) -> tuple[list[int], Floats]:
        """Layer columns of a position, and their seconds, (columns, WEIGHTING_COUNT, KINDS)."""
        columns = self._layer_columns.get(position)
        numbers = self.groups.by_position[position]
        count = sum(len(self.options[number]) for number in numbers)
        if columns is None or len(columns[0]) != count:
            indices = [
                self._columns["layers", number, option]
                for number in numbers
                for option in self.options[number]
            ]
            weighted_s = [
                self.groups.weightings(number)[self.options[number]] for number in numbers
            ]
            columns = self._layer_columns[position] = (indices, np.concatenate(weighted_s))
        return columns

    def solution(self) -> MasterSolution | None:
        """Optimum; None if the solver failed, with nothing known."""
        optimum = self._solver.optimum()
        if optimum is None:
            return None
        return MasterSolution(
            float(optimum.values[0]), self._mix(optimum.values), self._dual_prices(optimum.duals)
        )

    def _mix(self, values: Floats) -> FractionalOptions:
        return [
            {
                option: float(values[column])
                for option in options
                if values[column := self._columns["layers", number, option]] > TINY
            }
            for number, options in enumerate(self.options)
        ]

    def _dual_prices(self, duals: Floats) -> DualPrices:
        """Dual prices from dual values, repaired to be feasible."""

        def dual(names: Iterable[Hashable]) -> Floats:
            rows = [self._rows.get(name) for name in names]
            return np.array([0.0 if row is None else float(duals[row]) for row in rows])

        count = len(self.chains)
        weights = np.maximum(dual(("chain", number) for number in range(count)), 0.0)
        weights = weights / weights.sum() if weights.sum() > 0 else np.full(count, 1 / count)
        passes, work, overlappable = (
            np.zeros((len(self.groups.by_position), KINDS)) for _ in range(3)
        )
        for number in weights.nonzero()[0].tolist():
            chain = self.chains[number]
            passes += weights[number] * chain.single
            if chain.paired.any():
                forms = np.maximum(dual(("pair", number, form) for form in PairForm), 0.0)
                forms = forms / forms.sum() if forms.sum() > 0 else np.array([1.0, 0.0, 0.0])
                form_weights = (weights[number] * forms).tolist()
                for form, form_weight in zip(PairForm, form_weights, strict=True):
                    target = passes if form is PairForm.SHORTER_PASS else work
                    pair = self._pair_weights[form]
                    target += form_weight * pair.work * chain.paired
                    overlappable += form_weight * pair.overlappable * chain.paired
        weightings = self._dual_weightings(dual) * passes[:, None]
        of_column(weightings, "work")[...] += work
        memories, stages = self.budgets.shape
        byte_price_s = -dual(
            ("bytes", m, stage) for m in range(memories) for stage in range(stages)
        )
        return make_dual_prices(
            self.groups,
            weightings,
            np.sum([w * c.hops for w, c in zip(weights, self.chains, strict=True)], axis=0),
            overlappable,
            np.maximum(byte_price_s, 0.0).reshape(self.budgets.shape) / self.budgets,
        )

    def _dual_weightings(self, dual: Callable[[Iterable[Hashable]], Floats]) -> Floats:
        """Weights of each pass, of sum 1, shape (positions, WEIGHTING_COUNT, KINDS)."""
        weightings = np.zeros((len(self.groups.by_position), WEIGHTING_COUNT, KINDS))
        for position, pass_kinds in enumerate(self._passes):
            for pass_kind in pass_kinds:
                names = [("weighted", position, n, pass_kind) for n in range(WEIGHTING_COUNT)]
                weightings[position, :, pass_kind] = np.maximum(dual(names), 0.0)
        total = weightings.sum(axis=1, keepdims=True)
        work_only = np.zeros_like(weightings)
        of_column(work_only, "work")[...] = 1.0
        return np.where(total > 0, weightings / np.where(total > 0, total, 1.0), work_only)


def _nonzero(counts: Floats) -> Iterable[tuple[int, int]]:
    return zip(*(axis.tolist() for axis in counts.nonzero()), strict=True)


def _paired_positions(chain: ChainConstraint) -> list[int]:
    positions: list[int] = np.flatnonzero(chain.paired.any(axis=1)).tolist()
    return positions
