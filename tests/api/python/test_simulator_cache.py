"""Simulators kept between calls change no figure, whatever was asked before."""

from __future__ import annotations

from dataclasses import replace

from generators.catalogue_problems import problem

import shardwright as sw
from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.simulation.simulator import Simulator
from shardwright.planner.solve.simulator_cache import simulator_for
from shardwright.spec.cluster.cluster_spec import ClusterSpec

FLAGS = {"global_batch": 64, "seq_len": 512, "tp": 2, "pp": 2, "shard": "zero1"}


def scaled(cluster: ClusterSpec, factor: float) -> ClusterSpec:
    """The cluster with typed rates on its outermost level."""
    outer = replace(cluster.levels[-1], bandwidth_bytes_per_s=50e9 * factor, latency_s=5e-6)
    return replace(cluster, levels=(*cluster.levels[:-1], outer))


def test_what_was_asked_before_changes_nothing() -> None:
    asked = problem("gpt2-large", "2x8xA100-80GB", 64, 512)
    seen = []
    for _ in range(2):
        for factor in (1.0, 0.25):
            for layout in ({}, {"recompute": "full"}, {"pp": 4}, {"micro_batch": 2}):
                cluster = scaled(asked.cluster, factor)
                handle = sw.simulate(asked.model, cluster, **{**FLAGS, **layout})
                alone = Simulator.for_plan(handle.plan, Machine(cluster), handle.stack)
                fresh = alone.run(handle.plan)
                assert fresh is not None
                assert handle.prediction.step_time_s == fresh.step_time_s
                assert handle.prediction.memory == fresh.memory
                seen.append((factor, handle.prediction.step_time_s))
    assert seen[: len(seen) // 2] == seen[len(seen) // 2 :]
    slower, faster = (sum(s for f, s in seen if f == factor) for factor in (0.25, 1.0))
    assert slower > faster


def test_rates_share_layers_and_nothing_else() -> None:
    handle = sw.simulate("gpt2-large", "2x8xA100-80GB", **FLAGS)
    plain, other = (
        simulator_for(
            replace(handle.plan, cluster=scaled(handle.plan.cluster, f)), None, handle.stack
        )
        for f in (1.0, 2.0)
    )
    assert plain.lowering is other.lowering
    assert plain.pricer is not other.pricer
    again = simulator_for(handle.plan, None, handle.stack)
    assert again is simulator_for(handle.plan, None, handle.stack)
