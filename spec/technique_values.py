"""Technique values of a layer's strategy, by word, with joint rules.

Techniques left out are those that are shipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from .errors import one_of
from .technique import OFF, Scope, State, TechniqueValue, Values, layer_kind_violation
from .techniques import TECHNIQUES

if TYPE_CHECKING:
    from .cluster.stack_spec import StackSpec
    from .model.layers import Layer
    from .parallel.rank_groups import RankGroup
    from .strategy import LayerStrategy
    from .workload.workload import DtypeRecord


def by_name(techniques: Values = TECHNIQUES) -> dict[str, TechniqueValue]:
    """Each technique by the name that a plan has for it."""
    return {technique.name: technique for technique in techniques}


def technique_scope_violation(
    name: str, scope: Scope | None, techniques: Values = TECHNIQUES
) -> str | None:
    """Why a plan may not name a technique there; None if it may.

    Args:
        name: the technique.
        scope: of the place; None: nothing stands there yet.
        techniques: those that are known.
    """
    technique = by_name(techniques).get(name)
    if technique is None or scope is None:
        return f"technique {name!r} is not built yet"
    if technique.scope == scope:
        return None
    owner = {"layer": "layers", "program": "a whole program"}
    return f"{name} belongs to {owner[technique.scope]}, not to {owner[scope]}"


def technique_violation(
    layer: Layer,
    strategy: LayerStrategy,
    stage_ranks: int,
    dtype: DtypeRecord,
    techniques: Values = TECHNIQUES,
) -> str | None:
    """The rule broken by a technique of a layer; None if legal.

    Args:
        layer: the layer.
        strategy: its decisions.
        stage_ranks: ranks of the stage that holds it.
        dtype: number formats of the workload.
        techniques: those that are known.
    """
    for technique in _used(strategy, techniques):
        if technique.of(strategy) is None:
            return f"{technique.name} holds no {technique.value.__name__} value"
        reason = layer_kind_violation(technique, layer, technique.kinds.simulable)
        reason = reason or technique.legality_violation(layer, strategy, stage_ranks, dtype)
        if reason:
            return reason
    return _twice_claimed(strategy, techniques) if len(strategy.techniques) > 1 else None


def technique_token_violation(
    strategy: LayerStrategy, seq_len: int, techniques: Values = TECHNIQUES
) -> str | None:
    """Why a layer's technique does not fit a sample's tokens; None if legal."""
    reasons = (t.token_violation(strategy, seq_len) for t in _used(strategy, techniques))
    return next((reason for reason in reasons if reason), None)


def _twice_claimed(strategy: LayerStrategy, techniques: Values) -> str | None:
    """The state of a layer that two of its techniques relocate."""
    for first, second in combinations(_used(strategy, techniques), 2):
        if shared := first.relocates(strategy) & second.relocates(strategy):
            states = " and ".join(sorted(shared))
            return f"{first.name} and {second.name} both claim the {states}"
    return None


def technique_stack_violation(
    strategy: LayerStrategy, stack: StackSpec, techniques: Values = TECHNIQUES
) -> str | None:
    """Stack rule broken by a layer's technique; None if legal."""
    reasons = (t.stack_violation(strategy, stack) for t in _used(strategy, techniques))
    return next((reason for reason in reasons if reason), None)


def unsupported_technique(
    layer: Layer, strategy: LayerStrategy, techniques: Values = TECHNIQUES
) -> str | None:
    """The technique not run for its layer's kind; None if all are."""
    reasons = (
        layer_kind_violation(t, layer, t.kinds.executable) for t in _used(strategy, techniques)
    )
    return next((f"{reason} in a run" for reason in reasons if reason), None)


def unsupported_split_backward(
    strategy: LayerStrategy, techniques: Values = TECHNIQUES
) -> str | None:
    """The technique excluding split backwards; None without one."""
    for technique in _used(strategy, techniques):
        if technique.joins_backward(strategy):
            word = technique.text_of(strategy)
            return (
                f"{technique.name} {word} makes all gradients of a block at once, "
                "which a schedule that splits the backward does not"
            )
    return None


def technique_groups(
    strategy: LayerStrategy, stage_ranks: int, techniques: Values = TECHNIQUES
) -> dict[str, tuple[RankGroup, ...]]:
    """Techniques' own rank groups of more than one rank."""
    groups = {
        technique.name: tuple(
            group for group in technique.groups(strategy, stage_ranks) if group.size > 1
        )
        for technique in _used(strategy, techniques)
    }
    return {name: members for name, members in groups.items() if members}


def relocated_states(strategy: LayerStrategy, techniques: Values = TECHNIQUES) -> frozenset[State]:
    """States of a layer kept on another tier, not on the device."""
    return frozenset[State]().union(*(t.relocates(strategy) for t in _used(strategy, techniques)))


def _used(strategy: LayerStrategy, techniques: Values) -> Iterator[TechniqueValue]:
    if strategy.techniques:
        yield from (t for t in techniques if t.name in strategy.techniques)


def lossy_values(
    strategies: Iterable[LayerStrategy], techniques: Values = TECHNIQUES
) -> dict[str, str]:
    """``NAME=WORD`` of the lossy values in use -> their bounds as text."""
    return {
        f"{technique.name}={technique.word_of(value)}": str(bound)
        for strategy in dict.fromkeys(strategies)
        for technique in _used(strategy, techniques)
        if (value := technique.of(strategy)) is not None
        and (bound := technique.lossy(value)) is not None
    }


def with_value(strategy: LayerStrategy, name: str, value: Any) -> LayerStrategy:
    """The strategy with a technique's value; None: with the technique off."""
    values = {other: kept for other, kept in strategy.techniques.items() if other != name}
    if value is not None:
        values[name] = value
    return replace(strategy, techniques=values)


def with_word(
    strategy: LayerStrategy, technique: TechniqueValue, word: str, field: str
) -> LayerStrategy:
    """The strategy with the value of a flag's or pin's word.

    Raises:
        InputError: ``word`` is none of the technique's; ``field`` says where it was given.
    """
    return with_value(strategy, technique.name, value_of_word(technique, word, field))


def value_of_word(technique: TechniqueValue, word: str, field: str) -> Any:
    """The value that a flag or pin names; None: off.

    Raises:
        InputError: ``word`` is none of the technique's; ``field`` says where it was given.
    """
    if word == OFF:
        return None
    name, colon, number = word.partition(":")
    for family in technique.families:
        if colon and name == family.word:
            return family.value(number, field)
    value = technique.from_word(word)
    if value is None:
        one_of(field, word, (OFF, *technique.forms))
    return value


def slow_start(strategies: Iterable[LayerStrategy], techniques: Values = TECHNIQUES) -> bool:
    """True if these layers' first step may take minutes."""
    return any(t.slow_start for s in dict.fromkeys(strategies) for t in _used(s, techniques))
