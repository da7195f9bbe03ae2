"""Zones in commands and documents, and their changes of links."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from generators.zoned_clusters import in_zones

import shardwright as sw
from shardwright.datasets.clusters.parse import parse_cluster
from shardwright.planner.what_if.setting import level_names
from shardwright.spec.codec import canonical_json

Plan = Callable[..., Any]
ZONED = in_zones(
    parse_cluster("1x1xH100+1x1xA100+1x1xA100+@8x400G-IB").cluster, ("east", "east", "west"), 5e9
)


@pytest.fixture
def plan_file(tmp_path: Path) -> str:
    """A plan of three stages, the last of them in another zone."""
    path = tmp_path / "plan.json"
    flags = {"pp": 3, "global_batch": 6, "seq_len": 256, "dtype": "bf16"}
    report = sw.simulate("gpt2", ZONED, **flags).report
    path.write_text(json.dumps({"plan": report.plan.to_document()}))
    return str(path)


def test_slower_links_between_zones_slow_the_step(plan: Plan, plan_file: str) -> None:
    """Planning anew is cut short: it is no part of this."""
    asked = ("--sweep", "inter-zone.bandwidth=0.1x,10x", "--deadline", "1", "--json", "-")
    document = plan("what-if", plan_file, *asked).document
    before = document["baseline"]["prediction"]["step_time_s"]
    slow, fast = (row["same_plan"]["prediction"]["step_time_s"] for row in document["rows"])
    assert slow > before > fast
    changed = document["rows"][1]["changes"][0]
    assert changed == {"path": "inter_zone.bandwidth", "was": 5e9, "now": 5e10}


def test_the_latency_between_zones_is_a_key(plan: Plan, plan_file: str) -> None:
    shown = plan("what-if", plan_file, "--set", "inter_zone.latency=20ms", "--deadline", "1")
    assert shown.code == 0, shown.err
    assert "what if inter_zone.latency 1 ms -> 20 ms" in shown.out
    assert level_names(ZONED) == ("intra_node", "inter_rack", "inter_zone")
    assert "inter_zone" not in level_names(parse_cluster("1x1xH100+1x1xA100").cluster)
    refused = plan("what-if", plan_file, "--add", "1xL40S")
    assert refused.code == 2
    assert "--add: groups.3.zone: got none; allowed: a zone" in refused.err


def test_clusters_doctor_and_explain_name_the_level(
    plan: Plan, plan_file: str, tmp_path: Path
) -> None:
    spec = tmp_path / "cluster.json"
    spec.write_text(canonical_json(ZONED))
    shown = plan("clusters", str(spec)).out
    assert "all zones" in shown
    assert "groups of a zone" in shown
    doctor = plan("doctor", "gpt2", str(spec), "--json", "-").document
    assert doctor["cluster"]["levels"][-1]["level"] == "inter_zone"
    assert "1x100G-ETH (inter_zone)" in {row["of"] for row in doctor["figures"]["rows"]}
    explained = plan("explain", plan_file, "--json", "-").document
    resources = {row["resource"]: row["step_time_change"] for row in explained["sensitivities"]}
    assert resources["inter_zone.bandwidth"] < 0
    assert "zones east | west by 1x100G-ETH" in " ".join(plan("simulate", plan_file).out.split())
