"""Several device groups: placed in order, each priced on its own devices, or refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardwright as sw
from shardwright.api.notebook.plan_handle import SimulationHandle
from shardwright.datasets.catalogue.device import device
from shardwright.datasets.clusters.parse import parse_cluster
from shardwright.datasets.clusters.parsed_cluster import ParsedCluster
from shardwright.spec.cluster.cluster_spec import ClusterSpec, LinkLevel
from shardwright.spec.errors import InfeasibleError, InputError

Plan = Callable[..., Any]
IB = "@8x400G-IB"
SLOWER = ("A100-80GB", "V100-32GB", "L40S", "RTX-3090", "A10G", "H100-80GB")


def _simulated(cluster: str | ClusterSpec, **flags: Any) -> SimulationHandle:
    usual = {"model": "llama-2-7b", "global_batch": 32, "seq_len": 2048, "attention": "unfused"}
    asked = {**usual, **flags}
    model = asked.pop("model")
    return sw.simulate(model, cluster, dtype="fp16", **asked)


def _figures(found: SimulationHandle) -> tuple[object, ...]:
    """The prediction without the names of groups."""
    prediction = found.report.prediction
    memory = [(row.stage, row.reserved_bytes, row.by) for row in prediction.memory]
    return (prediction.step_time_s, prediction.mfu, prediction.breakdown_s, memory)


@settings(max_examples=25)
@given(
    pp=st.sampled_from((2, 4)),
    tp=st.sampled_from((1, 2, 4)),
    vpp=st.sampled_from((1, 2)),
    shard=st.sampled_from(("zero0", "zero1", "zero3")),
    tied=st.booleans(),
)
def test_two_equal_groups_predict_what_one_group_of_the_same_levels_does(
    pp: int, tp: int, vpp: int, shard: str, tied: bool
) -> None:
    flags = {"pp": pp, "tp": tp, "vpp": vpp, "shard": shard}
    flags |= {"model": "gpt2-medium", "seq_len": 1024} if tied else {}
    joined = _simulated(f"1x8xH100{IB}+1x8xH100{IB}", **flags)
    one = _simulated(f"2x8xH100{IB}", **flags)
    assert _figures(joined) == _figures(one)


def _with_inner_racks(parsed: ParsedCluster) -> ClusterSpec:
    """Four nodes of one group as two racks of two, joined over the same network."""
    cluster = parsed.cluster
    node, network = cluster.levels
    levels = (
        node,
        LinkLevel(level="intra_rack", group_size=16, fabric=network.fabric),
        LinkLevel(level="inter_rack", group_size=32, fabric=network.fabric),
    )
    return ClusterSpec(groups=cluster.groups, levels=levels)


@pytest.mark.parametrize(("pp", "tp"), [(2, 8), (4, 8), (8, 2), (2, 2)])
def test_groups_of_several_nodes_are_racks_of_one(pp: int, tp: int) -> None:
    joined = _simulated(f"2x8xA100{IB}+2x8xA100{IB}", pp=pp, tp=tp)
    one = _simulated(_with_inner_racks(parse_cluster(f"4x8xA100{IB}")), pp=pp, tp=tp)
    assert _figures(joined) == _figures(one)


@pytest.mark.parametrize("slower", SLOWER)
@pytest.mark.parametrize("first", [True, False])
def test_a_slower_group_is_never_faster(slower: str, first: bool) -> None:
    fast = "1x4xH100-80GB@1x100G-IB"
    other = f"1x4x{slower}@1x100G-IB"
    flags = {"pp": 2, "tp": 2}
    mixed = _simulated(f"{other}+{fast}" if first else f"{fast}+{other}", **flags)
    alone = _simulated(f"{fast}+{fast}", **flags)
    assert mixed.report.prediction.step_time_s >= alone.report.prediction.step_time_s
    if slower != "H100-80GB":
        assert mixed.report.prediction.step_time_s > alone.report.prediction.step_time_s


def test_each_stage_has_the_memory_and_the_rate_of_its_own_group() -> None:
    found = _simulated("1x4xA100-40GB+1x4xH100", pp=2, tp=4).report
    rows = {row.stage: row for row in found.prediction.memory}
    assert (rows[0].device_group, rows[1].device_group) == ("a100", "h100")
    assert rows[0].capacity_bytes == device("A100-40GB").capacity_bytes
    assert rows[1].capacity_bytes == device("H100").capacity_bytes
    peak = sum(4 * device(name).peak_flops_per_s["fp16"] for name in ("A100-40GB", "H100"))
    flops = found.prediction.flops_per_s_per_device * 8
    assert found.prediction.mfu == pytest.approx(flops / peak)


def test_messages_between_groups_cross_the_level_that_joins_them() -> None:
    groups = "1x8xH100+1x8xH100"
    slow = _simulated(f"{groups}+@1x10G-ETH", pp=2, tp=8).report.prediction
    fast = _simulated(f"{groups}+@8x400G-IB", pp=2, tp=8).report.prediction
    halved = _simulated(f"{groups}+@1x10G-ETH:oversub=2", pp=2, tp=8).report.prediction
    assert halved.step_time_s > slow.step_time_s > fast.step_time_s
    within = _simulated(f"{groups}+@1x10G-ETH", pp=4, tp=4).report.prediction
    assert within.step_time_s > fast.step_time_s


def test_a_plan_on_two_groups_is_read_simulated_explained_and_shown(
    plan: Plan, tmp_path: Path
) -> None:
    made = _simulated("2x8xA100+1x8xH100", pp=3, tp=8, model="gpt2-medium", seq_len=1024)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(made.report.plan.to_document()))
    pricing = ("--attention", "unfused")
    report = plan("simulate", str(path), *pricing, "--json", "-").document
    assert report["prediction"]["step_time_s"] == made.report.prediction.step_time_s
    assert report["plan_hash"] == made.report.plan.hash
    places = [s["devices"][0] for s in report["plan"]["programs"][0]["stages"]]
    assert [(p["device_group"], p.get("first_rank", 0)) for p in places] == [
        ("a100", 0), ("a100", 8), ("h100", 0),
    ]  # fmt: skip
    shown = plan("simulate", str(path), *pricing, "--trace", str(tmp_path / "t.json")).out
    for words in ("2 nodes of 8 A100-SXM-80GB", "joined by", "a100 8-15", "h100 0-7"):
        assert words in shown
    assert plan("explain", str(path)).code == 0


def test_a_stage_over_two_groups_is_refused_with_the_nearest_count() -> None:
    with pytest.raises(InputError, match="a100 16, h100 8") as caught:
        _simulated("2x8xA100+1x8xH100", pp=2, tp=4, global_batch=48)
    assert caught.value.nearest == 3
    with pytest.raises(InputError, match="device group each"):
        _simulated("1x8xA100+1x8xH100", pp=1)


def test_a_search_over_groups_beats_each_of_them_and_says_so() -> None:
    found = sw.plan("gpt2", "4xA100+4xH100", global_batch=32, seq_len=1024).report
    alone = [sw.plan("gpt2", c, global_batch=32, seq_len=1024).report for c in ("4xA100", "4xH100")]
    best = min(report.prediction.step_time_s for report in alone)
    assert found.prediction.step_time_s < best
    assert not found.plan.check()
    used = {d.device_group for stage in found.plan.program.stages for d in stage.devices}
    assert used == {"a100", "h100"}
    again = sw.simulate(found.plan).report.prediction
    assert again.step_time_s == pytest.approx(found.prediction.step_time_s, rel=1e-12)
    search = found.search
    assert search is not None
    bounds = [r.search.lower_bound_s for r in alone if r.search]
    assert search.lower_bound_s <= min(bounds)
    assert search.gap == pytest.approx(found.prediction.step_time_s / search.lower_bound_s - 1)
    assert any("alone" in rival.lost_by for rival in found.alternatives)
    assert "a100,h100" in search.space["device_groups"]
    assert any("by_device_group" in each["why"] for each in search.left_out)


@pytest.mark.evidence
def test_a_search_takes_the_fastest_group_where_mixing_gains_nothing() -> None:
    found = sw.plan("gpt2", "4xA100+4xH100+@1x10G-ETH", global_batch=32, seq_len=1024).report
    alone = sw.plan("gpt2", "4xH100", global_batch=32, seq_len=1024).report
    assert found.prediction.step_time_s == alone.prediction.step_time_s
    assert {d.device_group for stage in found.plan.program.stages for d in stage.devices} == {
        "h100"
    }
    assert len(found.plan.cluster.groups) == 2
    assert any(a.path == "idle_devices" and a.value == 4 for a in found.assumptions)


def test_a_plan_with_shares_is_simulated_explained_and_shown(plan: Plan, tmp_path: Path) -> None:
    found = sw.plan("gpt2", "4xA100+4xH100", global_batch=32, seq_len=1024)
    path = found.save(tmp_path / "plan.json")
    report = plan("simulate", str(path), "--json", "-").document
    assert report["prediction"]["step_time_s"] == found.prediction.step_time_s
    shown = plan("simulate", str(path), "--trace", str(tmp_path / "t.json")).out
    assert "% of the batch" in shown
    explained = plan("explain", str(path), "--json", "-").document["explain"]["memory"]
    assert {row["device_group"] for row in explained} == {"a100", "h100"}
    assert "stage 0, h100" in plan("explain", str(path)).out


def test_a_search_of_groups_that_none_fits_says_so() -> None:
    with pytest.raises(InfeasibleError):
        sw.plan("llama-3-70b", "1xA100+1xV100", global_batch=8, seq_len=1024, dtype="fp16")


def test_what_several_groups_cannot_do_yet_is_named(plan: Plan, tmp_path: Path) -> None:
    made = sw.simulate("gpt2", "8xA100+8xH100", global_batch=32, seq_len=1024, pp=2)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(made.report.plan.to_document()))
    result = plan("execute", str(path), "--steps", "1")
    assert result.code == 2
    assert "one kind of device" in result.err


def test_number_formats_are_those_that_every_group_computes_in() -> None:
    found = sw.simulate("gpt2", "8xV100+8xH100", global_batch=64, seq_len=1024, pp=2).report
    assert found.plan.workload.dtype.param == "fp16"
    notes = {note.path: note.value for note in found.assumptions}
    assert notes["stack.attention"] == "unfused"
    with pytest.raises(InputError, match="V100-SXM-32GB computes in"):
        sw.simulate("gpt2", "8xH100+8xV100", global_batch=64, seq_len=1024, pp=2, dtype="bf16")


def test_sharding_over_a_level_means_the_smallest_of_the_groups() -> None:
    made = sw.simulate(
        "gpt2", "2x8xH100+4x4xA100", global_batch=64, seq_len=1024, pp=2, shard="hsdp:intra_node"
    )
    strategy = made.report.plan.layer_strategies()[1]
    assert strategy.shard.parameters == 4
