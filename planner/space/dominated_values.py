"""Values of techniques that are never better than the technique left off.

They only add to a layer (``costmodel.lowering.added_only``), so in every plan the plain layer is no
slower and no larger. They are left out before values are combined.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...costmodel.lowering.added_only import only_adds_to_passes, only_adds_to_states
from ...costmodel.lowering.plan_lowering import Lowering
from ...costmodel.sharding.fsdp_unit import FsdpUnit
from ...spec.strategy import LayerStrategy
from ...spec.technique import OFF, TechniqueValue
from ..technique import Place
from .request import Request

_States = tuple[FsdpUnit, dict[tuple[str, Any], bool]]
"""A layer's states without techniques, and which values only add to them."""


class DominatedValues:
    """Values that a search leaves out, since the plain layer dominates them.

    ``words``: of those met so far, by technique.
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        self._values = {value.name: value for value in request.techniques.values}
        self._prices = {price.name: price for price in request.techniques.prices}
        self._adds_to_passes: dict[tuple[object, ...], bool] = {}
        self._states: dict[tuple[object, ...], _States] = {}
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
        lowering: Lowering,
        index: int,
        strategy: LayerStrategy,
        ranks: int,
        named: tuple[str, Any],
    ) -> bool:
        """True for a value of :meth:`in_passes` that only adds to a layer's states too.

        Args:
            lowering: of the model.
            index: first layer of its class.
            strategy: of the layer, sharding among its decisions, without techniques.
            ranks: of its stage.
            named: the technique's name, and the value.
        """
        s, (name, value) = strategy, named
        key = (index, s.tp, s.sequence_parallel, s.cp, s.ep, s.etp, s.shard, ranks)
        if key not in self._states:
            self._states[key] = lowering.uncached_unit((index,), s, ranks), {}
        plain, known = self._states[key]
        if named not in known:
            alone = replace(s, techniques={name: value})
            known[named] = only_adds_to_states(
                lowering, self._prices[name], index, alone, ranks, plain
            )
        if known[named]:
            self._note(self._values[name], value)
        return known[named]

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
