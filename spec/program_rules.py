"""ProgramRules: what a technique's value may be in a whole program.

``TechniqueValue.program`` holds them for a technique of that scope, whose value stands once in
``Program.techniques`` and never in a layer's strategy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from .cluster.stack_spec import StackSpec
    from .model.layers import Layer
    from .model.model_spec import ModelSpec
    from .parallel.rank_groups import RankGroup
    from .schedules.stage_order import ScheduleKind
    from .strategy import LayerStrategy
    from .workload.workload import Workload

State = Literal["optimizer", "parameters", "gradients"]
"""States of a layer that one technique alone may move, update or sum in its own way."""


def _legal_anywhere(value: Any, model: ModelSpec, workload: Workload) -> str | None:
    return None


def _in_any_layer(
    value: Any, layer: Layer, strategy: LayerStrategy, stage_ranks: int
) -> str | None:
    return None


def _in_any_pipeline(
    value: Any, kind: ScheduleKind, stages: int, chunks: int, micro_batches: int
) -> str | None:
    return None


def _on_any_stack(value: Any, stack: StackSpec) -> str | None:
    return None


def _no_groups(value: Any, strategy: LayerStrategy, stage_ranks: int) -> tuple[RankGroup, ...]:
    return ()


def _claims_nothing(value: Any) -> frozenset[State]:
    return frozenset()


def _all_ranks(value: Any, strategy: LayerStrategy, stage_ranks: int) -> int:
    return stage_ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRules:
    """Rules of a program's value; each reason is one line, or None where there is none.

    Attributes:
        executable: True if the executor runs it.
        violation: against a model and workload.
        layer_violation: against a layer's strategy on so many ranks of its stage.
        pipeline_violation: against a schedule with stages, chunks of each, and micro-batches.
        stack_violation: against a stack.
        groups: rank groups of its own inside a stage, for layers of a strategy; a run makes them up
            front, and the buffers of their communicators are counted.
        claims: states that no other technique of the plan may claim too.
        reduced_ranks: consecutive ranks of a stage that sum the gradients of a layer; the replicas
            beyond them are left out, and hold weights of their own. At least those that split the
            layer's weights and states.
        plans_addresses: True if a run needs the addresses of its requests, planned before it.
    """

    executable: bool = True
    violation: Callable[[Any, ModelSpec, Workload], str | None] = _legal_anywhere
    layer_violation: Callable[[Any, Layer, LayerStrategy, int], str | None] = _in_any_layer
    pipeline_violation: Callable[[Any, ScheduleKind, int, int, int], str | None] = _in_any_pipeline
    stack_violation: Callable[[Any, StackSpec], str | None] = _on_any_stack
    groups: Callable[[Any, LayerStrategy, int], tuple[RankGroup, ...]] = _no_groups
    claims: Callable[[Any], frozenset[State]] = _claims_nothing
    reduced_ranks: Callable[[Any, LayerStrategy, int], int] = _all_ranks
    plans_addresses: bool = False
