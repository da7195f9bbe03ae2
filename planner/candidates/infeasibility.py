"""Errors of failed searches: the resource, the amount, the smallest change."""

from __future__ import annotations

import math

from ...datasets.catalogue.device import device
from ...spec.cluster.cluster_spec import DeviceGroup
from ...spec.errors import InfeasibleError
from ...spec.limits import MAX_PASSES
from ...spec.report.report import MemoryRow
from ...spec.units import GIB, format_bytes
from ..space.search_space import SearchSpace
from .evaluator import Evaluator, Outcome


def infeasible_error(
    space: SearchSpace,
    any_shape: bool,
    nearest: Outcome | None,
    evaluator: Evaluator,
    late: bool,
    proven: bool = False,
) -> InfeasibleError:
    """Error of a search without a plan.

    Args:
        space: the space searched.
        any_shape: True if it has any pipeline shape.
        nearest: the plan closest to fitting, None if none was simulated.
        evaluator: judges its memory.
        late: True if the deadline ended the search, so that plans that fit may exist.
        proven: True if every plan was tried or ruled out by a bound.
    """
    if late:
        return _too_late(nearest, evaluator)
    if nearest is None and space.request.stack.limits.one_strategy and space.request.pins:
        return _no_uniform_plan(space)
    if not any_shape:
        batch = space.request.workload.global_batch
        long = f"; longer steps than {MAX_PASSES:,} passes are not simulated"
        return InfeasibleError(
            "no legal plan: no stage width, micro-batch and strategy agree with the batch of "
            f"{batch} and the pins{long if space.too_long else ''}",
            proven=not space.too_long,
        )
    if nearest is None:
        return InfeasibleError(
            "no legal plan: embedding and head share a weight, and no "
            "strategy of both agrees with the pins",
            proven=proven,
        )
    worst, need = _worst_memory_row(nearest, evaluator)
    if worst.tier != "hbm":
        grants = f" (--{worst.tier}-gib {math.ceil(need / GIB * 10) / 10:.1f})"
        lacking = f"{format_bytes(need)} of {worst.tier} memory a device{grants}"
        return InfeasibleError(
            f"{worst.tier} of stage {worst.stage}: the smallest plan found needs "
            f"{format_bytes(need)} of {format_bytes(worst.capacity_bytes)}",
            change=lacking,
            need_bytes=need,
            proven=proven,
        )
    group = space.request.cluster.group(worst.device_group)
    return InfeasibleError(
        f"hbm of stage {worst.stage}: the smallest plan found needs {format_bytes(need)} of "
        f"{format_bytes(worst.capacity_bytes)} (over by "
        f"{format_bytes(need - worst.capacity_bytes)})",
        change=f"devices with {format_bytes(need)}{_cap(group, need)}, or more devices",
        need_bytes=need,
        proven=proven,
        by={name: size * evaluator.rule.margin for name, size in worst.by.items()},
    )


def _no_uniform_plan(space: SearchSpace) -> InfeasibleError:
    name, batch = space.request.stack.name, space.request.workload.global_batch
    return InfeasibleError(
        f"no legal plan: no strategy that the stack {name} has for all layers agrees with the "
        f"batch of {batch} and the pins",
        proven=not space.too_long,
    )


def _cap(group: DeviceGroup, need: float) -> str:
    has = device(group.device).capacity_bytes
    return f" (--memory-gib {math.ceil(need / 2**30 * 10) / 10:.1f})" if need <= has else ""


def _worst_memory_row(outcome: Outcome, evaluator: Evaluator) -> tuple[MemoryRow, float]:
    """Fullest memory, and its required bytes with the rule's margin."""
    worst = max(outcome.simulation.memory, key=evaluator.rule.excess_bytes)
    return worst, worst.reserved_bytes * evaluator.rule.margin


def _too_late(nearest: Outcome | None, evaluator: Evaluator) -> InfeasibleError:
    tried = ""
    if nearest is not None:
        worst, need = _worst_memory_row(nearest, evaluator)
        tried = (
            f"; the smallest plan tried needs {format_bytes(need)} of "
            f"{format_bytes(worst.capacity_bytes)} {worst.tier} on stage {worst.stage}"
        )
    return InfeasibleError(
        f"no plan that fits was found before the deadline{tried}; smallest change: a later "
        "--deadline, or none",
        late=True,
    )
