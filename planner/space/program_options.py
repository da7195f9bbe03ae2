"""Values of whole programs that a question leaves open: an axis outside the search of layers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...spec.cluster.cluster_spec import ClusterSpec
from ...spec.program_values import (
    program_stack_violation,
    program_violation,
    unsupported_program,
)
from ...spec.technique import TechniqueValue
from ..technique import KnownTechniques, ProgramPlace, TechniqueChoice
from .pins import Pin


def program_options(
    known: KnownTechniques, place: ProgramPlace, pins: tuple[Pin, ...], executable: bool = False
) -> tuple[dict[str, Any], ...]:
    """Legal combinations of values, those with the fewest techniques first.

    Pins fix a technique; otherwise it is off, or has one of the values that its choice tries.

    Args:
        known: the techniques of the question.
        place: the question.
        pins: fixed decisions.
        executable: True to keep to what the executor runs.
    """
    combinations: list[dict[str, Any]] = [{}]
    for value, choice in known.plannable:
        if value.program is not None:
            options = _options(known, value, choice, place, pins)
            combinations = [
                {**one, **({} if option is None else {value.name: option})}
                for option in options
                for one in combinations
            ]
    legal = [one for one in combinations if _is_legal(one, known, place, executable)]
    return tuple(sorted(legal, key=len))


def _options(
    known: KnownTechniques,
    value: TechniqueValue,
    choice: TechniqueChoice,
    place: ProgramPlace,
    pins: tuple[Pin, ...],
) -> list[Any]:
    words = [str(pin.value) for pin in pins if pin.key == value.name]
    pinned = [known.pinned(value, word, value.name) for word in words]
    tried: Iterable[Any] = ()
    if choice.tried_in_program is not None and choice.untried_reason(place.cluster) is None:
        tried = choice.tried_in_program(place)
    options = pinned or [None, *(one for one in tried if known.allows(value, one))]
    return [
        one
        for one in dict.fromkeys(options)
        if one is None or device_need(choice, one, place.cluster) is None
    ]


def device_need(choice: TechniqueChoice, value: Any, cluster: ClusterSpec) -> str | None:
    """What a value needs that a device of the cluster is not; None if all are."""
    needs = (choice.device_reason(value, group.device) for group in cluster.groups)
    return next((need for need in needs if need), None)


def _is_legal(
    values: Mapping[str, Any], known: KnownTechniques, place: ProgramPlace, executable: bool
) -> bool:
    techniques = known.values
    reasons = (
        program_violation(values, place.model, place.workload, techniques),
        program_stack_violation(values, place.stack, techniques),
        unsupported_program(values, techniques) if executable else None,
    )
    return not any(reasons)
