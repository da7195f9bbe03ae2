"""Technique values of a whole program, with their joint rules.

As ``technique_values`` is for layers. Techniques left out are those that are shipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import TYPE_CHECKING, Any

from .program_rules import ProgramRules, State
from .technique import TechniqueValue, Values, of_programs
from .techniques import TECHNIQUES

if TYPE_CHECKING:
    from .cluster.stack_spec import StackSpec
    from .model.layers import Layer
    from .model.model_spec import ModelSpec
    from .parallel.rank_groups import RankGroup
    from .schedules.stage_order import ScheduleKind
    from .strategy import LayerStrategy
    from .workload.workload import Workload

ProgramValues = Mapping[str, Any]
"""Values by technique name, as ``Program.techniques`` has them."""


def _used(
    values: ProgramValues, techniques: Values
) -> Iterator[tuple[TechniqueValue, ProgramRules, Any]]:
    if values:
        for technique, rules in of_programs(techniques):
            if (value := technique.in_program(values)) is not None:
                yield technique, rules, value


def program_violation(
    values: ProgramValues, model: ModelSpec, workload: Workload, techniques: Values = TECHNIQUES
) -> str | None:
    """The rule broken by a program's values; None if legal.

    Args:
        values: of the program.
        model: that it trains.
        workload: on this.
        techniques: those that are known.
    """
    for technique, _ in of_programs(techniques):
        if technique.name in values and technique.in_program(values) is None:
            return f"{technique.name} holds no {technique.value.__name__} value"
    used = list(_used(values, techniques))
    for _, rules, value in used:
        if reason := rules.violation(value, model, workload):
            return reason
    claims = [(technique.name, rules.claims(value)) for technique, rules, value in used]
    return next((_both(*pair) for pair in combinations(claims, 2) if pair[0][1] & pair[1][1]), None)


def _both(first: tuple[str, frozenset[State]], second: tuple[str, frozenset[State]]) -> str:
    states = " and ".join(sorted(first[1] & second[1]))
    return f"{first[0]} and {second[0]} both claim the {states}"


def program_layer_violation(
    values: ProgramValues,
    layer: Layer,
    strategy: LayerStrategy,
    stage_ranks: int,
    techniques: Values = TECHNIQUES,
) -> str | None:
    """The rule that a layer's strategy breaks beside a program's values.

    Args:
        values: of the program.
        layer: one of its layers.
        strategy: of the layer.
        stage_ranks: ranks of its stage.
        techniques: those that are known.
    """
    for technique, rules, value in _used(values, techniques):
        if reason := rules.layer_violation(value, layer, strategy, stage_ranks):
            return reason
        for other in techniques:
            if other.of(strategy) is None:
                continue
            if shared := rules.claims(value) & other.relocates(strategy):
                return _both((technique.name, shared), (other.name, shared))
        ranks = rules.reduced_ranks(value, strategy, stage_ranks)
        split = max(strategy.weight_split * strategy.shard.optimizer, strategy.width)
        if stage_ranks % ranks or ranks % split or ranks % (strategy.ep * strategy.etp):
            return (
                f"{technique.name} sums gradients over {ranks} of {stage_ranks} ranks, which a "
                f"layer split over {split} does not allow"
            )
    return None


def program_pipeline_violation(
    values: ProgramValues,
    kind: ScheduleKind,
    stages: int,
    chunks: int,
    micro_batches: int,
    techniques: Values = TECHNIQUES,
) -> str | None:
    """The rule that a pipeline breaks beside a program's values."""
    shape = kind, stages, chunks, micro_batches
    reasons = (rules.pipeline_violation(v, *shape) for _, rules, v in _used(values, techniques))
    return next((reason for reason in reasons if reason), None)


def program_stack_violation(
    values: ProgramValues, stack: StackSpec, techniques: Values = TECHNIQUES
) -> str | None:
    """Stack rule broken by a program's values."""
    reasons = (rules.stack_violation(v, stack) for _, rules, v in _used(values, techniques))
    return next((reason for reason in reasons if reason), None)


def unsupported_program(values: ProgramValues, techniques: Values = TECHNIQUES) -> str | None:
    """The value that the executor does not run; None if it runs all."""
    for technique, rules, value in _used(values, techniques):
        if not rules.executable:
            return f"{technique.name} {technique.word_of(value)} is not run yet"
    return None


def program_groups(
    values: ProgramValues,
    strategy: LayerStrategy,
    stage_ranks: int,
    techniques: Values = TECHNIQUES,
) -> dict[str, tuple[RankGroup, ...]]:
    """Own rank groups of more than one rank, for layers of a strategy."""
    groups = {
        technique.name: tuple(
            group for group in rules.groups(value, strategy, stage_ranks) if group.size > 1
        )
        for technique, rules, value in _used(values, techniques)
    }
    return {name: members for name, members in groups.items() if members}


def reduced_ranks(
    values: ProgramValues,
    strategy: LayerStrategy,
    stage_ranks: int,
    techniques: Values = TECHNIQUES,
) -> int:
    """Consecutive ranks of a stage that sum a layer's gradients: all, unless a value says."""
    every = (r.reduced_ranks(v, strategy, stage_ranks) for _, r, v in _used(values, techniques))
    return min(every, default=stage_ranks)


def lossy_program_values(values: ProgramValues, techniques: Values = TECHNIQUES) -> dict[str, str]:
    """``NAME=WORD`` of the lossy values in use -> their bounds as text."""
    return {
        f"{technique.name}={technique.word_of(value)}": str(bound)
        for technique, _, value in _used(values, techniques)
        if (bound := technique.lossy(value)) is not None
    }


def address_technique(techniques: Values = TECHNIQUES) -> TechniqueValue | None:
    """The technique whose runs need planned addresses; None if there is none."""
    found = (technique for technique, rules in of_programs(techniques) if rules.plans_addresses)
    return next(found, None)


def plans_addresses(values: ProgramValues, techniques: Values = TECHNIQUES) -> bool:
    """True if a program's run needs the addresses of its requests, planned before it."""
    return any(rules.plans_addresses for _, rules, _ in _used(values, techniques))
