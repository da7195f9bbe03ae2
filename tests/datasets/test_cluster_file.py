"""Clusters from files: typed keys, typed rates, and spelled-out ClusterSpecs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shardwright.datasets.catalogue.links import link_rates
from shardwright.datasets.clusters.parse import parse_cluster
from shardwright.spec.codec import canonical_json
from shardwright.spec.errors import InputError
from shardwright.spec.units import GIB

BASE = "nodes: 16\ndevices_per_node: 8\ndevice: H100-80GB\n"


def _file(folder: Path, text: str, name: str = "cluster.yaml") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_plain_keys_say_what_the_text_says(tmp_path: Path) -> None:
    typed = parse_cluster(_file(tmp_path, BASE + "fabric: 8x400G-IB\noversubscription: 2\n"))
    text = parse_cluster("16x8xH100@8x400G-IB:oversub=2")
    assert typed.cluster == text.cluster
    assert typed.expansion == text.expansion
    keys = {"nodes": 16, "devices_per_node": 8, "device": "H100"}
    assumed = parse_cluster(_file(tmp_path, json.dumps(keys), "cluster.json"))
    assert assumed.cluster == parse_cluster("16x8xH100").cluster
    assert assumed.assumptions[0].path == "cluster.levels.1.fabric"


def test_typed_rates_become_si_rates_of_the_levels(tmp_path: Path) -> None:
    rates = (
        "intra_node_bandwidth_gb_per_s: 300\nintra_node_latency_us: 5\n"
        "inter_node_bandwidth_gb_per_s: 25\ninter_node_latency_us: 10\n"
    )
    cluster = parse_cluster(_file(tmp_path, BASE + rates)).cluster
    inner, outer = cluster.levels
    assert (inner.bandwidth_bytes_per_s, inner.latency_s) == (300e9, pytest.approx(5e-6))
    assert (outer.bandwidth_bytes_per_s, outer.latency_s) == (25e9, pytest.approx(10e-6))
    found = link_rates(cluster, outer)
    assert found.bandwidth_bytes_per_s == 25e9
    assert found.source == "typed by a person"
    small, bulk = found.regimes("all_gather", 16)
    assert small.setup_s == pytest.approx(found.fabric.launch_s + 15 * 10e-6)
    assert bulk.efficiency == found.fabric.efficiency


def test_catalogue_rates_are_a_share_of_the_adapters() -> None:
    cluster = parse_cluster("2x4xA100@8x400G-IB").cluster
    inner, outer = (link_rates(cluster, level) for level in cluster.levels)
    assert inner.bandwidth_bytes_per_s == 300e9
    assert inner.latency_s == inner.fabric.latency_s
    # 400 GB/s over 4 devices is more than PCI Express 4.0 x16 carries to one.
    assert outer.bandwidth_bytes_per_s == 31.5e9
    assert outer.duplex


def test_racks_split_the_network(tmp_path: Path) -> None:
    text = BASE + "nodes_per_rack: 4\noversubscription: 3\ninter_rack_bandwidth_gb_per_s: 12.5\n"
    levels = parse_cluster(_file(tmp_path, text)).cluster.levels
    assert [(x.level, x.group_size) for x in levels] == [
        ("intra_node", 8),
        ("intra_rack", 32),
        ("inter_rack", 128),
    ]
    assert [x.oversubscription for x in levels] == [1, 1, 3]
    assert levels[2].bandwidth_bytes_per_s == 12.5e9


def test_memory_is_capped_by_what_the_device_leaves(tmp_path: Path) -> None:
    capped = parse_cluster(_file(tmp_path, BASE + "memory_gib: 40\nhost_gib: 100\n"))
    memory = capped.cluster.groups[0].memory
    assert memory.hbm_bytes == 40 * GIB
    assert memory.host_bytes == 100 * GIB
    assert memory.nvme_bytes is None
    named = parse_cluster(_file(tmp_path, BASE + "memory_gib: 80\n"))
    assert named.cluster.groups[0].memory == parse_cluster("16x8xH100").cluster.groups[0].memory
    assert any(note.path.endswith("hbm_bytes") for note in named.assumptions)


def test_a_node_of_ones_own_needs_rates(tmp_path: Path) -> None:
    wide = "nodes: 2\ndevices_per_node: 16\ndevice: H100\n"
    with pytest.raises(InputError, match="intra_node_bandwidth_gb_per_s"):
        parse_cluster(_file(tmp_path, wide))
    cluster = parse_cluster(_file(tmp_path, wide + "intra_node_bandwidth_gb_per_s: 450\n")).cluster
    assert cluster.groups[0].devices_per_node == 16


@pytest.mark.parametrize(
    ("extra", "named", "near"),
    [
        ("fabrik: 8x400G-IB", "fabrik", "fabric"),
        ("fabric: 8x400G", "fabric", "8x400G-IB"),
        ("fabric: NVLink4", "fabric", ""),
        ("node: DGX-1", "node", "HGX-H100"),
        ("oversubscription: 0.5", "oversubscription", "1"),
        ("memory_gib: 90", "memory_gib", "79"),
        ("memory_gib: '80'", "memory_gib", "80"),
        ("memory_gib: -40", "memory_gib", "40"),
        ("nodes_per_rack: 3.0", "nodes_per_rack", "3"),
        ("nodes_per_rack: 32", "nodes_per_rack", "16"),
        ("inter_rack_latency_us: 2", "inter_rack_latency_us", ""),
        ("inter_node_bandwidth_gb_per_s: 0", "inter_node_bandwidth_gb_per_s", ""),
        ("intra_node_bandwidth_gb_per_s: 3600", "intra_node_bandwidth_gb_per_s", "450"),
        ("nodes: 4", "'nodes' twice", ""),
    ],
)
def test_mistakes_name_the_key(tmp_path: Path, extra: str, named: str, near: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_cluster(_file(tmp_path, BASE + extra + "\n"))
    line = str(caught.value)
    assert "\n" not in line
    assert named in line
    assert near in str(caught.value.nearest or "")


@pytest.mark.parametrize("key", ["nodes", "devices_per_node", "device"])
def test_required_keys(tmp_path: Path, key: str) -> None:
    text = "".join(f"{line}\n" for line in BASE.splitlines() if not line.startswith(f"{key}:"))
    with pytest.raises(InputError, match=rf": {key}: got nothing"):
        parse_cluster(_file(tmp_path, text))


def test_a_spelled_out_cluster_is_checked(tmp_path: Path) -> None:
    cluster = parse_cluster("4x8xA100").cluster
    text = canonical_json(cluster)
    assert parse_cluster(_file(tmp_path, text, "spec.json")).cluster == cluster
    for old, new, problem in (
        ('"group_size":32', '"group_size":30', "a multiple of the level below"),
        ('"group_size":32', '"group_size":16', "joins all 32 devices"),
        ('"group_size":8', '"group_size":4', "devices_per_node 8"),
        ('"level":"intra_rack"', '"level":"intra_node"', "innermost first"),
        ("A100-SXM-80GB", "A100", "full name"),
        ("HGX-A100", "HGX-A10", "node"),
        ("8x200G-IB", "8x200G", "fabric"),
    ):
        with pytest.raises(InputError, match=problem):
            parse_cluster(_file(tmp_path, text.replace(old, new), "spec.json"))


def test_groups_of_a_specification_need_levels_and_names_of_their_own(tmp_path: Path) -> None:
    document = json.loads(canonical_json(parse_cluster("4x8xA100").cluster))
    document["groups"] *= 2
    with pytest.raises(InputError, match="a name that no other group has"):
        parse_cluster(_file(tmp_path, json.dumps(document), "spec.json"))
    document["groups"][1] = {**document["groups"][1], "name": "other"}
    with pytest.raises(InputError, match=r"groups\.0\.levels: got none"):
        parse_cluster(_file(tmp_path, json.dumps(document), "spec.json"))
    joined = parse_cluster("4x8xA100+2x8xH100").cluster
    text = canonical_json(joined)
    assert parse_cluster(_file(tmp_path, text, "spec.json")).cluster == joined
    wrong = text.replace('"level":"inter_rack"', '"level":"intra_rack"')
    with pytest.raises(InputError, match="one inter_rack level"):
        parse_cluster(_file(tmp_path, wrong, "spec.json"))


def test_typed_groups_are_what_the_text_with_plus_means(tmp_path: Path) -> None:
    text = """
