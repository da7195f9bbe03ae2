"""Strategies that are joined from parts, which other lists of strategies share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain

from ...spec.strategy import LayerStrategy

Strategies = tuple[LayerStrategy, ...]


class JoinedStrategies(Strategies):
    """A tuple of strategies that knows its ``parts``: what is made once a part is shared."""

    parts: tuple[Strategies, ...]

    @classmethod
    def of(cls, parts: Iterable[Strategies]) -> JoinedStrategies:
        """The strategies of some parts in a row."""
        parts = tuple(parts)
        joined = cls(chain.from_iterable(parts))
        joined.parts = parts
        return joined


def parts_of(strategies: Strategies) -> tuple[Strategies, ...]:
    """Parts of strategies; none where they were made at once."""
    return strategies.parts if isinstance(strategies, JoinedStrategies) else ()


class StrategyFilter:
    """Strategies that pass, found once a part.

    The cache holds the parts, so that their ids stay their own.
    """

    def __init__(self, passes: Callable[[LayerStrategy], bool]) -> None:
        self._passes = passes
        self._cache: dict[int, tuple[Strategies, Strategies]] = {}

    def __call__(self, strategies: Strategies) -> Strategies:
        """Those that pass; the same object where all do."""
        entry = self._cache.get(id(strategies))
        if entry is None:
            parts = parts_of(strategies)
            kept: Strategies
            if parts:
                kept = JoinedStrategies.of(map(self, parts))
            else:
                kept = tuple(filter(self._passes, strategies))
            kept = strategies if len(kept) == len(strategies) else kept
            entry = self._cache[id(strategies)] = (kept, strategies)
        return entry[0]
