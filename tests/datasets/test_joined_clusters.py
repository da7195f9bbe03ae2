"""Device groups joined with +, racks with a fabric of their own, and pairs in a package."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.datasets.catalogue.device import devices
from shardwright.datasets.catalogue.fabric import fabrics
from shardwright.datasets.catalogue.node import nodes, usual_node
from shardwright.datasets.clusters.parse import parse_cluster
from shardwright.spec.cluster.cluster_spec import ClusterSpec
from shardwright.spec.errors import InputError
from shardwright.spec.rules.input_rules import cluster_violation

NETWORKS = [item.name for item in fabrics().values() if item.scope == "network"]
WITH_USUAL_NODE = sorted(name for name in devices() if usual_node(name) is not None)


def _sizes(cluster: ClusterSpec) -> list[tuple[str, int]]:
    return [(level.level, level.group_size) for level in cluster.levels]


def test_groups_keep_their_levels_and_one_joins_them() -> None:
    parsed = parse_cluster("2x8xH100-80GB@8x400G-IB:oversub=2+4x8xA100-80GB@8x200G-IB")
    cluster = parsed.cluster
    assert [group.name for group in cluster.groups] == ["h100", "a100"]
    assert (
        cluster.alone("h100").levels == parse_cluster("2x8xH100@8x400G-IB:oversub=2").cluster.levels
    )
    assert cluster.alone("a100").levels == parse_cluster("4x8xA100@8x200G-IB").cluster.levels
    assert _sizes(cluster) == [("inter_rack", 48)]
    # Both leave a device 25 GB/s, for one has two devices out for each way: the first is taken.
    assert cluster.levels[0].fabric == "8x400G-IB"
    assert cluster.levels[0].oversubscription == 2
    assert cluster_violation(cluster) is None
    notes = {note.path: note.value for note in parsed.assumptions}
    assert notes["cluster.levels.0.fabric"] == "8x400G-IB"
    assert notes["cluster.groups.1.device"] == "A100-SXM-80GB"


def test_the_slowest_network_joins_unless_one_is_given() -> None:
    slow = parse_cluster("2x8xH100-80GB+4x8xA100-80GB@100G-ETH").cluster
    assert slow.levels[0].fabric == "1x100G-ETH"
    assert slow.groups[0].levels[-1].fabric == "8x400G-IB"
    given_one = parse_cluster("2x8xH100+4x8xA100+@8x400G-ROCE:oversub=4")
    assert given_one.cluster.levels[0].fabric == "8x400G-ROCE"
    assert given_one.cluster.levels[0].oversubscription == 4
    assert "cluster.levels.0.fabric" not in {note.path for note in given_one.assumptions}


def test_equal_groups_get_names_of_their_own() -> None:
    cluster = parse_cluster("8xA100+8xA100-40GB+8xA100+8xH100").cluster
    assert [group.name for group in cluster.groups] == ["a100", "a100-2", "a100-3", "h100"]


@st.composite
def joined_texts(draw: st.DrawFn) -> str:
    parts = []
    for _ in range(draw(st.integers(2, 4))):
        name = draw(st.sampled_from(WITH_USUAL_NODE))
        host = usual_node(name)
        assert host is not None
        part = f"{draw(st.integers(1, 100))}x{draw(st.integers(1, host.devices_per_node))}x{name}"
        if draw(st.booleans()):
            part += "@" + draw(st.sampled_from(NETWORKS))
        parts.append(part)
    join = f"@{draw(st.sampled_from(NETWORKS))}:oversub={draw(st.integers(1, 8))}"
    return "+".join([*parts, join] if draw(st.booleans()) else parts)


@given(joined_texts())
def test_the_expansion_of_joined_groups_says_all_of_it(text: str) -> None:
    parsed = parse_cluster(text)
    again = parse_cluster(parsed.expansion)
    assert again.cluster == parsed.cluster
    assert again.expansion == parsed.expansion
    assert cluster_violation(parsed.cluster) is None


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("8xH100+", "each +"),
        ("+8xH100", "each +"),
        ("8xH100++8xA100", "each +"),
        ("8xH100+@8x400G-IB", "each +"),
        ("@8x400G-IB+8xH100+8xA100", "NxTYPE"),
        ("8xH100+8xA1000", "device of the catalogue"),
        ("8xH100+local", "NxTYPE"),
        ("8xH100+1x8xcpu", "cores of this machine"),
        ("8xH100+8xA100+@NVLink4", "fabric of the catalogue"),
        ("8xH100+8xA100+@8x400G-IB:oversub=0", "at least 1"),
        ("8xH100+9xA100", "whole HGX-A100 nodes"),
        ("+".join(["8xH100"] * 65), "at most 64"),
    ],
)
def test_a_wrong_join_is_one_clear_line(text: str, word: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_cluster(text)
    assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_nvl72_is_trays_in_racks_on_a_network() -> None:
    for count, expected in (
        (2, [("intra_node", 2)]),
        (4, [("intra_node", 4)]),
        (72, [("intra_node", 4), ("intra_rack", 72)]),
        (100, [("intra_node", 4), ("intra_rack", 72), ("inter_rack", 144)]),
        (144, [("intra_node", 4), ("intra_rack", 72), ("inter_rack", 144)]),
    ):
        for name in ("GB200", "GB300"):
            cluster = parse_cluster(f"{count}x{name}").cluster
            assert _sizes(cluster) == expected
            assert cluster.device_count == count
            assert cluster_violation(cluster) is None
            inside = [level.fabric for level in cluster.levels if level.level != "inter_rack"]
            assert set(inside) == {"NVLink5-NVL72"}
    assert parse_cluster("2x72xGB200").cluster == parse_cluster("144xGB200").cluster
    with pytest.raises(InputError, match="whole NVL72-GB200 nodes of 4"):
        parse_cluster("74xGB200")
    notes = {note.path: note.why for note in parse_cluster("2x72xGB200").assumptions}
    assert "racks of 18" in notes["cluster.levels"]
    assert notes["cluster.levels.2.fabric"].startswith("no fabric given")


def test_frontier_is_pairs_in_nodes() -> None:
    cluster = parse_cluster("16xMI250X").cluster
    assert _sizes(cluster) == [("intra_pair", 2), ("intra_node", 8), ("intra_rack", 16)]
    assert cluster.levels[0].fabric == "XGMI-MI250X-PAIR"
    assert cluster.levels[2].fabric == "4x200G-SLINGSHOT"
    assert _sizes(parse_cluster("2xMI250X").cluster) == [("intra_node", 2)]
    assert _sizes(parse_cluster("1x7xMI250X").cluster) == [("intra_node", 7)]
    notes = [note.why for note in parse_cluster("16xMI250X").assumptions]
    assert any("two dies" in why for why in notes)


@pytest.mark.parametrize("name", WITH_USUAL_NODE)
def test_a_count_alone_fills_usual_nodes_and_may_be_oversubscribed(name: str) -> None:
    host = usual_node(name)
    assert host is not None
    size = host.devices_per_rack or host.devices_per_node
    cluster = parse_cluster(f"{3 * size}x{name}@{host.network}:oversub=2").cluster
    assert cluster.device_count == 3 * size
    assert cluster.levels[-1].fabric == host.network
    assert cluster.levels[-1].oversubscription == 2
    assert cluster_violation(cluster) is None


def test_pairs_and_racks_of_nodes_nest() -> None:
    for host in nodes().values():
        if host.devices_per_pair is not None:
            assert host.devices_per_node % host.devices_per_pair == 0
        if host.devices_per_rack is not None:
            assert host.devices_per_rack % host.devices_per_node == 0
