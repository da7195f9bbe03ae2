"""Parts of a search, as the engine sees them."""

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
    """Shapes that a search branches over."""

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
        """Parts of the space not searched, with reasons."""
        ...


class NodeBounds(Protocol):
    """Proven bounds of shapes, as values of the objective."""

    @property
    def refinements(self) -> Sequence[Refinement]:
        """Refined bounds, each at least as good as the one before."""
        ...

    def quick(self, shape: PipelineShape) -> float:
        """Immediate bound."""
        ...

    def unlisted(self) -> float:
        """Bound on the plans of all unlisted shapes."""
        ...

    def interrupted(self, listed: float | None) -> float:
        """Bound on every plan after an early end.

        Args:
            listed: bound of the listed shapes so far; None before all are listed.
        """
        ...

    def seconds(self, bound: float, shapes: Sequence[PipelineShape], best: Outcome | None) -> float:
        """Minimum seconds of every plan's step, from a proven value bound."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """All shapes of a search with their quick bounds, and their queue."""

    shapes: list[PipelineShape]
    quick: list[float]
    queue: NodeQueue


class StartHeuristic(Protocol):
    """Search for a feasible plan, before shapes are listed."""

    def run(self) -> None:
        """Try plans until one fits."""
        ...


class SearchHeuristic(Protocol):
    """Choice of shapes for primal heuristics."""

    def run(self, nodes: Nodes) -> None:
        """Try plans of some shapes."""
        ...


class ShapePlans(Protocol):
    """Plans of one shape, for enumeration."""

    @property
    def count(self) -> int:
        """Number of plans."""
        ...

    @property
    def is_enumerable(self) -> bool:
        """True unless visiting every partition alone takes long."""
        ...

    def boundaries(self) -> Iterator[tuple[int, ...]]:
        """Every partition of the layers."""
        ...

    def bounded(
        self, boundaries: tuple[int, ...], limit_s: float
    ) -> Iterator[tuple[float, Decision]]:
        """Plans within boundaries and below ``limit_s``, by growing bound."""
        ...
