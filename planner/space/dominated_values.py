"""Values of techniques that are never better than the technique left off.

They only add to a layer (``costmodel.lowering.added_only``), so in every plan the plain layer is no
slower and no larger. They are left out before values are combined.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ...costmodel.lowering.added_only import only_adds_to_passes, only_adds_to_states
from ...spec.strategy import LayerStrategy
from ...spec.technique import OFF, TechniqueValue
from ..technique import Place
from .request import Request


class DominatedValues:
    """Values that a search leaves out, since the plain layer dominates them.

    ``words``: of those met so far, by technique.
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        self._values = {value.name: value for value in request.techniques.values}
        self._prices = {price.name: price for price in request.techniques.prices}
        self._adds_to_passes: dict[tuple[object, ...], bool] = {}
        self._adds_to_states: dict[tuple[object, ...], bool] = {}
        self.words: dict[str, set[str]] = {}

    def of_passes(self, place: Place, technique: TechniqueValue, value: Any) -> bool:
        """True for a value that touches no states, and only adds to the layer's passes."""
        price = self._prices[technique.name]
        if price.touches_states or not self._may_be_off(place.index, technique.name):
            return False
        if not self._only_adds_to_passes(place, technique.name, value):
            return False
        self._note(technique, value)
        return True

    def in_passes(self, place: Place, technique: TechniqueValue, value: Any) -> bool:
        """True for a value that touches states, and only adds to the layer's passes."""
        price, name = self._prices[technique.name], technique.name
        if not price.touches_states or not self._may_be_off(place.index, name):
            return False
        return self._only_adds_to_passes(place, name, value)

    def in_states(
        self,
        index: int,
        strategy: LayerStrategy,
        ranks: int,
        adding: frozenset[tuple[str, Any]],
        place_of: Callable[[], Place],
    ) -> bool:
        """True if a value in a layer's strategy only adds to its states too.

        Args:
            index: first layer of its class.
            strategy: of the layer, sharding among its decisions.
            ranks: of its stage.
            adding: values that only add to passes, :meth:`in_passes`.
            place_of: makes the place of the layer, where it is asked for.
        """
        s = strategy
        for name, value in adding.intersection(strategy.techniques.items()):
            key = (index, name, value, s.tp, s.sequence_parallel, s.cp, s.ep, s.etp, s.shard, ranks)
            if key not in self._adds_to_states:
                place = place_of()
                alone = replace(place.with_value(name, value), shard=strategy.shard)
                self._adds_to_states[key] = only_adds_to_states(
                    place.simulator.lowering, self._prices[name], index, alone, ranks
                )
            if self._adds_to_states[key]:
                self._note(self._values[name], value)
                return True
        return False

    def _may_be_off(self, index: int, name: str) -> bool:
        request = self._request
        if any(pin.key == name and pin.covers(index) for pin in request.pins):
            return False
        return request.values is None or OFF in request.values.get(name, (OFF,))

    def _note(self, technique: TechniqueValue, value: Any) -> None:
        """Remember a word, unless it is outside the space anyway."""
        word, listed = technique.word_of(value), (self._request.values or {}).get(technique.name)
        if listed is None or word in listed:
            self.words.setdefault(technique.name, set()).add(word)

    def _only_adds_to_passes(self, place: Place, name: str, value: Any) -> bool:
        lowering, strategy = place.simulator.lowering, place.with_value(name, value)
        key = (lowering.kinds[place.index], strategy, place.samples)
        if key not in self._adds_to_passes:
            self._adds_to_passes[key] = only_adds_to_passes(
                lowering, self._prices[name], place.index, strategy, place.samples
            )
        return self._adds_to_passes[key]
