"""TechniqueChoice: the values of a technique that a search tries, and where.

A module of ``techniques`` ends in one. A search knows none by name: ``TechniqueOptions`` gives it
strategies that hold values, each priced as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ..costmodel.technique import TechniquePrices
from ..spec.cluster.cluster_spec import ClusterSpec
from ..spec.model.layers import Layer
from ..spec.strategy import LayerStrategy
from ..spec.technique import TechniqueValue, Values
from ..spec.workload.workload import Workload


def _needs_nothing(value: Any, device: str) -> str | None:
    return None


def _on_any(cluster: ClusterSpec) -> str | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class TechniqueChoice:
    """The values of a technique that a search tries.

    Attributes:
        name: the technique.
        tried: values for a layer, its other decisions (sharding left out), ranks of its stage and
            a workload, beside leaving the technique off; None: only what pins and lists of values
            ask for. What is not legal is left out by the caller.
        untried: why, where ``tried`` is None.
        device_reason: what a value needs that a device of a catalogue name is not; else None.
        cluster_violation: why nothing is tried on a cluster; None where it is.
    """

    name: str
    tried: Callable[[Layer, LayerStrategy, int, Workload], Iterable[Any]] | None = None
    untried: str = ""
    device_reason: Callable[[Any, str], str | None] = _needs_nothing
    cluster_violation: Callable[[ClusterSpec], str | None] = _on_any

    def untried_reason(self, cluster: ClusterSpec) -> str | None:
        """The reason to try only what is asked for; None: other values are tried too."""
        return self.untried if self.tried is None else self.cluster_violation(cluster)


Choices = tuple[TechniqueChoice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTechniques:
    """The techniques that a question may use: values, prices and choices.

    ``allowed`` names those whose lossy values are tried too.
    """

    values: Values
    prices: TechniquePrices
    choices: Choices
    allowed: frozenset[str] = frozenset()

    def value(self, name: str) -> TechniqueValue | None:
        """The technique of a name; None: there is none."""
        return next((value for value in self.values if value.name == name), None)

    @property
    def plannable(self) -> tuple[tuple[TechniqueValue, TechniqueChoice], ...]:
        """The techniques that have a value, a price and a choice, in their order."""
        priced = {price.name for price in self.prices}
        chosen = {choice.name: choice for choice in self.choices}
        return tuple(
            (value, chosen[value.name])
            for value in self.values
            if value.name in chosen and value.name in priced
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the plannable techniques, for pins and lists of values."""
        return tuple(value.name for value, _ in self.plannable)
