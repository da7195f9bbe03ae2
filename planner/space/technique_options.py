"""Strategies of a layer with the values of a request's techniques."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...costmodel.technique import TechniquePrice
from ...spec.model.model_spec import Layer
from ...spec.program_values import program_layer_violation
from ...spec.strategy import LayerStrategy
from ...spec.technique import OFF, TechniqueValue, layer_kind_violation, never_joins
from ...spec.technique_values import (
    technique_violation,
    unsupported_technique,
    value_of_word,
    with_value,
)
from ..technique import TechniqueChoice

if TYPE_CHECKING:
    from .request import Request


class TechniqueOptions:
    """Add technique values to a layer's strategy."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._techniques = request.techniques
        self._plannable = self._techniques.plannable
        self._devices = tuple(group.device for group in request.cluster.groups)

    def strategies(
        self, index: int, layer: Layer, strategy: LayerStrategy, ranks: int
    ) -> list[LayerStrategy]:
        """A strategy without techniques, then with every combination of values.

        Legality is decided with the sharding, by :meth:`violation`.
        """
        combinations = [strategy]
        for value, choice in self._plannable:
            if layer_kind_violation(value, layer, value.kinds.plannable) is None:
                tried = self._values(index, layer, strategy, ranks, value, choice)
                combinations += [
                    with_value(one, value.name, added) for added in tried for one in combinations
                ]
        return combinations

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
        if violation is None and self._request.executable:
            violation = unsupported_technique(layer, strategy, values)
        return violation

    def _values(
        self,
        index: int,
        layer: Layer,
        strategy: LayerStrategy,
        ranks: int,
        value: TechniqueValue,
        choice: TechniqueChoice,
    ) -> list[Any]:
        """Values of one technique: requested ones, in its order, then its own."""
        words = sorted(self._requested(index, value.name), key=lambda word: _rank(value, word))
        values = [value_of_word(value, word, value.name) for word in words]
        if choice.tried is not None and self._tries(choice):
            tried = choice.tried(layer, strategy, ranks, self._request.workload)
            values += [one for one in tried if self._techniques.allows(value, one)]
        return [
            one
            for one in dict.fromkeys(values)
            if one is not None
            and not any(choice.device_reason(one, device) for device in self._devices)
        ]

    def _requested(self, index: int, name: str) -> set[str]:
        request = self._request
        pinned = {str(p.value) for p in request.pins if p.key == name and p.covers(index)}
        return pinned | {str(word) for word in (request.values or {}).get(name, ())}

    def _tries(self, choice: TechniqueChoice) -> bool:
        return choice.untried_reason(self._request.cluster) is None

    def may_join_backward(self) -> bool:
        """True if the space may hold a value of unsplittable backward."""
        request = self._request
        for value, choice in self._plannable:
            pinned = {str(pin.value) for pin in request.pins if pin.key == value.name}
            words = pinned | {str(word) for word in (request.values or {}).get(value.name, ())}
            if value.joins_backward is not never_joins and (self._tries(choice) or words - {OFF}):
                return True
        return False

    def in_play(self) -> tuple[TechniquePrice, ...]:
        """Prices of techniques possible in the space."""
        request = self._request
        named = {pin.key for pin in request.pins} | set(request.values or ())
        names = {v.name for v, choice in self._plannable if self._tries(choice) or v.name in named}
        names -= {*self._techniques.of_programs}
        return tuple(price for price in self._techniques.prices if price.name in names)


def _rank(value: TechniqueValue, word: str) -> tuple[int, str]:
    listed = value.words
    return (listed.index(word) if word in listed else len(listed), word)
