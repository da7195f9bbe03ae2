"""Clusters of another size: those that a text of that size gives, with what was typed kept."""

from __future__ import annotations

from dataclasses import replace

import pytest
from generators.zoned_clusters import in_zones

from shardwright.datasets.catalogue.device import device
from shardwright.datasets.clusters.file import cluster_from_keys
from shardwright.datasets.clusters.parse import parse_cluster
from shardwright.datasets.clusters.parsed_cluster import ParsedCluster, expansion
from shardwright.datasets.clusters.resize import enlarge, exchange, resize
from shardwright.spec.cluster.cluster_spec import ClusterSpec, MemoryTiers
from shardwright.spec.errors import InputError
from shardwright.spec.rules.input_rules import cluster_problems


def cluster(text: str) -> ClusterSpec:
    return parse_cluster(text).cluster


@pytest.mark.parametrize(
    ("was", "nodes", "per_node", "now"),
    [
        ("2x8xH100", 3, 8, "3x8xH100"), ("1x8xH100", 2, 8, "2x8xH100"),
        ("2x8xH100", 1, 4, "1x4xH100"), ("2x8xH100", 2, 4, "2x4xH100"),
        ("2x8xH100@1x100G-ETH:oversub=2", 4, 8, "4x8xH100@1x100G-ETH:oversub=2"),
        ("18x4xGB200", 36, 4, "36x4xGB200"), ("40x4xGB200", 10, 4, "10x4xGB200"),
        ("1x1xH100", 1, 8, "1x8xH100"), ("4x8xMI250X", 6, 8, "6x8xMI250X"),
    ],
)  # fmt: skip
def test_a_cluster_of_another_size_is_that_of_the_text(
    was: str, nodes: int, per_node: int, now: str
) -> None:
    found = resize(cluster(was), "main", nodes, per_node, "--set nodes")
    assert found.cluster == cluster(now)
    assert resize(found.cluster, "main", nodes, per_node, "x").cluster == found.cluster


def test_a_network_that_nobody_named_is_an_assumption() -> None:
    assert [n.path for n in resize(cluster("1x8xH100"), "main", 2, 8, "x").notes] == [
        "cluster.levels.1.fabric"
    ]
    assert resize(cluster("2x8xH100"), "main", 4, 8, "x").notes == ()


def test_what_was_typed_stays() -> None:
    keys = {
        "nodes": 8, "devices_per_node": 8, "device": "H100-80GB", "nodes_per_rack": 4,
        "inter_node_bandwidth_gb_per_s": 25, "inter_rack_latency_us": 20, "oversubscription": 2,
        "memory_gib": 70,
    }  # fmt: skip
    typed = cluster_from_keys(keys, "keys").cluster
    for nodes in (5, 12, 16):
        grown = resize(typed, "main", nodes, 8, "x").cluster
        asked = cluster_from_keys({**keys, "nodes": nodes}, "keys").cluster
        assert grown == asked
    small = resize(typed, "main", 3, 8, "x").cluster
    assert [level.level for level in small.levels] == ["intra_node", "intra_rack"]
    assert small.levels[-1].bandwidth_bytes_per_s == 25e9


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="at most 8 H100-SXM-80GB in a node"):
        resize(cluster("2x8xH100"), "main", 2, 16, "--set devices_per_node")
    with pytest.raises(InputError, match="one node: cores of this machine"):
        resize(cluster("local:2"), "main", 2, 2, "--set nodes")
    with pytest.raises(InputError, match="at most"):
        resize(cluster("2x8xH100"), "main", 2**25, 8, "--set nodes")


@pytest.mark.parametrize(
    ("was", "added", "groups", "names"),
    [
        ("2x8xH100", "1x8xH100", [("main", 3)], {"main": "main"}),
        ("2x8xH100", "8xH100@8x400G-IB", [("main", 3)], {"main": "main"}),
        ("2x8xH100@1x100G-ETH", "2x8xH100", [("main", 4)], {"main": "main"}),
        ("2x8xH100", "2x8xH100@1x100G-ETH", [("h100", 2), ("h100-2", 2)], {"main": "h100"}),
        ("2x8xH100", "1x4xH100", [("h100", 2), ("h100-2", 1)], {"main": "h100"}),
        ("2x8xH100", "8xA100", [("h100", 2), ("a100", 1)], {"main": "h100"}),
        ("1x8xH100+1x8xA100", "2x8xA100", [("h100", 1), ("a100", 3)],
         {"h100": "h100", "a100": "a100"}),
        ("1x8xH100+1x8xA100", "8xB200", [("h100", 1), ("a100", 1), ("b200", 1)],
         {"h100": "h100", "a100": "a100"}),
        ("1x8xH100", "1x8xA100+1x8xH100", [("h100", 2), ("a100", 1)], {"main": "h100"}),
    ],
)  # fmt: skip
def test_added_nodes_join_their_kind_or_make_a_group(
    was: str, added: str, groups: list[tuple[str, int]], names: dict[str, str]
) -> None:
    found = enlarge(cluster(was), parse_cluster(added), "--add")
    assert [(group.name, group.nodes) for group in found.cluster.groups] == groups
    assert found.names == names
    assert not list(cluster_problems(found.cluster))
    total = cluster(was).device_count + cluster(added).device_count
    assert found.cluster.device_count == total


