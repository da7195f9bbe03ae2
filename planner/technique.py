"""TechniqueChoice: searched values of a technique and their layers.

Each module of ``techniques`` ends in one. A search knows none by name: ``TechniqueOptions``
supplies strategies with values, each priced as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ..costmodel.technique import TechniquePrices
from ..spec.cluster.cluster_spec import ClusterSpec
from ..spec.cluster.stack_spec import StackSpec
from ..spec.model.layers import Layer
from ..spec.model.model_spec import ModelSpec
from ..spec.strategy import LayerStrategy
from ..spec.technique import TechniqueValue, Values
from ..spec.technique_values import value_of_word
from ..spec.workload.workload import Workload

if TYPE_CHECKING:
    from ..costmodel.simulation.simulator import Simulation, Simulator
    from ..costmodel.symbolic.tier_bytes import Tier
    from ..spec.plan.plan import Plan


UNPRICED = "left out of a quick answer: its values are priced at every place"
OPEN = "auto"
"""The word of a pin that leaves a program's value to be chosen on whole plans."""


def _needs_nothing(value: Any, device: str) -> str | None:
    return None


def _on_any(cluster: ClusterSpec) -> str | None:
    return None


class ProgramPlace(NamedTuple):
    """What a whole program's values may depend on."""

    model: ModelSpec
    workload: Workload
    cluster: ClusterSpec
    stack: StackSpec


class FoundPlan(NamedTuple):
    """A whole plan that a search found, with its step and the simulator of both."""

    plan: Plan
    simulation: Simulation
    simulator: Simulator


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a layer's values are chosen.

    Attributes:
        index: number of the layer in the model.
        layer: the layer.
        strategy: its other decisions, sharding left out.
        ranks: of its stage.
        samples: of a micro-batch on a replica; several device groups may have unequal ones.
        workload: of the model.
        tiers: bytes a device of each granted tier.
        simulator: lowers and prices the layer on this machine.
    """

    index: int
    layer: Layer
    strategy: LayerStrategy
    ranks: int
    samples: int
    workload: Workload
    tiers: Mapping[Tier, int]
    simulator: Simulator

    def with_value(self, name: str, value: Any) -> LayerStrategy:
        """The layer's decisions with a technique's value, and no other technique."""
        return replace(self.strategy, techniques={name: value})


@dataclass(frozen=True, slots=True, kw_only=True)
class TechniqueChoice:
    """Searched values of a technique.

    Attributes:
        name: the technique.
        tried: values at a place, beside leaving the technique off; None: only those of pins and
            lists of values. The caller drops illegal ones, and those that only add to a layer.
        tried_in_program: the same of a program's technique, for the whole question.
        open_value: of a program's technique pinned as ``auto``: its search begins with this value,
            whose bounds hold for all.
        improved: other such values for a whole found plan, of which the best is searched once more.
        untried: reason for both being None.
        device_reason: requirement of a value unmet by a named catalogue device, else None.
        cluster_violation: reason to try nothing on a cluster, else None.
        prices_places: True if ``tried`` prices passes at every place, the most of a quick answer.
    """

    name: str
    tried: Callable[[Place], Iterable[Any]] | None = None
    tried_in_program: Callable[[ProgramPlace], Iterable[Any]] | None = None
    open_value: Any = None
    improved: Callable[[FoundPlan], Iterable[Any]] | None = None
    untried: str = ""
    device_reason: Callable[[Any, str], str | None] = _needs_nothing
    cluster_violation: Callable[[ClusterSpec], str | None] = _on_any
    prices_places: bool = False

    @property
    def tries_any(self) -> bool:
        """True if values are tried that nobody requests."""
        return self.tried is not None or self.tried_in_program is not None

    def untried_reason(self, cluster: ClusterSpec) -> str | None:
        """Reason to try only requested values; None if others are tried too."""
        return self.cluster_violation(cluster) if self.tries_any else self.untried


Choices = tuple[TechniqueChoice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTechniques:
    """Techniques of a question: values, prices and choices.

    ``allowed``: techniques whose lossy values are tried too, each with its greatest bound.
    """

    values: Values
    prices: TechniquePrices
    choices: Choices
    allowed: tuple[tuple[str, float], ...] = ()

    def without_priced_places(self) -> KnownTechniques:
        """The same without trying values that are priced at every place."""
        choices = tuple(
            replace(choice, tried=None, untried=UNPRICED) if choice.prices_places else choice
            for choice in self.choices
        )
        return replace(self, choices=choices)

    def allows(self, technique: TechniqueValue, value: Any) -> bool:
        """True if a value is exact, or lossy within what is allowed."""
        lossy = technique.lossy(value)
        return lossy is None or lossy.bound <= dict(self.allowed).get(technique.name, -1.0)

    def value(self, name: str) -> TechniqueValue | None:
        """The technique of a name; None: there is none."""
        return next((value for value in self.values if value.name == name), None)

    def pinned(self, technique: TechniqueValue, word: str, field: str) -> Any:
        """The value of a pin's word; of ``auto`` the one that its search begins with.

        Raises:
            InputError: a word that is none.
        """
        choice = next((one for one in self.choices if one.name == technique.name), None)
        if word == OPEN and choice is not None and choice.improved is not None:
            return choice.open_value
        return value_of_word(technique, word, field)

    @property
    def plannable(self) -> tuple[tuple[TechniqueValue, TechniqueChoice], ...]:
        """Techniques with a value, a price and a choice, in order."""
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

    @property
    def of_programs(self) -> tuple[str, ...]:
        """Names of those whose values stand in whole programs."""
        return tuple(value.name for value, _ in self.plannable if value.program is not None)
