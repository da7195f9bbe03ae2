"""Exchanges of experts' rows in each kind of layer, and what of them shows."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...spec.model.experts import experts_of
from ...spec.plan.plan import Plan
from ...spec.report.work_items import Collective
from ..pricing.group_pricer import stage_group, used_devices
from ..pricing.pricer import Pricer
from ..simulation.simulator import Simulator
from ..symbolic.lowered_pass import LoweredPass


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerExchanges:
    """Seconds of a micro-batch's exchanges both ways, undisturbed and as they show.

    ``first_layer``: the first of its kind, strategy and load, of ``layers`` such. ``fullest``: rows
    of the fullest rank over the mean, as they are priced.
    """

    first_layer: int
    layers: int
    forward_s: float
    forward_exposed_s: float
    backward_s: float
    backward_exposed_s: float
    fullest: float = 1.0


def layer_exchanges(plan: Plan, simulator: Simulator) -> list[LayerExchanges]:
    """Exchanges of every kind of layer whose experts are on several ranks, in order."""
    samples, found = plan.program.micro_batch_samples, dict[tuple[object, ...], LayerExchanges]()
    for number, parts in ((stage, parts) for stage, _, parts in plan.program.chunks()):
        stage = plan.program.stages[number]
        group, ranks = stage_group(stage), stage.device_count
        pricer = simulator.prices.inside(group)
        used = used_devices(plan, group)
        pricer = pricer.with_link_span(pricer.machine.link_span_of(ranks, used))
        for index, layer, strategy in plan.chunk_layers(parts):
            if experts_of(layer) is None or strategy.ep == 1:
                continue
            load = simulator.lowering.loads[index]
            kind = (layer, strategy, ranks, load)
            before = found.get(kind)
            if before is None:
                lowered = simulator.lowering.layer(index, strategy, strategy, ranks, samples)
                there, back = (_seconds(pricer, w) for w in (lowered.forward, lowered.backward))
                found[kind] = LayerExchanges(
                    first_layer=index,
                    layers=1,
                    forward_s=there[0],
                    forward_exposed_s=there[1],
                    backward_s=back[0],
                    backward_exposed_s=back[1],
                    fullest=1.0 if load is None else dict(load.rows)[strategy.ep],
                )
            else:
                found[kind] = replace(before, layers=before.layers + 1)
    return [*found.values()]


def _seconds(pricer: Pricer, lowered: LoweredPass) -> tuple[float, float]:
    whole_s = exposed_s = 0.0
    for item, term, seconds, latency in pricer.exposed_items(lowered):
        if isinstance(item, Collective) and term == "exposed_ep":
            whole_s += latency.time_s
            exposed_s += seconds
    return whole_s, exposed_s
