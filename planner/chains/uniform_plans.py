"""Estimates of a pipeline's uniform plans, from chains of passes.

A chain's seconds with one option for all blocks estimate a uniform plan, up to the exposed part of
messages and of the step's end. The critical path of the best uniform plan is one more chain, the
decisive one where backwards are split or passes overlap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from ...spec.schedules.stage_order import SPLIT_KINDS
from ..space.memory_budget import Budget
from ..space.pipeline_shape import PipelineShape
from ..tables.arrays import Floats, Records
from ..tables.layer_position import LayerPositions
from ..tables.pass_table import once_per_pass
from .chain_weights import chain_weights, weighted
from .critical_path import critical_chains
from .fixed_cuts import FixedPipeline, OptionChoice, RolePosition
from .pass_chains import Chain, chains
from .reference_plan import ReferencePlan, choice_by_class

MAX_TIMED_PASSES = 120_000
"""Pipelines of more passes are not timed for their critical paths."""


class UniformPlans(FixedPipeline):
    """Uniform plans of a pipeline with fixed stage boundaries.

    Args:
        layer_positions: of its stage context.
        layer_classes: class of every layer.
        shape: the pipeline.
        boundaries: of its chunks.
        budget: of a device.
        slowdown: factor of work and communication sharing the device, at most 2.
        message_s: seconds of a message between two stages, by bytes.
    """

    def __init__(
        self,
        layer_positions: LayerPositions,
        layer_classes: Sequence[int],
        shape: PipelineShape,
        boundaries: Sequence[int],
        budget: Budget,
        slowdown: float,
        message_s: Callable[[int, int, float], float],
    ) -> None:
        super().__init__(layer_positions, layer_classes, shape, boundaries)
        self.slowdown, self._message_s = slowdown, message_s
        self._least_travel_s = self._message_seconds()
        self._uniform_s = np.zeros(len(self.tables[self.main_class].strategies))
        self._shares_s = {
            layer_class: np.zeros(len(table.strategies))
            for layer_class, table in self.tables.items()
        }
        most_bytes = self._uniform_stage_bytes().max(axis=0)
        self._fits = (most_bytes <= np.array(budget)[:, None]).all(axis=0)
        for chain in chains(self.pipeline, self._critical_stages()):
            self._add_chain(chain)
        self.estimate_s, self.rows = self._add_critical_paths()

    @property
    def shares_s(self) -> dict[int, Floats]:
        """Seconds that each option adds to a stage, by layer class.

        Of one layer, shape (options,), as weighted by the chains.
        """
        shares_s = {}
        for layer_class, seconds in self._shares_s.items():
            layers = sum(class_counts[layer_class] for class_counts in self.class_counts)
            stages = {
                stage
                for stage in range(self.shape.stages)
                for chunk in range(self.shape.chunks)
                if self.class_counts[self.shape.position(stage, chunk)][layer_class]
            }
            shares_s[layer_class] = seconds * len(stages) / layers
        return shares_s

    def _best_rows(self) -> dict[int, int]:
        fits = self._fits
        candidates_s = np.where(fits, self._uniform_s, np.inf) if fits.any() else self._uniform_s
        row = int(np.argmin(candidates_s))
        return {layer_class: self.compatible_row(layer_class, row) for layer_class in self.tables}

    def _add_critical_paths(self) -> tuple[float, dict[int, int]]:
        """Add the critical paths of the best uniform plan to the chains.

        Returns:
            Approximate seconds of the best and its options; infinite and none if none fits.
        """
        if not self._fits.any():
            return float("inf"), {}
        rows = self._best_rows()
        estimate_s = float(self._uniform_s[rows[self.main_class]])
        if self.shape.kind in SPLIT_KINDS and self.shape.passes <= MAX_TIMED_PASSES:
            estimate_s, critical = self._critical_paths(choice_by_class(rows))
            for chain in critical:
                self._add_chain(chain)
            rows = self._best_rows()
        return estimate_s, rows

    def _critical_paths(self, choice: OptionChoice) -> tuple[float, list[Chain]]:
        passes = ReferencePlan(self, choice, self.slowdown)
        travel_s = self._message_seconds(choice)
        return critical_chains(self.pipeline, passes, travel_s.tolist())

    def _message_seconds(self, choice: OptionChoice | None = None) -> Floats:
        """Seconds of messages into positions, both ways, at least the minimum."""
        seconds = np.zeros((2, self.shape.positions))
        for position in range(1, self.shape.positions):
            sizes = self.tables[self.last_classes[position - 1]].output_bytes
            last = next(p for p in self.position_counts[position - 1] if p.is_last)
            row = None if choice is None else choice(position - 1, last)
            size = float(sizes.min() if row is None else sizes[row])
            stages = (self.shape.stage_of(position - 1), self.shape.stage_of(position))
            seconds[0, position] = seconds[1, position - 1] = self._message_s(*stages, size)
        return seconds

    def compatible_row(self, layer_class: int, main_row: int) -> int:
        """Best option of a class in the layout of a main-class option."""
        if layer_class == self.main_class:
            return main_row
        table = self.tables[layer_class]
        layout = self.tables[self.main_class].strategies[main_row].layout
        in_layout = np.array([strategy.layout == layout for strategy in table.strategies])
        seconds = self._shares_s[layer_class]
        return int(np.argmin(np.where(in_layout, seconds, np.inf) if in_layout.any() else seconds))

    def _layers(self, chain: Chain) -> Counter[RolePosition]:
        layers: Counter[RolePosition] = Counter()
        for position, role in enumerate(chain.roles):
            for layer_position, count in self.position_counts[position].items():
                layers[RolePosition(role, layer_position)] += count
        return layers

    def _once_per_pass(self, chain: Chain, weights: Records) -> Floats:
        seconds = np.zeros(weights.shape[1])
        counts: Counter[tuple[int, tuple[int, ...]]] = Counter()
        for role, class_counts in zip(chain.roles, self.class_counts, strict=True):
            counts[role, tuple(sorted(class_counts))] += 1
        for (role, layer_classes), count in counts.items():
            once_s, least_s = once_per_pass([self.tables[k] for k in layer_classes])
            seconds += count * (weights["slowdown"][role] @ once_s)
            seconds += count * (weights["traffic"][role] @ least_s)
        return seconds

    def _add_chain(self, chain: Chain) -> None:
        """Record a chain's minimum seconds, and its seconds in uniform plans."""
        weights = chain_weights(chain, self.slowdown)
        costs = {k: weighted(table, weights) for k, table in self.tables.items()}
        layers = self._layers(chain)
        messages_s = float((chain.hops * self._least_travel_s).sum())
        fixed_s = self._once_per_pass(chain, weights) + messages_s
        least_s = np.zeros(weights.shape[1])
        option_s: dict[RolePosition, Floats] = {}
        for role_position, count in layers.items():
            role, layer_position = role_position
            seconds = costs[layer_position.layer_class][:, role]
            exposed_s = self.layer_positions.exposed_s(layer_position)
            if exposed_s is not None:
                seconds = seconds + exposed_s @ weights["work"][role].T
            option_s[role_position] = seconds
            least_s += count * seconds.min(axis=0)
        best = int(np.argmax(fixed_s + least_s))
        shares_s = {k: np.zeros(len(seconds)) for k, seconds in self._shares_s.items()}
        for role_position, seconds in option_s.items():
            layer_class = role_position.layer_position.layer_class
            shares_s[layer_class] += layers[role_position] * seconds[:, best]
        others_s = sum(float(s.min()) for k, s in shares_s.items() if k != self.main_class)
        uniform_s = shares_s[self.main_class] + others_s + float(fixed_s[best])
        self._uniform_s = np.maximum(self._uniform_s, uniform_s)
        for layer_class, seconds in shares_s.items():
            self._shares_s[layer_class] = np.maximum(self._shares_s[layer_class], seconds)
