"""The search over device groups in several zones: exact, sound, and never worse for a far zone."""

from __future__ import annotations

import itertools

import pytest
from generators.zoned_clusters import in_zones, random_zoned_cluster
from oracles.heterogeneous_bounds import check_mixed_question, random_mixed_problem
from oracles.heterogeneous_comparison import compare_mixed_seed

import shardwright as sw
from shardwright.datasets.clusters.parse import parse_cluster
from shardwright.spec.cluster.cluster_spec import ClusterSpec
from shardwright.spec.plan.plan import Plan

SEEDS = 12
LEAST_PLANS, MOST_PLANS = 60, 900
ASKED = {"global_batch": 16, "seq_len": 1024}


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.timeout(180)
def test_plans_over_zones_equal_the_oracle(seed: int) -> None:
    found = compare_mixed_seed(seed, LEAST_PLANS, MOST_PLANS, random_zoned_cluster)
    assert found.plans >= LEAST_PLANS
    assert not found.faults, found


@pytest.mark.parametrize("seed", range(8, 14))
def test_no_bound_is_above_a_plan_over_zones(seed: int) -> None:
    found = check_mixed_question(random_mixed_problem(seed, 4, random_zoned_cluster), 40, seed)
    assert found.fitting
    assert not found.tightness.faults


def _path(plan: Plan) -> list[str]:
    """The zones that the stages of a plan lie in, one after the other."""
    zones = [
        plan.cluster.group(part.device_group).zone
        for stage in plan.program.stages
        for part in stage.devices
    ]
    return [zone for zone, _ in itertools.groupby(zones)]


def _cluster(bandwidth_bytes_per_s: float, *zones: str) -> ClusterSpec:
    text = "+".join(["1x1xA100-80GB", "1x1xH100-80GB", "1x1xA100-80GB", "1x1xA100-80GB"])
    joined = parse_cluster(f"{text}+@8x400G-IB").cluster
    return in_zones(joined, zones, bandwidth_bytes_per_s, 1e-4)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "zones", [("east", "west", "east", "west"), ("east", "west", "west", "east")]
)
def test_a_pipeline_crosses_slow_links_once(zones: tuple[str, ...]) -> None:
    """Whatever order the groups are named in: with a stage a device, all of them are needed."""
    found = sw.plan("gpt2-medium", _cluster(5e8, *zones), pins=("pp=4",), **ASKED)
    assert len(_path(found.report.plan)) == 2


@pytest.mark.evidence
@pytest.mark.timeout(120)
def test_a_zone_that_is_too_far_stays_idle() -> None:
    cluster = _cluster(1e7, "east", "west", "east", "west")
    found = sw.plan("gpt2-medium", cluster, **ASKED).report
    zones = {zone: sw.plan("gpt2-medium", cluster.in_zone(zone), **ASKED).report
             for zone in cluster.zones}  # fmt: skip
    assert _path(found.plan) == ["west"]
    assert found.plan.check() == []
    assert found.prediction.step_time_s == zones["west"].prediction.step_time_s
    assert found.prediction.step_time_s <= zones["east"].prediction.step_time_s
    notes = {note.path: note for note in found.assumptions}
    assert notes["idle_devices"].value == 2
    assert notes["idle_devices"].why == "the best plan uses west only; east stay idle"
    near = sw.plan("gpt2-medium", _cluster(2e10, "east", "west", "east", "west"), **ASKED).report
    assert near.prediction.step_time_s <= found.prediction.step_time_s