groups:
  - {nodes: 2, devices_per_node: 8, device: H100-80GB}
  - {nodes: 4, devices_per_node: 8, device: A100-80GB, fabric: 1x100G-ETH}
"""
    joined = parse_cluster("2x8xH100-80GB+4x8xA100-80GB@100G-ETH").cluster
    assert parse_cluster(_file(tmp_path, text)).cluster == joined
    wider = parse_cluster(
        _file(tmp_path, text + "fabric: 8x400G-IB\noversubscription: 2\n")
    ).cluster
    assert wider.levels[0].fabric == "8x400G-IB"
    assert wider.levels[0].oversubscription == 2
    for extra, problem in (
        ("oversubscription: 2", "nothing without fabric"),
        ("fabric: NVLink4", "8x400G-IB"),
        ("nodes: 2", "only known keys"),
    ):
        with pytest.raises(InputError, match=problem):
            parse_cluster(_file(tmp_path, text + extra + "\n"))
    for groups, problem in (
        ("groups: 2", "at least two groups"),
        ("groups: [1, 2]", "typed keys of one group"),
        ("groups: [{nodes: 1, devices_per_node: 8, device: H100}]", "at least two groups"),
        ("groups: [{nodes: 1}, {nodes: 1}]", "groups.0: devices_per_node"),
    ):
        with pytest.raises(InputError, match=problem):
            parse_cluster(_file(tmp_path, groups + "\n"))


ZONED = """
groups:
  - {nodes: 1, devices_per_node: 8, device: H100-80GB, zone: east}
  - {nodes: 1, devices_per_node: 8, device: A100-80GB, zone: east}
  - {nodes: 2, devices_per_node: 8, device: A100-80GB, fabric: 8x200G-IB, zone: west}
