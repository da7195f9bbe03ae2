"""Clusters by the names of clouds' instances, and what these names stand for."""

from __future__ import annotations

import pytest

from shardwright.datasets.catalogue.device import devices
from shardwright.datasets.catalogue.fabric import fabric
from shardwright.datasets.catalogue.instance import Instance, instance, instances
from shardwright.datasets.clusters.parse import parse_cluster
from shardwright.spec.errors import InputError

ALL = list(instances().values())
GBITS = {
    # Gb/s of an instance's adapters for collectives, typed from announcements.
    "p4d.24xlarge": 400, "p4de.24xlarge": 400, "p5.48xlarge": 3200, "p5e.48xlarge": 3200,
    "p5en.48xlarge": 3200, "p6-b200.48xlarge": 3200, "p6-b300.48xlarge": 6400,
    "g5.48xlarge": 100, "g6.48xlarge": 100, "g6e.48xlarge": 400, "g7e.48xlarge": 1600,
    "a2-ultragpu-8g": 100, "a3-highgpu-8g": 800, "a3-megagpu-8g": 1600, "a3-ultragpu-8g": 3200,
    "a4-highgpu-8g": 3200, "a4x-highgpu-4g": 1600, "ND96amsr_A100_v4": 1600,
    "ND96isr_H100_v5": 3200, "ND96isr_H200_v5": 3200, "ND128isr_GB300_v6": 3200,
    "BM.GPU4.8": 1600, "BM.GPU.A100-v2.8": 1600, "BM.GPU.H100.8": 3200, "BM.GPU.H200.8": 3200,
    "BM.GPU.B300.8": 6400, "BM.GPU.L40S.4": 800,
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expansion"),
    [
        ("p4de.24xlarge", "1x8xA100-SXM-80GB"),
        ("4xp4de.24xlarge", "4x8xA100-SXM-80GB@4x100G-EFA"),
        ("2xp4d.24xlarge", "2x8xA100-SXM-40GB@4x100G-EFA"),
        ("16xp5.48xlarge", "16x8xH100-SXM-80GB@32x100G-EFA"),
        ("2XP5EN.48XLARGE", "2x8xH200-SXM-141GB@16x200G-EFA"),
        ("2xml.p5e.48xlarge", "2x8xH200-SXM-141GB@32x100G-EFA"),
        ("2xp6-b200.48xlarge", "2x8xB200-SXM-180GB@8x400G-EFA"),
        ("g5.12xlarge", "1x4xA10G-24GB"),
        ("2xg6e.24xlarge", "2x4xL40S-48GB@2x100G-ETH"),
        ("a2-highgpu-1g", "1x1xA100-SXM-40GB"),
        ("2xa2-megagpu-16g", "2x16xA100-SXM-40GB@1x100G-ETH"),
        ("8xa3-highgpu-8g", "8x8xH100-SXM-80GB@4x200G-TCPX"),
        ("8xa3-megagpu-8g", "8x8xH100-SXM-80GB@8x200G-TCPXO"),
        ("2xa3-ultragpu-8g", "2x8xH200-SXM-141GB@8x400G-ROCE"),
        ("20xa4x-highgpu-4g", "20x4xGB200-186GB@4x400G-ROCE"),
        ("2xND96isr_H100_v5", "2x8xH100-SXM-80GB@8x400G-IB"),
        ("2xStandard_ND96isr_H100_v5", "2x8xH100-SXM-80GB@8x400G-IB"),
        ("2xnd96amsr_a100_v4", "2x8xA100-SXM-80GB@8x200G-IB"),
        ("NC48ads_A100_v4", "1x2xA100-PCIE-80GB"),
        ("2xBM.GPU.A100-v2.8", "2x8xA100-SXM-80GB@16x100G-ROCE"),
        ("2xBM.GPU.MI355X.8", "2x8xMI355X-288GB@8x400G-ROCE"),
        ("gpu_8x_h100_sxm5", "1x8xH100-SXM-80GB"),
        ("4xp4de.24xlarge@8x400G-IB:oversub=2", "4x8xA100-SXM-80GB@8x400G-IB:oversub=2"),
        (
            "4xp4d.24xlarge+2xp5.48xlarge+@1x100G-ETH",
            "4x8xA100-SXM-40GB@4x100G-EFA+2x8xH100-SXM-80GB@32x100G-EFA+@1x100G-ETH",
        ),
    ],
)
def test_names_expand_to_devices_and_network(text: str, expansion: str) -> None:
    parsed = parse_cluster(text)
    assert parsed.expansion == expansion
    assert parse_cluster(expansion).cluster == parsed.cluster


def test_the_expansion_is_told_with_its_source() -> None:
    (note,) = [n for n in parse_cluster("4xp4de.24xlarge").assumptions if n.path == "cluster"]
    assert note.value == "4x8xA100-SXM-80GB@4x100G-EFA"
    said = "p4de.24xlarge of Amazon EC2: 8 devices, 4x100G-EFA (Amazon EC2 instance types"
    assert note.why.startswith(said)


def test_the_network_of_an_instance_is_no_assumption() -> None:
    paths = [note.path for note in parse_cluster("4xp4de.24xlarge").assumptions]
    assert paths == ["cluster.groups.0.node", "cluster"]
    single = parse_cluster("p4de.24xlarge")
    assert not any("not used" in note.why for note in single.assumptions)
    assert single.network is not None
    assert single.network.fabric == "4x100G-EFA"
    typed = parse_cluster("p4de.24xlarge@8x400G-IB")
    assert any("not used" in note.why for note in typed.assumptions)


def test_where_a_cloud_prints_no_network_the_usual_one_is_assumed() -> None:
    first = parse_cluster("2xgpu_8x_h100_sxm5").assumptions[0]
    assert (first.path, first.value) == ("cluster.levels.1.fabric", "8x400G-IB")


@pytest.mark.parametrize("item", ALL, ids=lambda item: item.name)
def test_every_instance_is_a_cluster_of_the_catalogue(item: Instance) -> None:
    assert item.device in devices()
    assert any(digit in item.source for digit in "0123456789") or item.source.startswith("assumed")
    one, two = parse_cluster(item.name), parse_cluster(f"2x{item.name}")
    assert one.cluster == parse_cluster(item.text).cluster
    assert one.cluster.device_count == item.devices
    assert two.cluster.device_count == 2 * item.devices
    if item.network is not None:
        assert fabric(item.network).scope == "network"


@pytest.mark.parametrize("name", GBITS)
def test_networks_are_as_wide_as_announced(name: str) -> None:
    found = instance(name)
    assert found is not None
    assert found.network is not None
    assert fabric(found.network).node_bandwidth_bytes_per_s == pytest.approx(GBITS[name] / 8 * 1e9)


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("p4df.24xlarge", "p4d.24xlarge"),
        ("3xp4df.24xlarge", "p4d.24xlarge"),
        ("a3-highgpu-8", "a3-highgpu-8g"),
        ("2xND96isr_H100v5", "ND96isr_H100_v5"),
        ("8 x p4de.24xlarge", "8xp4de.24xlarge"),
        ("2x8xp4de.24xlarge", "2xp4de.24xlarge"),
        ("0xp4de.24xlarge", "1xp4de.24xlarge"),
        ("99999999xp4de.24xlarge", ""),
    ],
)
def test_mistakes_name_the_nearest_instance(text: str, near: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_cluster(text)
    assert "\n" not in str(caught.value)
    assert near in str(caught.value.nearest or "")
