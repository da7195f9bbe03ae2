"""Clusters from text: the grammar, what is assumed, and what is refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.datasets.catalogue.device import device, devices
from shardwright.datasets.catalogue.fabric import fabrics
from shardwright.datasets.catalogue.links import link_rates
from shardwright.datasets.catalogue.node import largest_node
from shardwright.datasets.clusters import local as cluster_local
from shardwright.datasets.clusters.parse import parse_cluster
from shardwright.datasets.clusters.parsed_cluster import ParsedCluster
from shardwright.spec.errors import InputError, ShardwrightError

NETWORKS = sorted(item.name for item in fabrics().values() if item.scope == "network")


@pytest.mark.parametrize(
    ("text", "nodes", "per_node", "name", "expansion"),
    [
        ("16x8xH100-80GB", 16, 8, "H100-SXM-80GB", "16x8xH100-SXM-80GB@8x400G-IB"),
        ("64xH100-80GB", 8, 8, "H100-SXM-80GB", "8x8xH100-SXM-80GB@8x400G-IB"),
        ("64xH100", 8, 8, "H100-SXM-80GB", "8x8xH100-SXM-80GB@8x400G-IB"),
        ("1xA100-80GB", 1, 1, "A100-SXM-80GB", "1x1xA100-SXM-80GB"),
        ("8xB200", 1, 8, "B200-SXM-180GB", "1x8xB200-SXM-180GB"),
        ("2x4xH100-PCIE", 2, 4, "H100-PCIE-80GB", "2x4xH100-PCIE-80GB@1x200G-IB"),
        ("8xA100-80G", 1, 8, "A100-SXM-80GB", "1x8xA100-SXM-80GB"),
        ("2x4090", 1, 2, "RTX-4090-24GB", "1x2xRTX-4090-24GB"),
        ("2x8x4090", 2, 8, "RTX-4090-24GB", "2x8xRTX-4090-24GB@1x100G-IB"),
        ("16x5090-32G", 2, 8, "RTX-5090-32GB", "2x8xRTX-5090-32GB@1x100G-IB"),
        ("2xGB10", 2, 1, "GB10-128GB", "2x1xGB10-128GB@1x200G-ROCE"),
        ("16xMI355X", 2, 8, "MI355X-288GB", "2x8xMI355X-288GB@8x400G-ROCE"),
        ("2X16Xv100-32gb", 2, 16, "V100-SXM-32GB", "2x16xV100-SXM-32GB@8x100G-IB"),
        (
            "4x8xA100@8x400g-ib:oversub=2",
            4,
            8,
            "A100-SXM-80GB",
            "4x8xA100-SXM-80GB@8x400G-IB:oversub=2",
        ),
    ],
)
def test_text_forms(text: str, nodes: int, per_node: int, name: str, expansion: str) -> None:
    parsed = parse_cluster(text)
    group = parsed.cluster.groups[0]
    assert (group.nodes, group.devices_per_node, group.device) == (nodes, per_node, name)
    assert group.memory.hbm_bytes == device(name).capacity_bytes
    assert parsed.expansion == expansion


def test_a_network_that_was_not_given_is_the_first_assumption() -> None:
    first = parse_cluster("64xH100-80GB").assumptions[0]
    assert (first.path, first.value) == ("cluster.levels.1.fabric", "8x400G-IB")
    paths = [note.path for note in parse_cluster("64xH100-80GB@8x200G-IB").assumptions]
    assert paths == ["cluster.groups.0.device", "cluster.groups.0.node"]
    notes = parse_cluster("8xH100-80GB@8x200G-IB").assumptions
    assert any("not used" in note.why for note in notes)


def test_levels_join_nodes_and_then_everything() -> None:
    cluster = parse_cluster("16x8xH100@8x400G-IB:oversub=2").cluster
    assert [level.level for level in cluster.levels] == ["intra_node", "intra_rack"]
    assert cluster.level_between(0, 7).level == "intra_node"
    assert cluster.level_between(7, 8).level == "intra_rack"
    assert cluster.level_between(0, 127).oversubscription == 2


@st.composite
def cluster_texts(draw: st.DrawFn) -> str:
    """Legal texts of one device group."""
    item = draw(st.sampled_from(sorted(devices())))
    host = largest_node(item)
    assert host is not None
    most = min(host.devices_per_node, 32)
    text = f"{draw(st.integers(1, 10**6))}x{draw(st.integers(1, most))}x{item}"
    if draw(st.booleans()):
        text += "@" + draw(st.sampled_from(NETWORKS))
        if draw(st.booleans()):
            text += f":oversub={draw(st.integers(4, 40)) / 4}"
    return text


@given(cluster_texts())
def test_the_expansion_says_all_of_it(text: str) -> None:
    parsed = parse_cluster(text)
    again = parse_cluster(parsed.expansion)
    assert again.cluster == parsed.cluster
    assert again.expansion == parsed.expansion


@given(cluster_texts())
def test_levels_nest_and_the_last_joins_all(text: str) -> None:
    cluster = parse_cluster(text).cluster
    size = 1
    for level in cluster.levels:
        assert level.group_size % size == 0
        size = level.group_size
        assert link_rates(cluster, level).bandwidth_bytes_per_s > 0
    if cluster.levels[-1].level == "inter_rack":  # the last rack may be partial
        assert cluster.levels[-2].group_size < cluster.device_count <= size
    else:
        assert size == cluster.device_count


def test_a_million_devices_are_a_few_numbers() -> None:
    parsed = parse_cluster("125000x8xH100-80GB")
    assert parsed.cluster.device_count == 10**6
    assert parse_cluster("1000000xH100-80GB").cluster == parsed.cluster


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("", "8x8xH100-80GB@8x400G-IB"),
        ("   ", "8x8xH100-80GB@8x400G-IB"),
        ("H200", "8xH200-SXM-141GB"),
        ("8 x H100", "8xH100"),
        ("8*H100", "8xH100"),
        ("-8xH100", "8xH100"),
        ("H100:8", "8xH100"),
        ("A100-80GB:8", "8xA100-80GB"),
        ("8xA100 80GB", "8xA100-80GB"),
        ("5090", "8xRTX-5090-32GB"),
        ("16x8", "8x8xH100-80GB@8x400G-IB"),
        ("0x8xH100", "1x8xH100"),
        ("8x0xH100", "8x1xH100"),
        ("12xH100", "8xH100-SXM-80GB or 16xH100-SXM-80GB"),
        ("8xH100-PCIE", "1x8xH100-PCIE-80GB"),
        ("2x16xH100", "4x8xH100-SXM-80GB"),
        ("8xcpu", "local:8"),
        ("8xH10", "H100"),
        ("2x8xH100@8x400-IB", "8x400G-IB"),
        ("2x8xH100@8x400G-IB:over=2", "oversub=2"),
        ("2x8xH100@8x400G-IB:oversub=0.5", "2"),
        ("2x8xH100@8x400G-IB:oversub=nan", "1"),
        ("2x8xH100@NVLink4", ""),
        ("99999999x8xH100", ""),
        ("8x99999999xH100", ""),
        ("1" + "0" * 5000 + "xH100", "8x8xH100-80GB@8x400G-IB"),
        ("1" + "0" * 500 + "xH100", ""),
        ("./a\nb.yaml", "8x8xH100-80GB@8x400G-IB"),
        ("\u0664xH100", "8x8xH100-80GB@8x400G-IB"),
        ("8xH100\x00", "8x8xH100-80GB@8x400G-IB"),
        ("nothing-of-the-kind.yaml", ""),
        (".", ""),
    ],
)
def test_mistakes_are_one_line_with_the_nearest_fix(text: str, near: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_cluster(text)
    line = str(caught.value)
    assert "\n" not in line
    assert len(line) < 800
    assert near in str(caught.value.nearest or "")


@given(st.text(alphabet="0123456789xX@:+.-=HAB8 localyes\n\0", max_size=30))
def test_any_text_is_a_cluster_or_one_of_our_errors(text: str) -> None:
    problem = None
    try:
        assert isinstance(parse_cluster(text), ParsedCluster)
    except ShardwrightError as error:
        problem = error
    if problem is not None:
        assert problem.exit_code == 2
        assert "\n" not in str(problem)


@pytest.fixture
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_local, "core_count", lambda: 2)
    monkeypatch.setattr(cluster_local, "memory_bytes", lambda: 2**34)


@pytest.mark.usefixtures("_two_cores")
def test_local_is_one_device_a_core() -> None:
    parsed = parse_cluster("local")
    group = parsed.cluster.groups[0]
    assert (group.device, group.nodes, group.devices_per_node) == ("cpu", 1, 2)
    assert group.memory.hbm_bytes == 2**33
    assert parsed.expansion == "local:2"
    assert parsed.assumptions[0].value == "loopback"
    assert not any("oversubscribed" in note.why for note in parsed.assumptions)


@pytest.mark.usefixtures("_two_cores")
def test_local_n_says_that_it_oversubscribes() -> None:
    parsed = parse_cluster("LOCAL:4")
    assert parsed.cluster.device_count == 4
    assert parsed.cluster.groups[0].memory.hbm_bytes == 2**32
    assert any("oversubscribed: 4 devices on 2 cores" in note.why for note in parsed.assumptions)
    assert parse_cluster("local:4").cluster == parsed.cluster


@pytest.mark.usefixtures("_two_cores")
@pytest.mark.parametrize("text", ["local:0", "local:-1", "local:two", "local:", "local@1x10G-ETH"])
def test_local_mistakes(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_cluster(text)
    assert caught.value.nearest == "local:2"


def test_a_file_beside_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lab.yaml").write_text("nodes: 2\ndevices_per_node: 8\ndevice: H100\n")
    monkeypatch.chdir(tmp_path)
    assert parse_cluster("lab.yaml").cluster == parse_cluster("2x8xH100").cluster
