"""Tensor-parallel collectives of each kind of layer: what shows with techniques and without."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...spec.plan.plan import Plan
from ...spec.report.work_items import Collective, Kernel
from ...spec.strategy import LayerStrategy
from ..pricing.group_pricer import stage_group, used_devices
from ..pricing.pricer import Pricer
from ..simulation.simulator import Simulation, Simulator
from ..symbolic.lowered_pass import LoweredPass
from ..technique import technique_prices

TERM = "exposed_tp"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerOverlap:
    """Seconds of a micro-batch's tensor-parallel collectives that show, both ways.

    ``first_layer``: the first of its kind and strategy, of ``layers`` such. ``plain``: without the
    layer's techniques; ``least``: as priced, or 0 where it is unmeasured how much is hidden.
    ``added_s``: by which its kernels take longer both ways than without, below 0 shorter.
    """

    first_layer: int
    layers: int
    plain_forward_s: float
    forward_s: float
    plain_backward_s: float
    backward_s: float
    least_s: float
    added_s: float


class _Seconds(NamedTuple):
    exposed_s: float
    kernels_s: float


class _Placed(NamedTuple):
    """A layer of a plan, and the prices of its stage."""

    stage: int
    number: int
    kind: tuple[object, ...]
    strategy: LayerStrategy
    ranks: int
    pricer: Pricer


def layer_overlaps(plan: Plan, simulator: Simulator) -> list[LayerOverlap]:
    """Collectives of every kind of layer, in order; empty where no technique touches any."""
    found: dict[tuple[object, ...], LayerOverlap] = {}
    if not any(_overlaps(one.strategy, simulator) for one in _placed(plan, simulator)):
        return []
    for one in _placed(plan, simulator):
        if one.strategy.tp == 1:
            continue
        if before := found.get(one.kind):
            found[one.kind] = replace(before, layers=before.layers + 1)
            continue
        forward, backward = _both_ways(plan, simulator, one, one.strategy)
        plain = replace(one.strategy, techniques={})
        plain_forward, plain_backward = _both_ways(plan, simulator, one, plain)
        shown_s = forward.exposed_s + backward.exposed_s
        found[one.kind] = LayerOverlap(
            first_layer=one.number,
            layers=1,
            plain_forward_s=plain_forward.exposed_s,
            forward_s=forward.exposed_s,
            plain_backward_s=plain_backward.exposed_s,
            backward_s=backward.exposed_s,
            least_s=0.0 if _may_hide(one.strategy, simulator) else shown_s,
            added_s=(forward.kernels_s - plain_forward.kernels_s)
            + (backward.kernels_s - plain_backward.kernels_s),
        )
    return [*found.values()]


def unmeasured_hidden_s(plan: Plan, simulation: Simulation, simulator: Simulator) -> float:
    """Seconds of a step's collectives on the critical stage that a plan may hide, unmeasured.

    Only of values that say so (``TechniquePrice.may_hide``); at most all that shows there.
    """
    if not any(price.may_hide is not None for price in simulator.lowering.techniques.values()):
        return 0.0
    kinds, hidden_s = dict[tuple[object, ...], float](), 0.0
    for one in _placed(plan, simulator):
        if one.stage != simulation.critical.stage or not _may_hide(one.strategy, simulator):
            continue
        if one.kind not in kinds:
            ways = _both_ways(plan, simulator, one, one.strategy)
            kinds[one.kind] = sum(way.exposed_s for way in ways)
        hidden_s += kinds[one.kind]
    return hidden_s * plan.program.schedule.microbatches


def _placed(plan: Plan, simulator: Simulator) -> Iterator[_Placed]:
    for place, _, parts in plan.program.chunks():
        stage = plan.program.stages[place]
        group, ranks = stage_group(stage), stage.device_count
        pricer = simulator.prices.inside(group)
        span = pricer.machine.link_span_of(ranks, used_devices(plan, group))
        pricer = pricer.with_link_span(span)
        for index, layer, strategy in plan.chunk_layers(parts):
            kind = (layer, strategy, ranks, group, simulator.lowering.loads[index])
            yield _Placed(place, index, kind, strategy, ranks, pricer)


def _overlaps(strategy: LayerStrategy, simulator: Simulator) -> bool:
    """True if a technique of the layer says what its collectives run beside."""
    if strategy.tp == 1 or not strategy.techniques:
        return False
    stack = simulator.lowering.stack
    prices = technique_prices(strategy, simulator.lowering.techniques)
    cut = any(
        price.stack is not None
        and price.stack(stack, strategy).product_chunks != stack.product_chunks
        for price in prices
    )
    return cut or _may_hide(strategy, simulator)


def _may_hide(strategy: LayerStrategy, simulator: Simulator) -> bool:
    prices = technique_prices(strategy, simulator.lowering.techniques)
    return any(price.may_hide is not None and price.may_hide(strategy) for price in prices)


def _both_ways(
    plan: Plan, simulator: Simulator, one: _Placed, strategy: LayerStrategy
) -> tuple[_Seconds, _Seconds]:
    samples = plan.program.micro_batch_samples
    lowered = simulator.lowering.layer(one.number, strategy, strategy, one.ranks, samples)
    return _seconds(one.pricer, lowered.forward), _seconds(one.pricer, lowered.backward)


def _seconds(pricer: Pricer, lowered: LoweredPass) -> _Seconds:
    exposed_s = kernels_s = 0.0
    for item, term, seconds, _ in pricer.exposed_items(lowered):
        if isinstance(item, Collective) and term == TERM:
            exposed_s += seconds
        elif isinstance(item, Kernel):
            kernels_s += seconds
    return _Seconds(exposed_s, kernels_s)


__all__ = ["LayerOverlap", "layer_overlaps", "unmeasured_hidden_s"]
