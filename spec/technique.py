"""What a technique says of its values: the first of its four roles, in words that all packages use.

A module of :mod:`techniques` ends in one :class:`TechniqueValue`. What it leaves out has the
usual meaning: legal wherever its layer kinds are, on any stack, exact, in no rank group of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cluster.stack_spec import StackSpec
    from .model.layers import Layer
    from .parallel.rank_groups import RankGroup
    from .strategy import LayerStrategy
    from .workload.workload import DtypeRecord

OFF = "none"
"""What a flag or a pin says of a technique that is absent from the plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKinds:
    """The layer kinds that a technique is planned, priced and run for, as ``Layer.kind``."""

    plannable: tuple[str, ...]
    simulable: tuple[str, ...]
    executable: tuple[str, ...]

    @classmethod
    def all_of(cls, *kinds: str) -> LayerKinds:
        """The same kinds in every respect."""
        return cls(plannable=kinds, simulable=kinds, executable=kinds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lossy:
    """How far a value may change results: ``of`` differs by the fraction ``bound`` at the most."""

    bound: float
    of: str

    def __str__(self) -> str:
        return f"{self.of} within {self.bound:g}"


def _no_layer_reason(
    layer: Layer, strategy: LayerStrategy, stage_ranks: int, dtype: DtypeRecord
) -> str | None:
    return None


def _no_stack_reason(strategy: LayerStrategy, stack: StackSpec) -> str | None:
    return None


def _exact(value: Any) -> Lossy | None:
    return None


def _no_groups(strategy: LayerStrategy, stage_ranks: int) -> tuple[RankGroup, ...]:
    return ()


def never_joins(strategy: LayerStrategy) -> bool:
    """No value of the technique makes all gradients of a layer at once."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class TechniqueValue:
    """What a technique lets a plan decide for a layer.

    ``value``: a frozen dataclass whose every default is the usual choice; it is hashable and reads
    from JSON. ``words``: what a flag or pin may say, beside ``none``, as errors list it;
    ``from_word`` gives the value of a word (None: it is not one) and ``word_of`` its word.
    ``legality_violation`` and ``stack_violation``: why a value may not stand in a layer's
    strategy, or a
    stack cannot say it; one line each, None where it may. ``lossy``: how far a value changes
    results; None: it is exact. ``groups``: the rank groups of its own inside a stage, which a run
    makes up front and whose communicators are counted. ``joins_backward``: whether a run makes all
    gradients of a layer at once, so that no schedule can split its backward. ``slow_start``:
    whether the first step may take minutes, which the other ranks wait for.
    """

    name: str
    value: type[Any]
    kinds: LayerKinds
    words: tuple[str, ...]
    word_of: Callable[[Any], str]
    from_word: Callable[[str], Any]
    legality_violation: Callable[[Layer, LayerStrategy, int, DtypeRecord], str | None] = (
        _no_layer_reason
    )
    stack_violation: Callable[[LayerStrategy, StackSpec], str | None] = _no_stack_reason
    lossy: Callable[[Any], Lossy | None] = _exact
    groups: Callable[[LayerStrategy, int], tuple[RankGroup, ...]] = _no_groups
    joins_backward: Callable[[LayerStrategy], bool] = never_joins
    slow_start: bool = False

    def of(self, strategy: LayerStrategy) -> Any:
        """The value in a layer's strategy; None: it is off."""
        found = strategy.techniques.get(self.name)
        return found if isinstance(found, self.value) else None

    def text_of(self, strategy: LayerStrategy) -> str:
        """The word of a flag or pin for what a layer's strategy says."""
        found = self.of(strategy)
        return OFF if found is None else self.word_of(found)


def layer_kind_violation(
    technique: TechniqueValue, layer: Layer, kinds: tuple[str, ...]
) -> str | None:
    """Why a technique is not for a layer's kind; None if it is one of ``kinds``."""
    if layer.kind in kinds:
        return None
    wanted = " and ".join(f"{kind}s" for kind in kinds)
    return f"{technique.name} applies to {wanted or 'no layers yet'}, not to the {layer.kind}"
