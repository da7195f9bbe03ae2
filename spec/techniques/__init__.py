"""What each technique lets a plan decide, and what they say together of a layer.

Every function takes the techniques that are known; left out, those that are shipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..codec import from_document
from ..errors import one_of
from ..technique import OFF, TechniqueValue, layer_kind_violation
from . import compile, cpu_offload

if TYPE_CHECKING:
    from ..cluster.stack_spec import StackSpec
    from ..model.layers import Layer
    from ..parallel.rank_groups import RankGroup
    from ..strategy import LayerStrategy
    from ..workload.workload import DtypeRecord

Values = tuple[TechniqueValue, ...]

TECHNIQUES: Values = (compile.TECHNIQUE, cpu_offload.TECHNIQUE)
"""One entry a module of this package, by whose name a plan knows it.

The packages ``costmodel``, ``planner`` and ``executor`` list theirs by the same names and order.
"""


def by_name(techniques: Values = TECHNIQUES) -> dict[str, TechniqueValue]:
    """Each technique by the name that a plan has for it."""
    return {technique.name: technique for technique in techniques}


def typed_values(given: Mapping[str, Any], techniques: Values = TECHNIQUES) -> dict[str, Any]:
    """Values of techniques as read from a document, each in its own type.

    What is no technique stays as it is: :meth:`Plan.check` names it.

    Raises:
        InputError: a value that its technique does not have.
    """
    known = by_name(techniques)
    return {
        name: from_document(known[name].value, value, f"techniques.{name}")
        if name in known and not isinstance(value, known[name].value)
        else value
        for name, value in given.items()
    }


def technique_violation(
    layer: Layer,
    strategy: LayerStrategy,
    stage_ranks: int,
    dtype: DtypeRecord,
    techniques: Values = TECHNIQUES,
) -> str | None:
    """Why a technique of a layer is not legal there; None if all are.

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
    return None


def technique_stack_violation(
    strategy: LayerStrategy, stack: StackSpec, techniques: Values = TECHNIQUES
) -> str | None:
    """Why the stack cannot say a technique of a layer; None if it can say all."""
    reasons = (each.stack_violation(strategy, stack) for each in _used(strategy, techniques))
    return next((reason for reason in reasons if reason), None)


def unsupported_technique(
    layer: Layer, strategy: LayerStrategy, techniques: Values = TECHNIQUES
) -> str | None:
    """Why a technique of a layer is not run for its kind; None if all are."""
    reasons = (
        layer_kind_violation(t, layer, t.kinds.executable) for t in _used(strategy, techniques)
    )
    return next((f"{reason} in a run" for reason in reasons if reason), None)


def unsupported_split_backward(
    strategy: LayerStrategy, techniques: Values = TECHNIQUES
) -> str | None:
    """Why a layer does not run under a schedule that splits the backward; None if it does."""
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
    """The rank groups of their own that techniques of a layer need, of more than one rank."""
    found = {
        technique.name: tuple(
            group for group in technique.groups(strategy, stage_ranks) if group.size > 1
        )
        for technique in _used(strategy, techniques)
    }
    return {name: groups for name, groups in found.items() if groups}


def _used(strategy: LayerStrategy, techniques: Values) -> Iterator[TechniqueValue]:
    """The techniques of a strategy, in their order."""
    if strategy.techniques:
        yield from (each for each in techniques if each.name in strategy.techniques)


def lossy_values(
    strategies: Iterable[LayerStrategy], techniques: Values = TECHNIQUES
) -> dict[str, str]:
    """``NAME=WORD`` of the lossy values in use -> their bounds in words."""
    return {
        f"{technique.name}={technique.word_of(value)}": str(bound)
        for strategy in dict.fromkeys(strategies)
        for technique in _used(strategy, techniques)
        if (value := technique.of(strategy)) is not None
        and (bound := technique.lossy(value)) is not None
    }


def with_value(strategy: LayerStrategy, name: str, value: Any) -> LayerStrategy:
    """The strategy with a technique's value; None: with the technique off."""
    found = {known: kept for known, kept in strategy.techniques.items() if known != name}
    if value is not None:
        found[name] = value
    return replace(strategy, techniques=found)


def with_word(
    strategy: LayerStrategy, technique: TechniqueValue, word: str, field: str
) -> LayerStrategy:
    """The strategy with what a flag or pin says of a technique.

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
    value = technique.from_word(word)
    if value is None:
        one_of(field, word, (OFF, *technique.words))
    return value


def slow_start(strategies: Iterable[LayerStrategy], techniques: Values = TECHNIQUES) -> bool:
    """Whether the first step of layers with these strategies may take minutes."""
    return any(t.slow_start for s in dict.fromkeys(strategies) for t in _used(s, techniques))
