"""Lower bounds of pipelines from the relaxation of their steps.

Every pass takes at least a sum over its layers (:mod:`pass_table`), and a step at least as long as
any chain of its passes (:mod:`pass_chains`). The step's linear relaxation (:mod:`relaxation`) is
the
least that all of that leaves, where layers may mix their options and each stage holds what it may.
Which runs of layers a stage may hold where cuts are free is found first (:mod:`stage_feasibility`).
A chain's least work alone (:mod:`chain_bound`) is asked first where cuts are fixed.
Where a pipeline is not looked at yet, the passes of all stages together, their memory pooled, bound
it at once with all others of its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property, partial
from itertools import accumulate, zip_longest
from typing import Any, NamedTuple

import numpy as np

from ...costmodel.lowering.stage_passes import PassKind
from ...costmodel.simulation.overlapped_passes import MAX_SLOWDOWN
from ...spec.schedules.passes import BackwardPart
from ...spec.schedules.stage_order import SPLIT_KINDS
from ..chains.chain_bound import least_chain_s
from ..chains.fixed_cuts import CutPipeline, Floats
from ..chains.pass_chains import Chain, Pipeline, chains, every_pass
from ..chains.uniform_plans import MOST_PASSES, UniformPaths
from ..dynamic_programming.stage_partition import partition
from ..space.in_flight import ONE
from ..space.pipeline_shape import Shape
from ..tables.layer_position import Seats
from ..tables.pass_kinds import kind_number
from ..tables.pass_table import INSIDE, WORK, PassTable
from .column_generation import Relaxed, RelaxedStep
from .dual_prices import least_of_kinds
from .layer_groups import Cells, cut_cells, free_cells, pooled_cells
from .restricted_master import Mix
from .stage_feasibility import StageContents

MOST_FOLLOWED = 8
"""Stages, about, whose own chains a relaxed step has from the start."""
ROUNDING = 1e-9
MessageSeconds = Callable[[Shape, int, int, float], float]
"""Of a shape: seconds from one stage to another of a message of so many bytes."""


class Mixed(NamedTuple):
    """The layers of a relaxed step, by the options of its cells."""

    cells: Cells
    mix: Mix


class StageCost(NamedTuple):
    """A lower bound of a stage's step: seconds of a layer of each kind, and the rest."""

    seconds: Mapping[int, float]
    rest_s: float


