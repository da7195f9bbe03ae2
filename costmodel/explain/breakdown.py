"""Breakdown of a simulation into exactly summed terms, and its prediction.

The critical stage (longest passes and update) gives passes by term, its stream's wait for messages
and pending reductions, its update, the host, and the rest of the step: the bubble.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from ...datasets.catalogue.device import device
from ...spec.cluster.cluster_spec import ClusterSpec
from ...spec.plan.plan import Plan
from ...spec.report.report import BREAKDOWN_TERMS, Prediction
from ..kernel_latency.device_latency import DeviceLatency
from ..kernel_latency.profile_table import Source
from ..kernel_latency.roofline import peak_flops_per_s
from ..lowering.layer_lowering import LoweredLayer, lower_layer
from ..lowering.model_flops import (
    flops_convention,
    masked_flops_per_sample,
    model_flops_per_sample,
)
from ..memory.feasibility import MemoryRule
from ..pricing.costs import TECHNIQUE
from ..pricing.machine import Machine
from ..simulation.pass_time import PASS_TERMS
from ..simulation.simulator import Simulation, Simulator
from .hidden_collectives import unmeasured_hidden_s

ROUNDING = 1e-12
"""Share of a step below which a rest is the sum's rounding."""
ROUNDS = 4
MEASURED_HERE = 0.15
"""Half of the 80 % interval of a step over its prediction, of work measured on this machine."""
RELATIVE_HALF_WIDTH: Mapping[Source, float] = {"measured": 0.25, "learned": 0.35, "analytic": 0.55}
"""The same of any other work, by what prices the kernels of its devices.

measured: kernels of the chip were timed, on another machine, whose steps may differ. Of published
runs 80 % are within 0.16 (A100), 0.28 (H100), 0.42 (B300); 0.25 holds 87 % of 906. learned: trees
fitted to other devices, whose products are off by 25 % on devices kept back, instead of 5 %:
hypot(0.25, 0.25). analytic: data sheets alone, whose kernels may be 50 % off
(``predict.ANALYTIC``): hypot(0.25, 0.5). Steps on MI250 were 27 to 43 % off.
"""


def breakdown(simulation: Simulation) -> dict[str, float]:
    """Seconds of the critical stage by term, with an exact sum.

    Techniques' additions stand under their names.
    """
    run = simulation.critical
    terms = dict.fromkeys(BREAKDOWN_TERMS, 0.0)
    for number, seconds in enumerate(run.terms_s()):
        if number != TECHNIQUE:
            terms[PASS_TERMS[number]] += seconds
    technique_s = run.technique_s()
    updating_s = sum(run.update_technique_s.values())
    terms["exposed_pp"] += run.message_s
    terms["exposed_pp"] += run.tied_reduction_s
    terms["exposed_tp"] += run.pending_reductions_s
    terms["exposed_dp"] += run.reductions_s + run.gathers_s
    terms["optimizer"] += simulation.norm_s + (run.update_s - updating_s)
    terms["host"] += simulation.host_s
    terms |= technique_s
    rest_s = simulation.step_time_s - sum(terms.values())
    if abs(rest_s) > ROUNDING * simulation.step_time_s:
        terms["bubble" if rest_s > 0 else "unattributed"] = rest_s
    return _exact(terms, simulation.step_time_s)


def _exact(terms: dict[str, float], total_s: float) -> dict[str, float]:
    """Terms whose exact sum, rounded once (``math.fsum``), is the whole.

    The smallest term changed by less than 1e-6 of itself takes the rounding error.
    """
    for _ in range(ROUNDS):
        error_s = math.fsum([total_s, *(-seconds for seconds in terms.values())])
        if math.fsum(terms.values()) == total_s:
            break
        candidates = [name for name, seconds in terms.items() if seconds > 1e6 * abs(error_s)]
        name = min(candidates, key=lambda term: terms[term])
        terms[name] += error_s
    return terms


def executed_flops(plan: Plan, simulation: Simulation) -> int:
    """FLOPs run by all ranks in a step, recomputation included."""
    micro_batches = plan.program.schedule.microbatches
    layer_flops: dict[int, int] = {}  # the simulation keeps the layers alive
    total = 0
    for rank_class in (rank_class for run in simulation.stages for rank_class in run.classes):
        for lowered in (entry.lowered for chunk in rank_class.chunks for entry in chunk.layers):
            if id(lowered) not in layer_flops:
                layer_flops[id(lowered)] = _mean_flops(lowered)
            total += rank_class.count * micro_batches * layer_flops[id(lowered)]
    return total


def _mean_flops(lowered: LoweredLayer) -> int:
    """FLOPs of a micro-batch through a layer on the mean rank, not on that with most rows."""
    if lowered.shape.load is not None:
        lowered = lower_layer(lowered.layer, replace(lowered.shape, load=None))
    return lowered.forward.flops + lowered.backward.flops