"""


def test_typed_groups_may_lie_in_zones(tmp_path: Path) -> None:
    rates = "inter_zone_bandwidth_gb_per_s: 1.25\ninter_zone_latency_us: 5000\n"
    text = ZONED + "fabric: 8x400G-IB\ninter_zone_fabric: 1x100G-ETH\n" + rates
    parsed = parse_cluster(_file(tmp_path, text))
    inside, between = parsed.cluster.levels
    assert (inside.level, inside.group_size, inside.fabric) == ("inter_rack", 16, "8x400G-IB")
    assert (between.level, between.group_size, between.fabric) == ("inter_zone", 32, "1x100G-ETH")
    assert between.bandwidth_bytes_per_s == 1.25e9
    assert between.latency_s == pytest.approx(5e-3)
    assert not [note for note in parsed.assumptions if note.path.startswith("cluster.levels")]
    spelled = _file(tmp_path, canonical_json(parsed.cluster), "spec.json")
    assert parse_cluster(spelled).cluster == parsed.cluster
    assumed = {note.path: note.value for note in parse_cluster(_file(tmp_path, ZONED)).assumptions}
    assert assumed["cluster.levels.0.fabric"] == assumed["cluster.levels.1.fabric"] == "8x200G-IB"
    apart = parse_cluster(
        _file(tmp_path, ZONED.replace("A100-80GB, zone: east", "A100, zone: mid"))
    )
    paths = [note.path for note in apart.assumptions]
    assert "cluster.levels.0.fabric" not in paths  # there is no link inside a zone
    assert "cluster.levels.1.fabric" in paths


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (", zone: west", "", "groups.2.zone: got none"),
        ("", "inter_zone_latency_us: 5", "nothing without inter_zone_fabric"),
        ("", "inter_zone_fabric: 1x100G-ET", "1x100G-ETH"),
        ("zone: west", "zone: 3", "zone"),
    ],
)
def test_zones_that_cannot_be(tmp_path: Path, old: str, new: str, problem: str) -> None:
    text = ZONED.replace(old, new) if old else ZONED + new
    with pytest.raises(InputError, match=problem):
        parse_cluster(_file(tmp_path, text))


def test_zone_links_need_several_zones(tmp_path: Path) -> None:
    text = ZONED.replace("west", "east") + "inter_zone_fabric: 1x100G-ETH\n"
    with pytest.raises(InputError, match="nothing without groups in several zones"):
        parse_cluster(_file(tmp_path, text))


@pytest.mark.parametrize("rate", ["1.0e-320", "1.0e-10"])
def test_a_link_of_no_rate_is_refused_by_name(rate: str, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(
        f"nodes: 1\ndevices_per_node: 2\ndevice: H100\nintra_node_bandwidth_gb_per_s: {rate}\n"
    )
    with pytest.raises(InputError, match=r"intra_node_bandwidth_gb_per_s: got .*at least 1e-09"):
        parse_cluster(str(file))
