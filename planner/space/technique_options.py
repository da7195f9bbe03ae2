"""Strategies of a layer with the values of a request's techniques."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...costmodel.lowering.plan_lowering import Lowering
from ...costmodel.pricing.machine import Machine
from ...costmodel.pricing.pricer import Pricer
from ...costmodel.simulation.simulator import Simulator
from ...costmodel.technique import TechniquePrice
from ...spec.model.model_spec import Layer
from ...spec.number_family import NumberFamily
from ...spec.program_values import program_layer_violation
from ...spec.strategy import LayerStrategy
from ...spec.technique import OFF, TechniqueValue, layer_kind_violation, never_joins
from ...spec.technique_values import (
    technique_token_violation,
    technique_violation,
    unsupported_technique,
    value_of_word,
    with_value,
)
from ..technique import Place, TechniqueChoice
from .dominated_values import DominatedValues
from .memory_budget import tier_capacities
from .request import Request


@dataclass(frozen=True, slots=True)
class HeldValues:
    """Values of techniques that options hold at a place.

    ``values``: names and values; ``adding``: those of them that touch states, and only add to the
    layer's passes.
    """

    values: tuple[tuple[str, tuple[Any, ...]], ...]
    adding: frozenset[tuple[str, Any]]

    def combined(self, strategy: LayerStrategy) -> list[LayerStrategy]:
        """A strategy without techniques, then with every combination of the values.

        Legality is decided with the sharding, by :meth:`TechniqueOptions.violation`; there
        :meth:`TechniqueOptions.only_adds_to_states` says which values only add to the layer.
        """
        combinations = [strategy]
        for name, values in self.values:
            combinations += [
                with_value(one, name, added) for added in values for one in combinations
            ]
        return combinations


class TechniqueOptions:
    """Add technique values to a layer's strategy.

    ``simulator``: of the search; None: one at catalogue rates. ``holds_ends``: True once some
    layer's options stand for the numbers between theirs (:meth:`free_families`).
    """

    def __init__(self, request: Request, simulator: Simulator | None = None) -> None:
        self._request = request
        self._techniques = request.techniques
        self._plannable = self._techniques.plannable
        self._devices = tuple(group.device for group in request.cluster.groups)
        self._layers = request.model.layers()
        self._tiers = tier_capacities(request.cluster.groups[0].memory)
        self._given = simulator
        self.dominated = DominatedValues(request)
        self.holds_ends = False

    @cached_property
    def _simulator(self) -> Simulator:
        if self._given is not None:
            return self._given
        request, prices = self._request, self._techniques.prices
        lowering = Lowering(
            request.model, request.workload, request.stack, prices, program=request.program
        )
        return Simulator(lowering, Pricer(Machine(request.cluster), lowering.stack))

    @cached_property
    def depend_on_samples(self) -> bool:
        """True if some are in play: values may depend on a micro-batch's samples."""
        return bool(self.in_play())

    @property
    def price_places(self) -> bool:
        """True if values are in play that are counted out at every place of some layer."""
        return any(
            choice.prices_places and self._tries(choice) and value.name not in self._without_layers
            for value, choice in self._plannable
        )

    def place(self, index: int, strategy: LayerStrategy, ranks: int, samples: int) -> Place:
        """Where a layer's values are chosen; ``samples`` of a micro-batch on a replica."""
        return Place(
            index=index,
            layer=self._layers[index],
            strategy=strategy,
            ranks=ranks,
            samples=samples,
            workload=self._request.workload,
            tiers=self._tiers,
            simulator=self._simulator,
        )

    def held(self, index: int, strategy: LayerStrategy, ranks: int, samples: int) -> HeldValues:
        """Values that a layer's options hold beside its other decisions, sharding left out."""
        layer, held = self._layers[index], list[tuple[str, tuple[Any, ...]]]()
        adding = set[tuple[str, Any]]()
        for value, choice in self._plannable:
            if layer_kind_violation(value, layer, value.kinds.plannable) is None:
                values = self._values(index, strategy, ranks, samples, value, choice)
                if values:
                    place = self.place(index, strategy, ranks, samples)
                    added = (one for one in values if self.dominated.in_passes(place, value, one))
                    adding.update((value.name, one) for one in added)
                    held.append((value.name, tuple(values)))
        return HeldValues(tuple(held), frozenset(adding))

    def only_adds_to_states(
        self, index: int, strategy: LayerStrategy, ranks: int
    ) -> Callable[[tuple[str, Any]], bool]:
        """Tells values of ``HeldValues.adding`` that only add to a layer's states too.

        ``strategy``: of the layer, sharding among its decisions, without techniques.
        """
        return lambda named: self.dominated.in_states(
            self._simulator.lowering, index, strategy, ranks, named
        )

    def violation(self, layer: Layer, strategy: LayerStrategy, ranks: int) -> str | None:
        """Reason against a strategy's techniques, or beside the program's; None if legal."""
        values, program = self._techniques.values, self._request.program
        if program:
            reason = program_layer_violation(program, layer, strategy, ranks, values)
            if reason is not None:
                return reason
        if not strategy.techniques:
            return None
        dtype = self._request.workload.dtype
        violation = technique_violation(layer, strategy, ranks, dtype, values)
        tokens = self._request.workload.seq_len
        violation = violation or technique_token_violation(strategy, tokens, values)
        if violation is None and self._request.executable:
            violation = unsupported_technique(layer, strategy, values)
        return violation

    def _values(
        self,
        index: int,
        strategy: LayerStrategy,
        ranks: int,
        samples: int,
        value: TechniqueValue,
        choice: TechniqueChoice,
    ) -> list[Any]:
        """Values of one technique: requested ones, in its order, then its own."""
        words = sorted(self._requested(index, value.name), key=lambda word: _rank(value, word))
        values = [value_of_word(value, word, value.name) for word in words]
        tries = choice.tried if self._tries(choice) else None
        if not values and tries is None:
            return []
        place = self.place(index, strategy, ranks, samples)
        if tries is not None:
            values += [one for one in tries(place) if self._techniques.allows(value, one)]
        held = [
            one
            for one in dict.fromkeys(values)
            if one is not None
            and not any(choice.device_reason(one, device) for device in self._devices)
            and not self._adds_to_passes(place, value, one)
        ]
        families = (family for one, family in self.free_families(index) if one is value)
        if any(family.number_of(one) is not None for family in families for one in held):
            self.holds_ends = True
        return held

    def _adds_to_passes(self, place: Place, technique: TechniqueValue, value: Any) -> bool:
        alone = place.with_value(technique.name, value)
        is_legal = self.violation(place.layer, alone, place.ranks) is None
        return is_legal and self.dominated.of_passes(place, technique, value)

    def _requested(self, index: int, name: str) -> set[str]:
        request = self._request
        pinned = {str(p.value) for p in request.pins if p.key == name and p.covers(index)}
        return pinned | {str(word) for word in (request.values or {}).get(name, ())}

    def _tries(self, choice: TechniqueChoice) -> bool:
        return choice.untried_reason(self._request.cluster) is None

    def free_families(self, index: int) -> tuple[tuple[TechniqueValue, NumberFamily], ...]:
        """Families of which a layer's search holds the ends, and any number is in the space."""
        layer = self._layers[index]
        return tuple(
            (value, family)
            for value, choice in self._plannable
            if choice.tried is not None and self._tries(choice)
            if layer_kind_violation(value, layer, value.kinds.plannable) is None
            if value.name not in (self._request.values or {})
            and not any(p.key == value.name and p.covers(index) for p in self._request.pins)
            for family in value.families
            if family.above_chord
        )

    def may_join_backward(self) -> bool:
        """True if the space may hold a value of unsplittable backward."""
        request = self._request
        for value, choice in self._plannable:
            pinned = {str(pin.value) for pin in request.pins if pin.key == value.name}
            words = pinned | {str(word) for word in (request.values or {}).get(value.name, ())}
            if value.joins_backward is not never_joins and (self._tries(choice) or words - {OFF}):
                return True
        return False

    @cached_property
    def _without_layers(self) -> set[str]:
        """Techniques that no layer of the model can have."""
        layers = tuple(dict.fromkeys(self._layers))
        return {
            value.name
            for value, _ in self._plannable
            if all(layer_kind_violation(value, layer, value.kinds.plannable) for layer in layers)
        }

    def in_play(self) -> tuple[TechniquePrice, ...]:
        """Prices of techniques possible in the space."""
        request = self._request
        named = {pin.key for pin in request.pins} | set(request.values or ())
        names = {v.name for v, choice in self._plannable if self._tries(choice) or v.name in named}
        names -= {*self._techniques.of_programs, *self._without_layers}
        return tuple(price for price in self._techniques.prices if price.name in names)


def _rank(value: TechniqueValue, word: str) -> tuple[int, str]:
    listed = value.words
    return (listed.index(word) if word in listed else len(listed), word)