class PathBounds:
    """Bounds of the pipelines of a place.

    Args:
        tables: of each layer kind.
        kinds: the kind of every layer.
        slowdown: factor of work and communication while they share the device.
        message_s: seconds of a message of so many bytes between two stages of a pipeline.

    ``seeds`` are options of each kind that are good in the place; ``kept`` is what others found out
    about the place, by names of theirs.
    """

    def __init__(
        self,
        tables: Mapping[int, PassTable],
        kinds: Sequence[int],
        slowdown: float,
        message_s: MessageSeconds,
    ) -> None:
        self.tables, self.seats = tables, Seats(tables)
        self.kinds = tuple(kinds)
        self.main = Counter(self.kinds).most_common(1)[0][0]
        self.slowdown = min(slowdown, MAX_SLOWDOWN)
        self._message_s = message_s
        self.seeds: list[dict[int, int]] = []
        self.kept: dict[Hashable, Any] = {}
        self._pooled: dict[tuple[int, int, float, bool], tuple[float, StageCost]] = {}

    @property
    def least_bytes(self) -> float:
        """What all layers need on their devices, each at its smallest, with one micro-batch."""
        least = {kind: float(table.bytes_at(ONE).min()) for kind, table in self.tables.items()}
        return sum(least[kind] for kind in self.kinds)

    def message_s(self, shape: Shape, stage: int, peer: int, size: float) -> float:
        """Seconds of a message of so many bytes between two stages of a pipeline."""
        return 0.0 if stage == peer else self._message_s(shape, stage, peer, size)

    def balanced_cuts(self, shape: Shape, budget_bytes: float) -> list[int] | None:
        """Cuts of a pipeline of one chunk a stage whose fullest stage costs the least.

        Args:
            shape: the pipeline.
            budget_bytes: what a device may hold.
        """
        cost = self._pool((shape.stages, shape.microbatches, budget_bytes, shape.pairs))[1]
        sums = list(accumulate((max(cost.seconds[k], 0.0) for k in self.kinds), initial=0.0))
        return partition(len(self.kinds), shape.stages, lambda _, i, j: sums[j] - sums[i])

    def in_layout(self, layout: object) -> PathBounds:
        """The bounds of options of one activation layout, where a kind has any."""
        tables = {}
        for kind, table in self.tables.items():
            like = np.array([strategy.layout == layout for strategy in table.strategies])
            tables[kind] = table.only(like) if like.any() else table
        return PathBounds(tables, self.kinds, self.slowdown, self.message_s)

    def least_s(self, shape: Shape, cuts: Sequence[int], stages: int, budget_bytes: float) -> float:
        """Seconds of the passes of a pipeline at the least, from bounds of its whole place.

        All stages together, their memory pooled, take so much; the first micro-batch goes forward
        through the model and the last one back; and where cuts are fixed the last stage waits for
        the layers before it, runs its own passes, and where backwards are whole waits for theirs.

        Args:
            shape: the pipeline.
            cuts: cut points of its chunks, empty where they are free.
            stages: the most that pipelines of the place have: fewer hold less.
            budget_bytes: what a device may hold.
        """
        every_s, cost = self._pool((stages, shape.microbatches, budget_bytes, shape.pairs))
        forward, back = self._alone_s(shape)
        found = max(every_s / shape.stages, sum(forward[k] + back[k] for k in self.kinds))
        if cuts:
            places = [shape.position(shape.stages - 1, c) for c in range(shape.chunks)]
            own = [k for place in places for k in self.kinds[cuts[place] : cuts[place + 1]]]
            waits = self.kinds[: cuts[min(places)]]
            drains = shape.kind not in SPLIT_KINDS
            ramp_s = sum(forward[kind] + drains * back[kind] for kind in waits)
            found = max(found, ramp_s + sum(cost.seconds[kind] for kind in own) + cost.rest_s)
        return found * (1 - ROUNDING)

    def _alone_s(self, shape: Shape) -> tuple[dict[int, float], dict[int, float]]:
        """The least of each kind's first forward, and of its last backward or its input part."""
        part: BackwardPart = "input" if shape.kind in SPLIT_KINDS else "whole"
        one = shape.microbatches == 1
        hides = (2 - self.slowdown) if shape.pairs else 0.0
        found = []
        for kind in (PassKind(True, 0, True, one), PassKind(False, 0, one, True, part)):
            number = kind_number(kind)
            columns = {k: t.columns[:, :, number] for k, t in self.tables.items()}
            least = {k: (c[:, WORK] - hides * c[:, INSIDE]).min() for k, c in columns.items()}
            found.append({k: float(seconds) for k, seconds in least.items()})
        return found[0], found[1]

    def _pool(self, key: tuple[int, int, float, bool]) -> tuple[float, StageCost]:
        """Seconds of all passes of all stages, and what their prices say of each stage alone.

        Args:
            key: stages whose memory is pooled, micro-batches, bytes of a device, and whether
                passes overlap.
        """
        if key not in self._pooled:
            stages, microbatches, budget_bytes, pairs = key
            alone = Shape(1, 1, "1f1b", 1, microbatches)
            cells = pooled_cells(self.seats, self.kinds, alone, (1, len(self.kinds)))
            counts = every_pass(alone.kind, microbatches)[None]
            none = np.zeros_like(counts)
            budget = np.array([stages * budget_bytes])
            step = RelaxedStep(cells, (alone.kind, 1, 1, microbatches), self.slowdown, budget)
            single, paired = (none, counts) if pairs else (counts, none)
            step.follow([Chain((0,), single, paired, np.zeros((2, 1)))])
            found = step.bound(float("inf"), plays=False)
            self.seeds += _seeds(cells, found.mix or [])
            cost = StageCost(dict.fromkeys(self.tables, 0.0), 0.0)
            if found.prices is not None:
                spare_s = float(found.prices.bytes_s[0]) * budget_bytes
                seconds = least_of_kinds(cells, found.prices)
                cost = StageCost(seconds, min(found.prices.rest_s, 0.0) - spare_s)
            self._pooled[key] = found.seconds * (1 - ROUNDING), cost
        return self._pooled[key]

    def relaxed(
        self, shape: Shape, budget_bytes: float, enough_s: float, plays: bool = True
    ) -> Relaxed:
        """The relaxed step of a pipeline of one chunk a stage, over all its cuts.

        Args:
            shape: the pipeline.
            budget_bytes: what a device may hold.
            enough_s: plans that take longer are of no interest.
            plays: whether the step is played for more chains than the closed ones.

        Returns:
            A bound of the plans that take less than ``enough_s``: of all others that itself is one.
        """
        travel_s = self.least_travel_s(shape)
        place = (self.seats, self.kinds, shape, budget_bytes)
        arcs = StageContents(*place, travel_s[0]).arcs(enough_s)
        if not arcs[0]:
            return Relaxed(enough_s, None, None)
        stages = shape.stages
        pipeline: Pipeline = (shape.kind, stages, shape.chunks, shape.microbatches)
        cells = free_cells(self.seats, shape, arcs, travel_s)
        step = RelaxedStep(cells, pipeline, self.slowdown, np.full(stages, budget_bytes))
        every = max(1, stages // MOST_FOLLOWED)
        step.follow(chains(pipeline, tuple(dict.fromkeys((*range(0, stages, every), stages - 1)))))
        return step.bound(enough_s, plays and shape.passes <= MOST_PASSES)

    def least_travel_s(self, shape: Shape) -> Floats:
        """Least seconds of the messages into each position, forward and backward.

        No stage hands on what the last layer, often a head, puts out: next to nothing.
        """
        kinds = dict.fromkeys(self.kinds[:-1])
        size = min((float(self.tables[kind].output_bytes.min()) for kind in kinds), default=0.0)
        found = np.zeros((2, shape.positions))
        for position in range(1, shape.positions):
            ends = shape.stage_of(position - 1), shape.stage_of(position)
            found[0, position] = self.message_s(shape, *ends, size)
            found[1, position - 1] = found[0, position]
        return found


def _seeds(cells: Cells, mix: Mix) -> list[dict[int, int]]:
    """The options of a mix of one place, by kind: first the most used ones, then the next."""
    ranked = [sorted(own, key=lambda option: (-own[option], option)) for own in mix]
    found = []
    for options in zip_longest(*ranked):
        rows = zip(cells.cells, ranked, options, strict=True)
        found.append({c.kind: own[0] if row is None else row for c, own, row in rows})
    return found


class BoundedCut(CutPipeline):
    """A pipeline with fixed cuts, while it is bounded.

    Args:
        bounds: of its place.
        shape: the pipeline.
        cuts: cut points of its chunks.
        budget_bytes: what a device may hold.
    """

    def __init__(
        self, bounds: PathBounds, shape: Shape, cuts: Sequence[int], budget_bytes: float
    ) -> None:
        super().__init__(bounds.seats, bounds.kinds, shape, cuts)
        self._bounds, self.budget_bytes = bounds, budget_bytes
        self._best_s = 0.0
        self._alone: list[int] = list(self._stages())
        self._step: RelaxedStep | None = None
        self._follows_all = False
        self.mixed: Mixed | None = None

    def bound(self, enough_s: float = float("inf"), plays: bool = True) -> float:
        """Seconds of the passes of every plan with these cuts at the least.

        Args:
            enough_s: a bound as high as this is high enough.
            plays: whether the step is played for more chains than the closed ones.
        """
        while self._alone and self._best_s < enough_s:
            self._best_s = max(self._best_s, self._stage_s(self._alone.pop(0)))
        if self._best_s < enough_s and not self._can_fit:
            self._best_s = float("inf")
        if self._best_s < enough_s:
            last, *others = self._stages()
            if self._step is None:
                self._step = self._new_step(np.full(self.shape.stages, self.budget_bytes))
                self._step.follow(chains(self.pipeline, (last,)))
                first_s = self._step.bound(enough_s, plays=False).seconds
                self._best_s = max(self._best_s, first_s)
            if self._best_s < enough_s and not self._follows_all:
                self._step.follow(chains(self.pipeline, tuple(others)) if others else ())
                self._follows_all = True
            if self._best_s < enough_s:
                found = self._step.bound(enough_s, plays and self.shape.passes <= MOST_PASSES)
                self._best_s = max(self._best_s, found.seconds)
                if found.mix is not None:
                    self.mixed = Mixed(self._step.cells, found.mix)
        return self._best_s * (1 - ROUNDING)

    def _stage_s(self, stage: int) -> float:
        """Seconds of the chains of a stage at the least, its own layers within its memory."""
        places = [self.shape.position(stage, chunk) for chunk in range(self.shape.chunks)]
        held = dict(zip(places, self.shape.held(stage), strict=True))
        rest = (held, self.budget_bytes, self._bounds.slowdown, self._travel_s)
        return max(least_chain_s(self, each, *rest) for each in chains(self.pipeline, (stage,)))

    @cached_property
    def _travel_s(self) -> Floats:
        return self._bounds.least_travel_s(self.shape)

    @cached_property
    def _can_fit(self) -> bool:
        return self._least_need() <= self.budget_bytes

    def forget(self) -> None:
        """Keep the bound, and nothing that was needed to find it."""
        self._step, self._follows_all, self.mixed = None, False, None
        self.__dict__.pop("uniform", None)

    @cached_property
    def uniform(self) -> UniformPaths | None:
        """Its uniform plans; None where none can fit."""
        if not self._can_fit:
            return None
        own, message_s = self._bounds, partial(self._bounds.message_s, self.shape)
        place = (own.seats, own.kinds, self.shape, self.cuts, self.budget_bytes)
        return UniformPaths(*place, own.slowdown, message_s)

    @property
    def estimate_s(self) -> float:
        """About what the best uniform plan takes; infinite where none fits."""
        own_s = float("inf") if self.uniform is None else self.uniform.estimate_s
        return max(own_s, self._best_s * (1 - ROUNDING))

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
        step = self._new_step(budgets)
        step.follow(chains(self.pipeline, self._stages()))
        found = step.bound(enough_s, plays=self.shape.passes <= MOST_PASSES)
        return found.seconds, None if found.mix is None else Mixed(step.cells, found.mix)

    def _new_step(self, budgets: Floats) -> RelaxedStep:
        """A step with the options that are best in the place."""
        cells = cut_cells(self, partial(self._bounds.message_s, self.shape))
        step = RelaxedStep(cells, self.pipeline, self._bounds.slowdown, budgets)
        for rows in self._bounds.seeds:
            step.offer([rows[cell.kind] for cell in cells.cells])
        return step
