"""Host time between kernels, fitted from whole steps of small plans.

A step takes what its kernels and collectives take, and host time on top: a constant for every
kernel (Python and dispatch), every layer pass (module hooks), every gather and reduction of a
sharded unit, every message, and the step itself. Steps of a few tiny plans whose counts differ
are measured, what the profile explains is taken off, and the constants follow by non-negative
least squares; each constant is seconds, so it can be read and doubted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..costmodel.lowering import Lowering
from ..costmodel.machine import Machine
from ..costmodel.prices import Pricer
from ..costmodel.simulate import Simulator
from ..costmodel.step import step_work
from ..datasets.catalogue.clusters import parse_cluster
from ..datasets.catalogue.stack import stack
from ..spec.cluster import ClusterSpec
from ..spec.kernels import Kernel
from ..spec.model import (
    Attention,
    BlockLayer,
    EmbeddingLayer,
    HeadLayer,
    LayerRun,
    Mlp,
    ModelSpec,
    Tower,
)
from ..spec.plan import LayerPlan, Plan, Program, Schedule, Stage, StageDevices
from ..spec.profile import MachineProfile
from ..spec.strategy import LayerStrategy, Sharding
from ..spec.workload import DtypeRecord, Workload

CONSTANTS = ("kernel", "layer_pass", "gather", "reduce", "step")
HIDDEN, SEQ_LEN, VOCAB = 64, 64, 512
Measure = Callable[[Plan], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A small plan to time: blocks, sharding level, tensor-parallel degree, stages."""

    blocks: int = 4
    shard: str = "zero0"
    tp: int = 1
    stages: int = 1
    microbatches: int = 1


def probes(ranks: int, coarse: bool) -> list[Probe]:
    """Probes whose counts of kernels, passes, gathers and reductions differ."""
    found = [
        Probe(),
        Probe(microbatches=4),
        Probe(blocks=12),
    ]
    if ranks > 1:
        found += [Probe(shard="zero3"), Probe(shard="zero3", microbatches=4), Probe(tp=2)]
    if not coarse:
        found += [Probe(blocks=12, microbatches=4), Probe(blocks=1, microbatches=8)]
    if not coarse and ranks > 1:
        found += [Probe(shard="zero2", microbatches=4), Probe(tp=2, blocks=8, microbatches=2)]
    return found


