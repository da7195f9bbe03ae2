"""Values of techniques that are never better than the technique left off.

They only add to a layer (``costmodel.lowering.added_only``), so in every plan the plain layer is no
slower and no larger. They are left out before values are combined.
"""

from __future__ import annotations

from collections.abc import Callable
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
        self._known: dict[tuple[object, ...], bool] = {}
        self.words: dict[str, set[str]] = {}

    def of_passes(self, place: Place, technique: TechniqueValue, value: Any) -> bool:
        """True for a value that touches no states, and only adds to the layer's passes."""
        price = self._prices[technique.name]
        if price.touches_states or not self._may_be_off(place.index, technique.name):
            return False
        if not self._adds_to_passes(place, technique.name, value):
            return False
        self._note(technique, value)
        return True

    def of_states(self, place: Place, strategy: LayerStrategy) -> bool:
        """True if a value in a layer's strategy touches states, and only adds to the layer.

        Args:
            place: of the layer.
            strategy: its decisions, sharding among them.
        """
        for name, value in strategy.techniques.items():
            price = self._prices[name]
            if not price.touches_states or not self._may_be_off(place.index, name):
                continue
            if self._adds_to_passes(place, name, value) and self._adds_to_states(
                place, strategy, name, value
            ):
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

    def _adds_to_passes(self, place: Place, name: str, value: Any) -> bool:
        lowering, strategy = place.simulator.lowering, place.with_value(name, value)
        layer_class = lowering.kinds[place.index]
        return self._once(
            (layer_class, strategy, place.samples),
            lambda: only_adds_to_passes(
                lowering, self._prices[name], place.index, strategy, place.samples
            ),
        )

    def _adds_to_states(self, place: Place, strategy: LayerStrategy, name: str, value: Any) -> bool:
        lowering = place.simulator.lowering
        alone = place.with_value(name, value)
        return self._once(
            (lowering.kinds[place.index], alone, strategy.shard, place.ranks, "states"),
            lambda: only_adds_to_states(
                lowering, self._prices[name], place.index, alone, strategy.shard, place.ranks
            ),
        )

    def _once(self, key: tuple[object, ...], find: Callable[[], bool]) -> bool:
        if key not in self._known:
            self._known[key] = find()
        return self._known[key]