class Utilization(NamedTuple):
    """FLOPs of a step and the reference rate of all stages' devices.

    ``flops`` are the model's, with every score of its attention; ``causal_flops`` leave out those
    that causal masks hide; ``executed_flops`` include recomputation. ``peak_flops_per_s``: the
    devices' dense rate in the parameters' format.
    """

    flops: int
    causal_flops: int
    executed_flops: int
    peak_flops_per_s: float

    def mfu(self, step_s: float) -> float:
        """Model FLOPs utilization of a step (Chowdhery et al., 2022, appendix B)."""
        return self.flops / step_s / self.peak_flops_per_s

    def mfu_causal(self, step_s: float) -> float:
        """The same without the scores that causal masks hide."""
        return self.causal_flops / step_s / self.peak_flops_per_s

    def hfu(self, step_s: float) -> float:
        """The same of executed FLOPs."""
        return self.executed_flops / step_s / self.peak_flops_per_s


def utilization(plan: Plan, simulation: Simulation, simulator: Simulator) -> Utilization:
    """Reference FLOPs of a plan's step, simulated or measured."""
    samples = plan.workload.global_batch
    flops = model_flops_per_sample(plan.model, plan.workload) * samples
    return Utilization(
        flops=flops,
        causal_flops=flops - masked_flops_per_sample(plan.model, plan.workload) * samples,
        executed_flops=executed_flops(plan, simulation),
        peak_flops_per_s=_peak_flops_per_s(plan, simulator),
    )


def predict(
    plan: Plan, simulation: Simulation, simulator: Simulator, rule: MemoryRule
) -> Prediction:
    """The prediction of a simulated plan.

    ``mfu`` is model FLOPs over the used devices' dense peak in the parameters' format, so
    ``step_time · devices · peak · mfu = FLOPs``.
    """
    workload = plan.workload
    devices = sum(stage.device_count for stage in plan.program.stages)
    step_s = simulation.step_time_s
    used = utilization(plan, simulation, simulator)
    low, high = interval(simulation, simulator.pricer.machine, plan.cluster)
    shown_s = simulation.step_time_s - unmeasured_hidden_s(plan, simulation, simulator)
    least_s = max(shown_s, 0.0)
    return Prediction(
        feasible=all(rule.excess_bytes(row) <= 0 for row in simulation.memory),
        step_time_s=step_s,
        step_time_interval_s=(least_s * low, step_s * high),
        samples_per_s=workload.global_batch / step_s,
        tokens_per_s=workload.tokens_per_step / step_s,
        tokens_per_s_per_device=workload.tokens_per_step / step_s / devices,
        flops_per_s_per_device=used.flops / step_s / devices,
        mfu=used.mfu(step_s),
        mfu_causal=used.mfu_causal(step_s),
        hfu=used.hfu(step_s),
        memory=simulation.memory,
        breakdown_s=breakdown(simulation),
        flops_convention=flops_convention(workload),
    )


def _peak_flops_per_s(plan: Plan, simulator: Simulator) -> float:
    counts: Counter[str] = Counter()
    for devices in (devices for stage in plan.program.stages for devices in stage.devices):
        counts[devices.device_group] += devices.count
    dtype, pricer_of = plan.workload.dtype.param, simulator.prices.inside
    return sum(
        peak_flops_per_s(pricer_of(group).machine.device, dtype) * count
        for group, count in counts.items()
    )


def interval(simulation: Simulation, machine: Machine, cluster: ClusterSpec) -> tuple[float, float]:
    """Ends of the 80 % interval, relative to the step time."""
    if machine.calibration is not None and machine.calibration.fitted_on:
        factor = 1 + machine.calibration.half_width
        return 1 / factor, factor
    share = 0.0 if machine.profile is None else source_share(simulation)["measured"]
    half = share * MEASURED_HERE + (1 - share) * _half_width(cluster)
    if machine.residual is not None:
        learned = source_share(simulation)["learned"]
        refitted = math.hypot(MEASURED_HERE, machine.residual.half_width)
        half += learned * (refitted - _half_width(cluster))
    return 1 - half, 1 + half


def _half_width(cluster: ClusterSpec) -> float:
    """Of work that was not measured here: that of the device known least."""
    latencies = (DeviceLatency(device(group.device), 3) for group in cluster.groups)
    return max(RELATIVE_HALF_WIDTH[latency.basis] for latency in latencies)


def source_share(simulation: Simulation) -> dict[str, float]:
    """Share of the critical stage's priced layer work by source."""
    measured, learned = (min(1.0, share) for share in simulation.critical.shares())
    return {"measured": measured, "learned": learned, "analytic": max(0.0, 1 - measured - learned)}
