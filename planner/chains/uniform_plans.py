"""What uniform plans of a pipeline take: estimates from chains of passes.

The seconds of a chain, layer by layer, with one option for all blocks say how long a uniform plan
takes, up to what shows of messages and of the end of the step. The critical path of the best
uniform plan is one more chain, and the one that counts most where backwards are split or passes
overlap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from ...spec.schedules.stage_order import SPLIT_KINDS
from ..space.pipeline_shape import PipelineShape
from ..tables.layer_position import LayerPositions
from ..tables.pass_table import SHARED, TRAFFIC, WORK, once_per_pass
from .chain_weights import chain_weights, weighted
from .critical_path import critical_chains
from .fixed_cuts import FixedPipeline, Floats, OptionChoice, RolePosition
from .pass_chains import Chain, chains
from .reference_plan import ReferencePlan, choice_by_class

MAX_TIMED_PASSES = 120_000
"""Pipelines of more passes are not played for their critical paths."""


class UniformPlans(FixedPipeline):
    """The uniform plans of a pipeline with fixed cuts.

    Args:
        layer_positions: of its place.
        layer_classes: the kind of every layer.
        shape: the pipeline.
        boundaries: cut points of its chunks.
        budget_bytes: what a device may hold.
        slowdown: factor of work and communication while they share the device, at most 2.
        message_s: seconds from one stage to another of a message of so many bytes.
    """

    def __init__(
        self,
        layer_positions: LayerPositions,
        layer_classes: Sequence[int],
        shape: PipelineShape,
        boundaries: Sequence[int],
        budget_bytes: float,
        slowdown: float,
        message_s: Callable[[int, int, float], float],
    ) -> None:
        super().__init__(layer_positions, layer_classes, shape, boundaries)
        self.slowdown, self._message_s = slowdown, message_s
        self._least_travel_s = self._message_seconds()
        self._uniform_s = np.zeros(len(self.tables[self.main].strategies))
        self._shares_s = {kind: np.zeros(len(t.strategies)) for kind, t in self.tables.items()}
        self._fits = self._uniform_stage_bytes().max(axis=0) <= budget_bytes
        for chain in chains(self.pipeline, self._critical_stages()):
            self._weigh(chain)
        self.estimate_s, self.rows = self._add_critical_paths()

    @property
    def shares_s(self) -> dict[int, Floats]:
        """Of each layer kind, seconds that each of its options adds to the time of a stage.

        Shape (options,), as the chains weigh them.
        """
        return self._spread()

    def _best_rows(self) -> dict[int, int]:
        """The options of about the best uniform plan, of those that fit if any does."""
        fits = self._fits
        wanted = np.where(fits, self._uniform_s, np.inf) if fits.any() else self._uniform_s
        row = int(np.argmin(wanted))
        return {kind: self.compatible_row(kind, row) for kind in self.tables}

    def _add_critical_paths(self) -> tuple[float, dict[int, int]]:
        """Weigh the critical paths of the best uniform plan too.

        Returns:
            About the seconds of the best and its options; infinite and none if none fits.
        """
        if not self._fits.any():
            return float("inf"), {}
        rows = self._best_rows()
        played_s = float(self._uniform_s[rows[self.main]])
        if self.shape.kind in SPLIT_KINDS and self.shape.passes <= MAX_TIMED_PASSES:
            played_s, found = self._critical_paths(choice_by_class(rows))
            for chain in found:
                self._weigh(chain)
            rows = self._best_rows()
        return played_s, rows

    def _critical_paths(self, choice: OptionChoice) -> tuple[float, list[Chain]]:
        """Seconds of the plan of a choice, and its critical paths."""
        passes, travels_s = (
            ReferencePlan(self, choice, self.slowdown),
            self._message_seconds(choice),
        )
        return critical_chains(self.pipeline, passes, travels_s.tolist())

    def _message_seconds(self, choice: OptionChoice | None = None) -> Floats:
        """Seconds of the message into each position, forward and backward; else the least."""
        found = np.zeros((2, self.shape.positions))
        for position in range(1, self.shape.positions):
            kind = self.edges[position - 1][1]
            sizes = self.tables[kind].output_bytes
            last = next(s for s in self.places[position - 1] if s[-1])
            row = None if choice is None else choice(position - 1, last)
            size = float(sizes.min() if row is None else sizes[row])
            ends = (self.shape.stage_of(position - 1), self.shape.stage_of(position))
            found[0, position] = found[1, position - 1] = self._message_s(*ends, size)
        return found

    def compatible_row(self, kind: int, main: int) -> int:
        """The best option of a kind beside this one of the main kind, in the same layout."""
        if kind == self.main:
            return main
        table, layout = self.tables[kind], self.tables[self.main].strategies[main].layout
        like = np.array([strategy.layout == layout for strategy in table.strategies])
        seconds = self._shares_s[kind]
        return int(np.argmin(np.where(like, seconds, np.inf) if like.any() else seconds))

    def _spread(self) -> dict[int, Floats]:
        """The seconds of each kind's options on one layer, as if they were its whole stage's."""
        found = {}
        for kind, seconds in self._shares_s.items():
            layers = sum(chunk[kind] for chunk in self.counts)
            stages = {
                stage
                for stage in range(self.shape.stages)
                for chunk in range(self.shape.chunks)
                if self.counts[self.shape.position(stage, chunk)][kind]
            }
            found[kind] = seconds * len(stages) / layers
        return found

    def _layers(self, chain: Chain) -> Counter[RolePosition]:
        """How many layers there are in each place of a chain."""
        found: Counter[RolePosition] = Counter()
        for position, role in enumerate(chain.roles):
            for layer_position, count in self.places[position].items():
                found[role, *layer_position] += count
        return found

    def _once(self, chain: Chain, weights: Floats) -> Floats:
        """What rows of like layers have once a pass, by way."""
        found = np.zeros(weights.shape[1])
        known: Counter[tuple[int, tuple[int, ...]]] = Counter()
        for role, chunk in zip(chain.roles, self.counts, strict=True):
            known[role, tuple(sorted(chunk))] += 1
        for (role, layer_classes), count in known.items():
            once_s, least_s = once_per_pass([self.tables[kind] for kind in layer_classes])
            found += count * (weights[role, :, SHARED] @ once_s)
            found += count * (weights[role, :, TRAFFIC] @ least_s)
        return found

    def _weigh(self, chain: Chain) -> None:
        """Note the least that a chain takes, and what it takes in uniform plans."""
        weights = chain_weights(chain, self.slowdown)
        costs = {kind: weighted(table, weights) for kind, table in self.tables.items()}
        layers = self._layers(chain)
        weightings = weights.shape[1]
        rest = self._once(chain, weights) + float((chain.hops * self._least_travel_s).sum())
        least = np.zeros(weightings)
        each: dict[RolePosition, Floats] = {}
        for place, count in layers.items():
            role, kind, *_ = place
            each[place] = costs[kind][:, role]
            exposed_s = self.layer_positions.exposed_s(place[1:])
            if exposed_s is not None:
                each[place] = each[place] + exposed_s @ weights[role, :, WORK].T
            least += count * each[place].min(axis=0)
        way = int(np.argmax(rest + least))
        chosen = {place: seconds[:, way] for place, seconds in each.items()}
        shares = {kind: np.zeros(len(known)) for kind, known in self._shares_s.items()}
        for place, seconds in chosen.items():
            shares[place[1]] += layers[place] * seconds
        others_s = sum(float(s.min()) for kind, s in shares.items() if kind != self.main)
        uniform_s = shares[self.main] + others_s + float(rest[way])
        self._uniform_s = np.maximum(self._uniform_s, uniform_s)
        for kind, seconds in shares.items():
            self._shares_s[kind] = np.maximum(self._shares_s[kind], seconds)
