"""Link levels in the place of sharding degrees."""

from __future__ import annotations

import pytest

from shardwright.datasets.clusters.parse import parse_cluster
from shardwright.planner.space.shard_levels import with_degrees
from shardwright.spec.errors import InputError

CLUSTER = parse_cluster("4x8xH100").cluster


@pytest.mark.parametrize(
    ("text", "tp", "dp", "degrees"),
    [
        ("zero3", 1, 32, "zero3"),
        ("hsdp:4", 1, 32, "hsdp:4"),
        ("1/1/8", 1, 32, "1/1/8"),
        ("hsdp", 1, 32, "hsdp:8"),
        ("hsdp", 2, 16, "hsdp:4"),
        ("hsdp", 1, 4, "hsdp:4"),
        ("hsdp:intra_node", 8, 4, "hsdp:1"),
        ("hsdp:intra_rack", 2, 16, "hsdp:16"),
        ("hsdp:inter_node", 1, 32, "hsdp:32"),
        ("1/intra_node/inter_node", 2, 16, "1/4/16"),
        ("intra_node/intra_node/16", 1, 32, "8/8/16"),
        ("hpz:intra_node", 1, 32, "hpz:8"),
        ("hpz", 2, 16, "hpz:4"),
        ("hpz:16", 1, 32, "hpz:16"),
        ("8/intra_node/inter_node+hpz:4", 1, 32, "8/8/32+hpz:4"),
        ("inter_node/32/32+hpz", 1, 32, "32/32/32+hpz:8"),
        ("16/16/16+hpz:intra_node", 2, 16, "16/16/16+hpz:4"),
    ],
)
def test_levels_become_degrees(text: str, tp: int, dp: int, degrees: str) -> None:
    assert with_degrees(text, CLUSTER, tp, dp) == degrees


def test_a_level_that_the_cluster_lacks_is_named_with_those_it_has() -> None:
    with pytest.raises(InputError, match="intra_node, intra_rack, inter_node"):
        with_degrees("hsdp:inter_rack", CLUSTER, 1, 32)
    with pytest.raises(InputError, match="allowed: intra_node"):
        with_degrees("1/1/intra_nod", parse_cluster("8xH100").cluster, 1, 8)
