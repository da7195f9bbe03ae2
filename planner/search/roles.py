"""The parts that a search is composed of, as the engine sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..candidates.evaluator import Decision, Outcome
from ..space.pipeline_shape import PipelineShape
from .node_queue import NodeQueue

Progress = Callable[[int, int, float], None]
"""Receives shapes seen, shapes in all, and the best value."""
Refinement = Callable[[PipelineShape], float]
"""A better bound of a shape, as a value."""


class ShapeSpace(Protocol):
    """The shapes that a search branches over."""

    @property
    def layer_classes(self) -> tuple[int, ...]:
        """Class of every layer."""
        ...

    def shapes(self) -> Iterable[PipelineShape]:
        """Every shape."""
        ...

    def describe(self, shapes: list[PipelineShape]) -> dict[str, list[Any]]:
        """Axes of the space and their values, for a report."""
        ...

    def left_out(self, has_solver: bool) -> list[dict[str, str]]:
        """Parts of the space that are not searched, and why."""
        ...


class NodeBounds(Protocol):
    """Proven bounds of shapes, as values of the objective."""

    @property
    def refinements(self) -> Sequence[Refinement]:
        """Better bounds than the quick one, each at least as good as the one before."""
        ...

    def quick(self, shape: PipelineShape) -> float:
        """A bound at once."""
        ...

    def unlisted(self) -> float:
        """A bound on the plans of all shapes that the space did not list."""
        ...

    def interrupted(self, listed: float | None) -> float:
        """A bound on every plan where a search ends early.

        Args:
            listed: bound of the listed shapes as far as it is known; None before all are listed.
        """
        ...

    def seconds(self, bound: float, shapes: Sequence[PipelineShape], best: Outcome | None) -> float:
        """Least seconds of every plan's step, from a proven bound on the value."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """All shapes of a search with their quick bounds, and the queue that orders them."""

    shapes: list[PipelineShape]
    quick: list[float]
    queue: NodeQueue


class StartHeuristic(Protocol):
    """A search for some plan that fits, before shapes are listed."""

    def run(self) -> None:
        """Try plans until one fits."""
        ...


class SearchHeuristic(Protocol):
    """A choice of shapes in which primal heuristics look for good plans."""

    def run(self, nodes: Nodes) -> None:
        """Try plans of some shapes."""
        ...


class ShapePlans(Protocol):
    """The plans of one shape, for enumeration."""

    @property
    def count(self) -> int:
        """Number of plans."""
        ...

    @property
    def is_enumerable(self) -> bool:
        """True unless looking at every partition alone takes long."""
        ...

    def boundaries(self) -> Iterator[tuple[int, ...]]:
        """Every partition of the layers."""
        ...

    def bounded(
        self, boundaries: tuple[int, ...], limit_s: float
    ) -> Iterator[tuple[float, Decision]]:
        """Plans with these boundaries whose bound is below ``limit_s``, by growing bound."""
        ...
