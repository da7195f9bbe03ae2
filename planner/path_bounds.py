"""Lower bounds and estimates of pipelines from chains of passes.

Every pass of a chain takes at least a sum over its layers (:mod:`.pass_table`), so with fixed cuts
the shortest that a chain can be is found layer by layer, and no plan with these cuts is faster.
Where that is not enough the step's linear relaxation is solved (:mod:`.relaxation`): options of a
layer may be mixed, stages hold what they may, and the step is as long as its critical paths.

The same sums with one option for all blocks say how long a uniform plan takes, up to what shows
of messages and of the end of the step. The critical path of the best uniform plan is one more
chain, and the one that counts most where backwards are split or passes overlap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..costmodel.pass_pairs import MOST_SLOWDOWN
from ..spec.schedule import SPLIT_KINDS
from .chain_weights import chain_weights, weighed
from .chains import Chain, Pipeline, chains
from .critical import critical_chains
from .cut_pipeline import Choice, CutPipeline, Place
from .pass_table import WORK, PassTable
from .reference_plan import Reference, by_kind
from .relaxation.cells import Cells, cut_cells, free_cells
from .relaxation.program import Mix
from .relaxation.step import Relaxed, RelaxedStep
from .shape import Shape

Floats = NDArray[np.float64]
MOST_PASSES = 120_000
"""Pipelines of more passes are not played for their critical paths."""
MOST_FOLLOWED = 8
"""Stages, about, whose own chains a relaxed step has from the start."""
CLOSE = 0.002
"""Bounds this near to the best uniform plan are close enough."""
ROUNDING = 1e-9
MessageSeconds = Callable[[Shape, int, int, float], float]
"""Of a shape: seconds from one stage to another of a message of so many bytes."""


class Mixed(NamedTuple):
    """The layers of a relaxed step, by the options of its cells."""

    cells: Cells
    mix: Mix


class PathBounds:
    """Bounds of the pipelines of a place.

    Args:
        tables: of each layer kind.
        kinds: the kind of every layer.
        slowdown: factor of work and communication while they share the device.
        message_s: seconds of a message of so many bytes between two stages of a pipeline.
    """

    def __init__(
        self,
        tables: Mapping[int, PassTable],
        kinds: Sequence[int],
        slowdown: float,
        message_s: MessageSeconds,
    ) -> None:
        self.tables = tables
        self.kinds = tuple(kinds)
        self.main = Counter(self.kinds).most_common(1)[0][0]
        self.slowdown = min(slowdown, MOST_SLOWDOWN)
        self.message_s = message_s
        self._in_layout: dict[object, PathBounds] = {}

    @property
    def least_bytes(self) -> float:
        """What all layers need on their devices, each at its smallest, with one micro-batch."""
        least = {kind: float(table.bytes_at(1).min()) for kind, table in self.tables.items()}
        return sum(least[kind] for kind in self.kinds)

    def in_layout(self, layout: object) -> PathBounds:
        """The bounds of options of one activation layout, where a kind has any."""
        if layout not in self._in_layout:
            tables = {}
            for kind, table in self.tables.items():
                like = np.array([strategy.layout == layout for strategy in table.strategies])
                tables[kind] = table.only(like) if like.any() else table
            self._in_layout[layout] = PathBounds(tables, self.kinds, self.slowdown, self.message_s)
        return self._in_layout[layout]

    def relaxed(self, shape: Shape, budget_bytes: float, enough_s: float) -> Relaxed:
        """The relaxed step of a pipeline of one chunk a stage, over all its cuts.

        Args:
            shape: the pipeline.
            budget_bytes: what a device may hold.
            enough_s: plans that take longer are of no interest.
        """
        stages = shape.stages
        pipeline: Pipeline = (shape.kind, stages, shape.chunks, shape.microbatches)
        message_s = partial(self.message_s, shape)
        cells = free_cells(self.tables, self.kinds, shape, message_s, enough_s)
        step = RelaxedStep(cells, pipeline, self.slowdown, np.full(stages, budget_bytes))
        every = max(1, stages // MOST_FOLLOWED)
        step.follow(chains(pipeline, tuple(dict.fromkeys((*range(0, stages, every), stages - 1)))))
        return step.bound(enough_s, plays=shape.passes <= MOST_PASSES)


class BoundedCut(CutPipeline):
    """A pipeline with fixed cuts, while it is bounded: closed chains first, once.

    Args:
        bounds: of its place.
        shape: the pipeline.
        cuts: cut points of its chunks.
        budget_bytes: what a device may hold.
    """

    def __init__(
        self, bounds: PathBounds, shape: Shape, cuts: Sequence[int], budget_bytes: float
    ) -> None:
        super().__init__(bounds.tables, bounds.kinds, shape, cuts)
        self._bounds, self.slowdown, self.message_s = bounds, bounds.slowdown, bounds.message_s
        self.budget_bytes = budget_bytes
        self._best_s = 0.0
        self._relaxed_to_s = -1.0
        self._weighed: list[Chain] = []
        self._played: tuple[float, dict[int, int]] | None = None
        self._step: RelaxedStep | None = None
        self._mixed: Mixed | None = None
        self._least_travel_s = self._travels()
        self._uniform_s = np.zeros(len(self.tables[self.main].strategies))
        self._shares_s = {kind: np.zeros(len(t.strategies)) for kind, t in self.tables.items()}

        needs = self._stage_needs()
        self._can_fit = float(needs.min(axis=1).max()) <= budget_bytes
        self._fits = needs.max(axis=0) <= budget_bytes
        if self._can_fit:
            for chain in chains(self.pipeline, self._stages()):
                self._weigh(chain)

    def bound(self, enough_s: float = float("inf")) -> float:
        """Seconds of the passes of every plan with these cuts at the least.

        Args:
            enough_s: a bound as high as this is high enough; up to it all is done that can be.
        """
        if not self._can_fit:
            return float("inf")
        if self._played is not None:
            enough_s = min(enough_s, self.estimate_s * (1 - CLOSE))
        if self._best_s < enough_s and self._relaxed_to_s < enough_s:
            self._relax(enough_s)
        return self._best_s * (1 - ROUNDING)

    @property
    def estimate_s(self) -> float:
        """About what the best uniform plan takes; infinite where none fits."""
        return max(self._play()[0], self._best_s * (1 - ROUNDING))

    @property
    def rows(self) -> dict[int, int]:
        """Of each layer kind, the option of the best uniform plan; none where none fits."""
        return self._play()[1]

    @property
    def shares_s(self) -> dict[int, Floats]:
        """Of each layer kind, seconds that each of its options adds to the time of a stage.

        Shape (options,), as the chains weigh them.
        """
        self._play()
        return self._spread() if self._can_fit else {}

    @property
    def mixed(self) -> Mixed | None:
        """The layers of the relaxed step, if that was solved."""
        return self._mixed

    def in_layout(self, layout: object) -> BoundedCut:
        """The same pipeline with options of one activation layout, where a kind has any."""
        return BoundedCut(self._bounds.in_layout(layout), self.shape, self.cuts, self.budget_bytes)

    def relaxed(self, budgets: Floats, enough_s: float) -> tuple[float, Mixed | None]:
        """The relaxed step within other budgets.

        Args:
            budgets: bytes of each stage.
            enough_s: a bound as high as this is high enough.

        Returns:
            A bound and the layers; none where nothing fits.
        """
        if not self._weighed:
            return float("inf"), None
        step = self._new_step(budgets)
        found = step.bound(enough_s, plays=self.shape.passes <= MOST_PASSES)
        return found.seconds, None if found.mix is None else Mixed(step.cells, found.mix)

    def _new_step(self, budgets: Floats) -> RelaxedStep:
        """A step with the chains that are known, and the options of the best uniform plan."""
        cells, rows = cut_cells(self, self._message), self._best_rows()
        step = RelaxedStep(cells, self.pipeline, self.slowdown, budgets)
        step.follow(self._weighed)
        step.offer([rows[cell.kind] for cell in cells.cells])
        return step

    def _relax(self, enough_s: float) -> None:
        """Raise the bound by the step's linear relaxation."""
        if self._step is None:
            self._step = self._new_step(np.full(self.shape.stages, self.budget_bytes))
        found = self._step.bound(enough_s, plays=self.shape.passes <= MOST_PASSES)
        self._relaxed_to_s = enough_s
        self._best_s = max(self._best_s, found.seconds)
        if found.mix is not None:
            self._mixed = Mixed(self._step.cells, found.mix)

    @property
    def _is_played(self) -> bool:
        """Whether critical paths are followed: where closed chains say less than they do."""
        return self.shape.kind in SPLIT_KINDS and self.shape.passes <= MOST_PASSES

    def _best_rows(self) -> dict[int, int]:
        """The options of about the best uniform plan, of those that fit if any does."""
        fits = self._fits
        wanted = np.where(fits, self._uniform_s, np.inf) if fits.any() else self._uniform_s
        row = int(np.argmin(wanted))
        return {kind: self.row_beside(kind, row) for kind in self.tables}

    def _play(self) -> tuple[float, dict[int, int]]:
        """Weigh the critical paths of the best uniform plan, once: they are chains too.

        Returns:
            Its seconds and options; infinite and none if none fits.
        """
        if self._played is None:
            self._played = (float("inf"), {})
            if self._can_fit:
                rows, fits = self._best_rows(), bool(self._fits.any())
                played_s = float(self._uniform_s[rows[self.main]])
                if self._is_played:
                    played_s, found = self._followed(by_kind(rows))
                    for chain in found:
                        self._weigh(chain)
                    rows = self._best_rows()
                self._played = (played_s, rows) if fits else self._played
        return self._played

    def _followed(self, choice: Choice) -> tuple[float, list[Chain]]:
        """Seconds of the plan of a choice, and its critical paths."""
        passes, travels_s = Reference(self, choice, self.slowdown), self._travels(choice)
        return critical_chains(self.pipeline, passes, travels_s.tolist())

    def _travels(self, choice: Choice | None = None) -> Floats:
        """Seconds of the message into each position, forward and backward; else the least."""
        found = np.zeros((2, self.shape.positions))
        for position in range(1, self.shape.positions):
            kind = self.edges[position - 1][1]
            sizes = self.tables[kind].output_bytes
            last = next(s for s in self.places[position - 1] if s[-1])
            row = None if choice is None else choice(position - 1, last)
            size = float(sizes.min() if row is None else sizes[row])
            ends = (self.shape.stage_of(position - 1), self.shape.stage_of(position))
            found[0, position] = found[1, position - 1] = self._message(*ends, size)
        return found

    def _message(self, stage: int, peer: int, size: float) -> float:
        return 0.0 if stage == peer else self.message_s(self.shape, stage, peer, size)

    def row_beside(self, kind: int, main: int) -> int:
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
            layers = sum(chunk[kind] for chunk in self.held)
            stages = {
                stage
                for stage in range(self.shape.stages)
                for chunk in range(self.shape.chunks)
                if self.held[self.shape.position(stage, chunk)][kind]
            }
            found[kind] = seconds * len(stages) / layers
        return found

    def _weigh(self, chain: Chain) -> None:
        """Note the least that a chain takes, and what it takes in uniform plans."""
        weights = chain_weights(chain, self.slowdown)
        costs = {kind: weighed(table, weights) for kind, table in self.tables.items()}
        layers = self._layers(chain)
        ways = weights.shape[1]
        rest = self._once(chain, weights) + float((chain.hops * self._least_travel_s).sum())
        least = np.zeros(ways)
        each: dict[Place, Floats] = {}
        for place, count in layers.items():
            role, kind, *_ = place
            each[place] = costs[kind][:, role]
            shown = self._shown(place[1:])
            if shown is not None:
                each[place] = each[place] + shown @ weights[role, :, WORK].T
            least += count * each[place].min(axis=0)
        way = int(np.argmax(rest + least))
        chosen = {place: seconds[:, way] for place, seconds in each.items()}
        self._best_s = max(self._best_s, float((rest + least)[way]))
        self._weighed.append(chain)
        shares = {kind: np.zeros(len(known)) for kind, known in self._shares_s.items()}
        for place, seconds in chosen.items():
            shares[place[1]] += layers[place] * seconds
        others_s = sum(float(s.min()) for kind, s in shares.items() if kind != self.main)
        uniform_s = shares[self.main] + others_s + float(rest[way])
        self._uniform_s = np.maximum(self._uniform_s, uniform_s)
        for kind, seconds in shares.items():
            self._shares_s[kind] = np.maximum(self._shares_s[kind], seconds)