def probe_plan(probe: Probe, ranks: int) -> Plan:
    """The plan of a probe on ``ranks`` local ranks."""
    width = ranks // probe.stages
    strategy = LayerStrategy(tp=probe.tp, shard=Sharding.from_text(probe.shard, width // probe.tp))
    layers = probe.blocks + 2
    cuts = [round(i * layers / probe.stages) for i in range(probe.stages + 1)]
    stages = tuple(
        Stage(
            devices=(StageDevices(device_group="main", first_rank=s * width, count=width),),
            virtual_stages=(
                (LayerPlan(layers=("text", cuts[s], cuts[s + 1] - 1), strategy=strategy),),
            ),
        )
        for s in range(probe.stages)
    )
    samples = width // probe.tp
    batch = samples * probe.microbatches
    return Plan(
        models={"main": _model(probe.blocks)},
        cluster=_cluster(ranks),
        workloads={
            "main": Workload(
                global_batch=batch, seq_len=SEQ_LEN, dtype=DtypeRecord.from_shorthand("fp32")
            )
        },
        programs=(
            Program(
                stages=stages,
                schedule=Schedule(micro_batch=1, microbatches=probe.microbatches),
            ),
        ),
    )


def _cluster(ranks: int) -> ClusterSpec:
    return parse_cluster(f"local:{ranks}").cluster


def _model(blocks: int) -> ModelSpec:
    attention = Attention(heads=4, kv_heads=4, head_dim=HIDDEN // 4)
    block = BlockLayer(hidden=HIDDEN, attention=attention, mlp=Mlp(ffn=3 * HIDDEN))
    runs = (
        LayerRun(layer=EmbeddingLayer(vocab=VOCAB, hidden=HIDDEN)),
        LayerRun(layer=block, count=blocks),
        LayerRun(layer=HeadLayer(hidden=HIDDEN, vocab=VOCAB)),
    )
    return ModelSpec(name="probe", towers=(Tower(name="text", layers=runs),))


def fit_host(profile: MachineProfile, measure: Measure, coarse: bool) -> dict[str, float]:
    """The host constants of a machine.

    Args:
        profile: its kernels and collectives.
        measure: times a plan's step on real ranks, in seconds.
        coarse: fewer probes.
    """
    counts, rest_s = [], []
    for probe in probes(profile.ranks, coarse):
        plan = probe_plan(probe, profile.ranks)
        counts.append(_counts(plan))
        rest_s.append(measure(plan) - _explained_s(plan, profile))
    constants = non_negative_least_squares(np.array(counts, float), np.array(rest_s))
    found = dict(zip(CONSTANTS, constants.tolist(), strict=True))
    if profile.ranks > 1:
        found["message"] = _message_s(profile, found, measure)
    return found


def _explained_s(
    plan: Plan, profile: MachineProfile, host_s: dict[str, float] | None = None
) -> float:
    """The simulated step with these host constants (none: kernels and collectives alone)."""
    known = _with_host(profile, host_s or {})
    chosen = stack("shardwright")
    pricer = Pricer(Machine(plan.cluster, known), chosen)
    simulation = Simulator(Lowering(plan.model, plan.workload, chosen), pricer).run(plan)
    if simulation is None:
        raise RuntimeError("a simulation without a limit ends")
    return simulation.step_time_s


def _with_host(profile: MachineProfile, host_s: dict[str, float]) -> MachineProfile:
    from dataclasses import replace

    zero = dict.fromkeys((*CONSTANTS, "message"), 0.0)
    return replace(profile, host_s={**zero, **host_s})


def _counts(plan: Plan) -> list[float]:
    """How often each constant occurs in a one-stage step, in the order of CONSTANTS."""
    chosen = stack("shardwright")
    kernels = sum(isinstance(item, Kernel) for item in step_work(plan, chosen, 0))
    micro_batches = plan.program.schedule.microbatches
    gathers = reductions = passes = 0
    for chunk in Lowering(plan.model, plan.workload, chosen).stage(plan, 0):
        for entry in chunk.layers:
            passes += 2 * micro_batches
            unit = entry.unit
            if unit is not None and unit.wrapped:
                gathers += 2 * micro_batches if unit.gathers_each_use else 1
                reductions += micro_batches if unit.reduces_each_micro_batch else 1
    return [kernels, passes, gathers, reductions, 1]


def _message_s(profile: MachineProfile, host_s: dict[str, float], measure: Measure) -> float:
    """Host time of a message: what a two-stage step takes longer than explained, a message."""
    probe = Probe(stages=2, microbatches=8)
    plan = probe_plan(probe, profile.ranks)
    rest_s = measure(plan) - _explained_s(plan, profile, host_s)
    messages_in_line = 2 * probe.microbatches + 2
    return max(0.0, rest_s / messages_in_line)


def non_negative_least_squares(
    matrix: NDArray[np.float64], values: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Least squares with no negative coefficient, rows weighted by their relative error.

    Columns whose coefficient comes out negative are dropped one by one, the worst first.
    """
    weights = 1 / np.maximum(np.abs(values), values.max() * 1e-3)
    columns = list(range(matrix.shape[1]))
    found = np.zeros(matrix.shape[1])
    while columns:
        scaled = matrix[:, columns] * weights[:, None]
        solution, *_ = np.linalg.lstsq(scaled, values * weights, rcond=None)
        if (solution >= 0).all():
            found[columns] = solution
            break
        columns.pop(int(np.argmin(solution * matrix[:, columns].max(axis=0))))
    return found
