"""What whole steps take beyond their kernels and collectives, fitted from steps of small plans.

Six constants, each with a meaning. Host seconds for every kernel (Python and dispatch), every
layer pass (module hooks), every gather or reduction of a sharded unit, every message, and the
step itself; and by how much kernels are slower inside a step, where caches are cold and ranks
move apart, than repeated alone. Steps of plans whose counts differ are measured, what the
profile explains is taken off, and the constants follow by non-negative least squares.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

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

CONSTANTS = ("kernel", "layer_pass", "unit", "step")
SMALL, LARGE = 64, 256
VOCAB = 1024
Measure = Callable[[Plan], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A plan to time; ``hidden`` is also its sequence length."""

    blocks: int = 4
    hidden: int = SMALL
    shard: str = "zero0"
    tp: int = 1
    stages: int = 1
    microbatches: int = 1


def probes(ranks: int, coarse: bool) -> list[Probe]:
    """Probes whose kernel seconds and counts of kernels, passes and collectives differ."""
    found = [
        Probe(),
        Probe(hidden=LARGE, microbatches=2),
        Probe(shard="zero3" if ranks > 1 else "zero0", microbatches=4),
        Probe(blocks=12),
        Probe(microbatches=4),
        Probe(hidden=LARGE, blocks=8),
    ]
    if ranks > 1:
        found += [Probe(tp=2), Probe(shard="zero3")]
    if not coarse:
        found += [Probe(blocks=12, microbatches=4), Probe(blocks=1, microbatches=8)]
        found += [Probe(hidden=2 * LARGE), Probe(hidden=LARGE, microbatches=4)]
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
        models={"main": _model(probe)},
        cluster=_cluster(ranks),
        workloads={
            "main": Workload(
                global_batch=batch, seq_len=probe.hidden, dtype=DtypeRecord.from_shorthand("fp32")
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


def _model(probe: Probe) -> ModelSpec:
    hidden, heads = probe.hidden, max(4, probe.hidden // 32)
    attention = Attention(heads=heads, kv_heads=heads, head_dim=hidden // heads)
    block = BlockLayer(hidden=hidden, attention=attention, mlp=Mlp(ffn=3 * hidden))
    runs = (
        LayerRun(layer=EmbeddingLayer(vocab=VOCAB, hidden=hidden)),
        LayerRun(layer=block, count=probe.blocks),
        LayerRun(layer=HeadLayer(hidden=hidden, vocab=VOCAB)),
    )
    return ModelSpec(name="probe", towers=(Tower(name="text", layers=runs),))


def with_overheads(
    profile: MachineProfile, measure: Measure, coarse: bool, is_over: Callable[[], bool]
) -> MachineProfile:
    """The profile with the six constants of its machine.

    Args:
        profile: its kernels and collectives.
        measure: times a plan's step on real ranks, in seconds.
        coarse: fewer probes.
        is_over: whether the time is spent; then the probes so far must do, if they can.
    """
    bare = _with_constants(profile, {}, 1.0)
    counts: list[list[float]] = []
    step_s: list[float] = []
    rest_s: list[float] = []
    for probe in probes(profile.ranks, coarse):
        if len(step_s) > len(CONSTANTS) and is_over():
            break
        plan = probe_plan(probe, profile.ranks)
        counts.append(_counts(plan, bare))
        step_s.append(measure(plan))
        rest_s.append(step_s[-1] - _explained_s(plan, bare))
    weights = 1 / np.array(step_s)  # the error that counts is relative to the step
    fit = non_negative_least_squares(np.array(counts, float), np.array(rest_s), weights)
    *host, excess = fit.tolist()
    found = dict(zip(CONSTANTS, host, strict=True))
    fitted = _with_constants(profile, found, 1 + excess)
    if profile.ranks > 1:
        found["message"] = _message_s(fitted, measure)
    return _with_constants(profile, found, 1 + excess)


def _with_constants(
    profile: MachineProfile, host_s: dict[str, float], slowdown: float
) -> MachineProfile:
    known = {**dict.fromkeys((*CONSTANTS, "message"), 0.0), **host_s}
    return replace(profile, host_s=known, kernel_slowdown=slowdown)


def _pricer(plan: Plan, profile: MachineProfile) -> Pricer:
    return Pricer(Machine(plan.cluster, profile), stack("shardwright"))


def _explained_s(plan: Plan, profile: MachineProfile) -> float:
    """The simulated step."""
    lowering = Lowering(plan.model, plan.workload, stack("shardwright"))
    simulation = Simulator(lowering, _pricer(plan, profile)).run(plan)
    if simulation is None:
        raise RuntimeError("a simulation without a limit ends")
    return simulation.step_time_s


def _counts(plan: Plan, profile: MachineProfile) -> list[float]:
    """How often each constant occurs in a one-stage step, in the order of CONSTANTS.

    The last number is the seconds of the step's measured kernels.
    """
    chosen = stack("shardwright")
    pricer = _pricer(plan, profile)
    kernels = [item for item in step_work(plan, chosen, 0) if isinstance(item, Kernel)]
    micro_batches = plan.program.schedule.microbatches
    collectives = passes = 0
    for chunk in Lowering(plan.model, plan.workload, chosen).stage(plan, 0):
        for entry in chunk.layers:
            passes += 2 * micro_batches
            unit = entry.unit
            if unit is not None and unit.wrapped:
                collectives += 2 * micro_batches if unit.gathers_each_use else 1
                collectives += micro_batches if unit.reduces_each_micro_batch else 1
    prices = [pricer.kernel(item) for item in kernels]
    kernel_s = sum(price.time_s for price in prices if price.source == "measured")
    return [len(kernels), passes, collectives, 1, kernel_s]


def _message_s(profile: MachineProfile, measure: Measure) -> float:
    """Host time of a message: what a two-stage step takes longer than explained, a message."""
    probe = Probe(stages=2, microbatches=8)
    plan = probe_plan(probe, profile.ranks)
    rest_s = measure(plan) - _explained_s(plan, profile)
    messages_in_line = 2 * probe.microbatches + 2
    return max(0.0, rest_s / messages_in_line)


def non_negative_least_squares(
    matrix: NDArray[np.float64], values: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Weighted least squares with no negative coefficient, by trying every set of columns.

    The columns are few; the best set whose own solution is positive is the optimum.
    """
    rows, goal = matrix * weights[:, None], values * weights
    best, least = np.zeros(matrix.shape[1]), float(goal @ goal)
    for chosen in itertools.product((False, True), repeat=matrix.shape[1]):
        columns = np.flatnonzero(chosen)
        solution, *_ = np.linalg.lstsq(rows[:, columns], goal, rcond=None)
        rest = rows[:, columns] @ solution - goal
        if (solution > 0).all() and rest @ rest < least:
            best, least = np.zeros(matrix.shape[1]), float(rest @ rest)
            best[columns] = solution
    return best