def test_added_devices_are_capped_as_those_of_the_plan() -> None:
    own = cluster("2x8xH100")
    memory = replace(own.groups[0].memory, hbm_bytes=40 * 2**30)
    capped = replace(own, groups=(replace(own.groups[0], memory=memory),))
    found = enlarge(capped, parse_cluster("1x8xH100"), "--add")
    assert {group.memory.hbm_bytes for group in found.cluster.groups} == {40 * 2**30}
    assert any(note.path == "added cluster.memory" for note in found.notes)


def test_cores_join_nothing() -> None:
    with pytest.raises(InputError, match="accelerators"):
        enlarge(cluster("2x8xH100"), parse_cluster("local:2"), "--add")


ZONED = in_zones(
    parse_cluster("1x8xH100+1x8xA100+1x8xA100+@8x400G-IB").cluster, ("east", "east", "west")
)


def _added(zone: str, device: str) -> ParsedCluster:
    keys = {"nodes": 1, "devices_per_node": 8, "device": device}
    return cluster_from_keys({**keys, "zone": zone} if zone else keys, "--add")


def test_groups_keep_their_zones_when_one_grows() -> None:
    found = resize(ZONED, "a100", 3, 8, "--set").cluster
    assert [group.zone for group in found.groups] == ["east", "east", "west"]
    assert [level.group_size for level in found.levels] == [32, 40]
    assert list(cluster_problems(found)) == []


def test_added_nodes_join_a_group_of_their_zone() -> None:
    grown = enlarge(ZONED, _added("west", "A100-80GB"), "--add").cluster
    assert [group.nodes for group in grown.groups] == [1, 1, 2]
    other = enlarge(ZONED, _added("west", "L40S"), "--add").cluster
    assert [group.zone for group in other.groups] == ["east", "east", "west", "west"]
    between = replace(ZONED.levels[1], group_size=32)
    assert other.levels[1] == between
    assert [level.group_size for level in other.levels] == [16, 32]
    with pytest.raises(InputError, match=r"--add: groups\.3\.zone: got none; allowed: a zone"):
        enlarge(ZONED, _added("", "L40S"), "--add")


def test_a_group_with_a_zone_joins_another_zone() -> None:
    alone = ZONED.in_zone("west")
    found = enlarge(alone, _added("north", "A100-80GB"), "--add")
    assert found.cluster.zones == ("west", "north")
    assert [level.level for level in found.cluster.levels] == ["inter_rack", "inter_zone"]
    assert "cluster.levels.1.fabric" in {note.path for note in found.notes}
    assert expansion(ZONED).endswith("+@8x400G-IB in zones east, east, west @1x100G-ETH")


@pytest.mark.parametrize(
    ("was", "kind", "now"),
    [
        ("2x8xH100", "B200", "2x8xB200"),
        ("2x8xH100", "GB200", "4x4xGB200"),
        ("18x4xGB200", "H100", "9x8xH100"),
        ("1x4xGB200", "H100", "1x4xH100"),
        ("1x2xH100", "A100", "1x2xA100"),
        ("2x4xH100", "H200", "2x4xH200"),
        ("2x8xH100@8x100G-ETH", "B200", "2x8xB200@8x100G-ETH"),
        ("2x8xH100@8x400G-IB:oversub=2", "B200", "2x8xB200@8x400G-IB:oversub=2"),
        ("2x8xH100@8x200G-IB", "GB200", "4x4xGB200"),
        ("2x8xA100", "H100", "2x8xH100"),
    ],
)
def test_another_device_is_the_cluster_typed_with_it(was: str, kind: str, now: str) -> None:
    found = exchange(cluster(was), "main", kind, "--set device")
    assert found.cluster == cluster(now)
    assert found.names == {"main": "main"}
    assert "cluster.groups.0.node" in [note.path for note in found.notes]


def test_typed_rates_and_memory_of_the_host_stay() -> None:
    plain = cluster("2x8xH100")
    group, (inner, outer) = plain.groups[0], plain.levels
    memory = MemoryTiers(hbm_bytes=40 * 2**30, host_bytes=2**37)
    typed = replace(
        plain,
        groups=(replace(group, memory=memory),),
        levels=(replace(inner, bandwidth_bytes_per_s=1e11), outer),
    )
    found = exchange(typed, "main", "B200", "--set device")
    assert found.cluster.levels[0] == replace(inner, bandwidth_bytes_per_s=1e11)
    held = found.cluster.groups[0].memory
    assert (held.hbm_bytes, held.host_bytes) == (device("B200").capacity_bytes, 2**37)
    assert "the cap was on H100" in " ".join(note.why for note in found.notes)


def test_one_group_of_several_is_exchanged() -> None:
    mixed = cluster("2x8xH100+2x8xA100")
    found = exchange(mixed, "a100", "B200", "--set a100.device").cluster
    assert [group.device for group in found.groups] == ["H100-SXM-80GB", "B200-SXM-180GB"]
    assert found.levels == mixed.levels
    assert found.group("h100") == mixed.group("h100")


@pytest.mark.parametrize(
    ("was", "kind", "says"),
    [
        ("2x8xH100", "B20", "nearest: B200"),
        ("2x8xH100", "cpu", "an accelerator in place of one"),
        ("local:2", "H100", "an accelerator in place of one"),
        ("1x(4xA100+4xV100)", "H100", "in nodes that hold one kind"),
        ("3x6xH100", "GB200", "nearest: devices=16 beside it"),
    ],
)
def test_devices_that_cannot_take_the_place(was: str, kind: str, says: str) -> None:
    typed = cluster(was)
    with pytest.raises(InputError, match=says):
        exchange(typed, typed.groups[0].name, kind, "--set device")
