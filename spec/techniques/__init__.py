"""What each technique lets a plan decide."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..codec import from_document
from . import compile

if TYPE_CHECKING:
    from ..layers import Layer
    from ..stack import StackSpec
    from ..strategy import LayerStrategy
    from ..workload import DtypeRecord

TECHNIQUES: tuple[ModuleType, ...] = (compile,)
"""The modules of this package, one a technique: its name is the module's.

The packages ``costmodel``, ``planner`` and ``executor`` list theirs by the same names and order.
"""


def by_name(techniques: tuple[ModuleType, ...] = TECHNIQUES) -> dict[str, ModuleType]:
    """Each technique's module by the name that a plan has for it."""
    return {module.__name__.rpartition(".")[2]: module for module in techniques}


def typed_values(
    given: Mapping[str, Any], techniques: tuple[ModuleType, ...] = TECHNIQUES
) -> dict[str, Any]:
    """Values of techniques as read from a document, each in its own type.

    What is no technique stays as it is: :meth:`Plan.check` names it.

    Raises:
        InputError: a value that its technique does not have.
    """
    known = by_name(techniques)
    return {
        name: from_document(known[name].VALUE, value, f"techniques.{name}")
        if name in known and not isinstance(value, known[name].VALUE)
        else value
        for name, value in given.items()
    }


def technique_reason(
    layer: Layer,
    strategy: LayerStrategy,
    stage_ranks: int,
    dtype: DtypeRecord,
    techniques: tuple[ModuleType, ...] = TECHNIQUES,
) -> str | None:
    """Why a technique of a layer is not legal there; None if all are.

    Args:
        layer: the layer.
        strategy: its decisions.
        stage_ranks: ranks of the stage that holds it.
        dtype: number formats of the workload.
        techniques: those that are known.
    """
    known = by_name(techniques)
    reasons = (
        known[name].legality_reason(layer, strategy, stage_ranks, dtype)
        for name in strategy.techniques
        if name in known
    )
    return next((reason for reason in reasons if reason), None)


def technique_stack_reason(
    strategy: LayerStrategy,
    stack: StackSpec,
    techniques: tuple[ModuleType, ...] = TECHNIQUES,
) -> str | None:
    """Why the stack cannot say a technique of a layer; None if it can say all."""
    reasons = (m.stack_reason(strategy, stack) for m in by_name(techniques).values())
    return next((reason for reason in reasons if reason), None)
