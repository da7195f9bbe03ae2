"""What a technique says of its choice: the values that a search tries, and where.

A module of :mod:`techniques` ends in one :class:`TechniqueChoice`. A search knows none of them by
name: :class:`technique_options.TechniqueOptions` gives it strategies that hold values, each of
them priced as a whole.
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
    """Which values of a technique are tried.

    ``tried``: values for a layer, its other decisions (sharding left out), ranks of its stage and
    a workload, beside leaving the technique off; None: only what pins and lists of values ask for,
    and then ``untried`` says why. A value that is not legal is not taken, so none need be left out
    for that. ``device_reason``: what a value needs that a device of a catalogue name is not;
    ``cluster_violation``: why nothing is tried on a cluster, None where it is.
    """

    name: str
    tried: Callable[[Layer, LayerStrategy, int, Workload], Iterable[Any]] | None = None
    untried: str = ""
    device_reason: Callable[[Any, str], str | None] = _needs_nothing
    cluster_violation: Callable[[ClusterSpec], str | None] = _on_any

    def untried_reason(self, cluster: ClusterSpec) -> str | None:
        """Why only what is asked for is tried on a cluster; None: other values are too."""
        return self.untried if self.tried is None else self.cluster_violation(cluster)


Choices = tuple[TechniqueChoice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTechniques:
    """The techniques that a question may use, as the planner and what it stands on know them.

    ``allowed`` names those whose lossy values are tried too.
    """

    values: Values
    prices: TechniquePrices
    choices: Choices
    allowed: frozenset[str] = frozenset()

    def value(self, name: str) -> TechniqueValue | None:
        """What a technique of this name lets a plan decide; None: there is none."""
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
        """The plannable techniques: what pins and lists of values may speak of."""
        return tuple(value.name for value, _ in self.plannable)
