"""Proof of a search: shapes by growing bound, small ones enumerated.

The proven bound is the least bound of an open shape.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from .enumeration import ROUNDING, Enumeration
from .incumbents import Incumbents
from .roles import NodeBounds, Nodes, Progress
from .work_limits import Quota


class Improvement(Protocol):
    """Search for better plans once a shape stays open."""

    def run(self, nodes: Nodes, done: set[int]) -> None:
        """Try plans of shapes outside the numbers ``done``."""
        ...


class PlanImprovement:
    """An improvement of the plans found, whatever shapes are left."""

    def __init__(self, improve: Callable[[], None]) -> None:
        self._improve = improve

    def run(self, nodes: Nodes, done: set[int]) -> None:
        """Improve them."""
        self._improve()


class Improvements:
    """Several improvements, one after the other."""

    def __init__(self, *improvements: Improvement) -> None:
        self._improvements = improvements

    def run(self, nodes: Nodes, done: set[int]) -> None:
        """Run each."""
        for improvement in self._improvements:
            improvement.run(nodes, done)


class Proof:
    """Proof over shapes in the order of their bounds.

    ``proven_value`` bounds all plans not simulated.
    """

    def __init__(
        self,
        bounds: NodeBounds,
        enumeration: Enumeration,
        incumbents: Incumbents,
        quota: Callable[[], Quota],
        improvement: Improvement,
        progress: Progress,
    ) -> None:
        self._bounds = bounds
        self._enumeration = enumeration
        self._incumbents = incumbents
        self._quota = quota
        self._improvement = improvement
        self._progress = progress
        self.proven_value = 0.0

    def run(self, nodes: Nodes) -> tuple[float, bool]:
        """Enumerate shapes by bound until one stays open or none can win.

        Later shapes too large to enumerate need no exact bounds: they can neither lower the bound
        nor give a plan.

        Returns:
            The proven bound, and True if it proves the best plan.
        """
        incumbents, unlisted, opened = self._incumbents, self._bounds.unlisted(), float("inf")
        done: set[int] = set()
        quota = self._quota()
        for bound, number in nodes.queue:
            if self._passes_best(bound):
                break
            self.proven_value = bound
            self._progress(len(done), len(nodes.shapes), incumbents.best_value)
            done.add(number)
            if not self._enumeration.run(nodes.shapes[number], quota):
                opened = bound
                self._improvement.run(nodes, done)
                break
        least = min(unlisted, opened)
        is_proven = self._passes_best(least)
        return (incumbents.best_value if is_proven else least), is_proven

    def _passes_best(self, bound: float) -> bool:
        return bound >= self._incumbents.best_value * (1 - ROUNDING)
