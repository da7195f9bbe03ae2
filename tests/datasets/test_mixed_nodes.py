"""Kinds of device that share a node: ``1x(4xA100-80GB+4xV100-32GB)``."""

from __future__ import annotations

import json

import pytest

import shardwright as sw
from shardwright.api.server.compute.operations import run_operation
from shardwright.datasets.clusters.parse import parse_cluster
from shardwright.datasets.clusters.resize import enlarge, resize
from shardwright.spec.errors import InputError

NODE = "1x(4xA100-80GB+4xV100-32GB)"


@pytest.mark.parametrize(
    ("text", "link", "inside"),
    [
        (NODE, "PCIe3", ["NVLink3", "NVLink2"]),
        ("(4xA100-80GB+4xV100-32GB)", "PCIe3", ["NVLink3", "NVLink2"]),
        ("1x(4xRTX-3090+4xRTX-4090)", "PCIe4-HOST", ["PCIe4-HOST", "PCIe4-HOST"]),
        ("1x(4xH100+2xL40S)", "PCIe4", ["NVLink4", "PCIe4"]),
        ("1x(4xA100-80GB+4xA100-40GB@NVLink3)", "NVLink3", ["NVLink3", "NVLink3"]),
    ],
)
def test_kinds_meet_over_the_link_of_the_node(text: str, link: str, inside: list[str]) -> None:
    parsed = parse_cluster(text)
    assert [level.fabric for level in parsed.cluster.levels] == [link]
    assert [group.levels[-1].fabric for group in parsed.cluster.groups] == inside
    assert parse_cluster(parsed.expansion).cluster == parsed.cluster
    named = "@" in text
    assert named != any("between the kinds" in note.why for note in parsed.assumptions)


def test_several_such_nodes_are_groups_over_the_network() -> None:
    parsed = parse_cluster("2x(4xA100-80GB+4xV100-32GB)@8x100G-IB")
    assert [level.fabric for level in parsed.cluster.levels] == ["8x100G-IB"]
    assert [group.nodes for group in parsed.cluster.groups] == [2, 2]
    assert [group.levels[-1].fabric for group in parsed.cluster.groups] == ["8x100G-IB"] * 2
    assert parsed.assumptions[-1].why.startswith("kinds of several nodes")
    assert parse_cluster(parsed.expansion).cluster == parsed.cluster


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1x(4xA100)", "nearest: 1x(4xA100-80GB+4xV100-32GB)"),
        ("1x(4xA100+)", "NODESx(COUNTxTYPE"),
        ("(4xA100", "NODESx(COUNTxTYPE"),
        ("1x(4xA100+4xV100)+2x8xH100", "NODESx(COUNTxTYPE"),
        ("1x(4xA100+4xV100)@8x400G-IB", "stands in parentheses"),
        ("2x(4xA100+4xV100@PCIe3)", "over the network"),
        ("1x(4xA100+4xV100@8x400G-IB)", "NVLink2"),
        ("1x(4xA100+99xV100)", "devices a node"),
        ("0x(4xA100+4xV100)", "counts of at least 1"),
    ],
)
def test_what_is_no_such_node_is_one_line(text: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_cluster(text)
    assert says in str(caught.value)


def test_a_node_of_several_kinds_neither_grows_nor_joins() -> None:
    node = parse_cluster(NODE)
    with pytest.raises(InputError, match="the node that kinds of device share"):
        resize(node.cluster, "a100", 2, 4, "--set nodes")
    with pytest.raises(InputError, match="one kind of device each"):
        enlarge(node.cluster, parse_cluster("1x8xH100"), "--add")
    assert resize(node.cluster, "a100", 1, 2, "--set devices").cluster.device_count == 6


def test_the_link_of_the_node_is_faster_than_a_network() -> None:
    flags = {"global_batch": 64, "seq_len": 1024, "dtype": "fp16", "pp": 2, "tp": 4}
    near = sw.simulate("gpt2", NODE, **flags)
    far = sw.simulate("gpt2", "1x4xA100-80GB+1x4xV100-32GB+@1x10G-ETH", **flags)
    assert near.prediction.step_time_s < far.prediction.step_time_s
    body = {"model": "gpt2", "cluster": NODE, "strategy": {"pp": 2, "tp": 4}}
    body["workload"] = {"global_batch": 64, "seq_len": 1024, "dtype": "fp16"}
    status, answer = run_operation("simulation", json.dumps(body).encode(), 60.0)
    assert status == 200
    assert json.loads(answer)["prediction"]["step_time_s"] == near.prediction.step_time_s
