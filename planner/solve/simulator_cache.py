"""Cache of simulators between calls.

Notebooks and sweeps of layouts or rates mostly ask about one model and few machines. Layers are
lowered for a model, workload and stack, and priced for a machine; the last few of both are kept.
The cache changes no figure.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ...costmodel.lowering.plan_lowering import Lowering
from ...costmodel.memory.pass_memory import PassMemoryCache
from ...costmodel.pricing.machine import Machine
from ...costmodel.pricing.pricer import Pricer
from ...costmodel.pricing.rate_changes import NO_RATE_CHANGES, RateChanges
from ...costmodel.simulation.simulator import Simulator
from ...costmodel.technique import TechniquePrices
from ...costmodel.techniques import TECHNIQUES
from ...spec.cluster.calibration import Calibration
from ...spec.cluster.cluster_spec import ClusterSpec
from ...spec.cluster.measured import Measured
from ...spec.cluster.stack_spec import StackSpec
from ...spec.model.model_spec import ModelSpec
from ...spec.plan.plan import Plan
from ...spec.workload.workload import Workload

ProgramKey = tuple[tuple[str, Any], ...]
"""Values of the whole program by name, sorted."""
CACHE_SIZE = 16
"""Simulators and lowerings; a large model's hold some MiB."""


def simulator_for(
    plan: Plan,
    measured: Measured | None,
    stack: StackSpec,
    rates: RateChanges = NO_RATE_CHANGES,
    techniques: TechniquePrices = TECHNIQUES,
) -> Simulator:
    """Simulator of a plan's model and workload on its cluster."""
    program = tuple(sorted(plan.program.techniques.items()))
    lowered = plan.model, plan.workload, stack, techniques, program
    if measured is None or isinstance(measured, Calibration):
        return _cached_simulator(*lowered, plan.cluster, measured, rates)
    # a profile has rows by the thousand, which are no key
    return _build_simulator(*lowered, Machine(plan.cluster, measured, rates=rates))


@lru_cache(maxsize=CACHE_SIZE)
def _cached_simulator(
    model: ModelSpec,
    workload: Workload,
    stack: StackSpec,
    techniques: TechniquePrices,
    program: ProgramKey,
    cluster: ClusterSpec,
    measured: Calibration | None,
    rates: RateChanges,
) -> Simulator:
    return _build_simulator(
        model, workload, stack, techniques, program, Machine(cluster, measured, rates=rates)
    )


def _build_simulator(
    model: ModelSpec,
    workload: Workload,
    stack: StackSpec,
    techniques: TechniquePrices,
    program: ProgramKey,
    machine: Machine,
) -> Simulator:
    lowering, pass_memory = _cached_lowering(model, workload, stack, techniques, program)
    return Simulator(lowering, Pricer(machine, lowering.stack), pass_memory)


@lru_cache(maxsize=CACHE_SIZE)
def _cached_lowering(
    model: ModelSpec,
    workload: Workload,
    stack: StackSpec,
    techniques: TechniquePrices,
    program: ProgramKey,
) -> tuple[Lowering, PassMemoryCache]:
    lowering = Lowering(model, workload, stack, techniques, dict(program))
    return lowering, PassMemoryCache(lowering.stack)
