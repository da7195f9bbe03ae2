"""Search for a feasible plan, and for minimum-memory plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..bounds.shape_values import ShapeValues
from ..heuristics.heuristic import Heuristic
from ..space.pipeline_shape import PipelineShape
from .incumbents import Incumbents
from .roles import Nodes, Progress

LONG_STEP_PASSES = 200_000
"""Steps that take a good part of a second to simulate: in haste, others are tried first."""


class SizedHeuristic(Heuristic, Protocol):
    """A heuristic that knows the bytes of a shape's leanest plan."""

    def peak_bytes(self, shape: PipelineShape, /) -> float:
        """Minimum estimated bytes of a shape's fullest stage."""
        ...


class LeastMemory:
    """Minimum-memory plans, tried until one fits."""

    def __init__(self, heuristic: SizedHeuristic, incumbents: Incumbents, most: int) -> None:
        self._heuristic = heuristic
        self._incumbents = incumbents
        self._most = most

    def run(self, nodes: Nodes) -> None:
        """Try shapes by growing memory until a plan fits."""
        self.search(nodes.shapes)

    def search(self, shapes: Sequence[PipelineShape]) -> None:
        """:meth:`run` over some shapes."""
        if self._incumbents.outcomes:
            return
        peaks = []
        for shape in shapes:
            self._incumbents.check_deadline()
            peaks.append(self._heuristic.peak_bytes(shape))
        order = sorted(range(len(peaks)), key=lambda number: (peaks[number], number))
        for number in order[: self._most]:
            self._heuristic.search(shapes[number], self._incumbents.try_layers)
            if self._incumbents.outcomes:
                return


class FirstFeasible:
    """Some feasible plan: an answer for a deadline, a first incumbent."""

    def __init__(
        self,
        values: ShapeValues,
        likely: Heuristic,
        least_memory: LeastMemory,
        incumbents: Incumbents,
        progress: Progress,
    ) -> None:
        self._values = values
        self._likely = likely
        self._least_memory = least_memory
        self._incumbents = incumbents
        self._progress = progress

    def run(self) -> None:
        """Try shapes with the fewest idle devices until a plan fits."""
        incumbents, bounds = self._incumbents, self._values.bounds
        shapes = sorted(
            bounds.tables.space.plausible(),
            key=lambda s: (s.passes > LONG_STEP_PASSES, self._values.quick(s), s),
        )
        for number, shape in enumerate(shapes):
            if incumbents.outcomes or incumbents.is_late:
                break
            self._progress(number, len(shapes), incumbents.best_value)
            if bounds.estimate_s(shape) < float("inf"):
                self._likely.search(shape, incumbents.try_likely)
        self._least_memory.search(shapes)
        incumbents.sought_feasible = True
        incumbents.check_deadline()
