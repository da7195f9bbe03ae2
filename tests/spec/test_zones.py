"""Zones of device groups: which levels join them, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from generators.heterogeneous_cases import two_groups
from generators.zoned_clusters import in_zones

from shardwright.datasets.clusters.parse import parse_cluster
from shardwright.spec.cluster.cluster_spec import ClusterSpec
from shardwright.spec.codec import canonical_json, from_json
from shardwright.spec.rules.input_rules import cluster_problems, cluster_violation

THREE = parse_cluster("1x8xH100+1x8xA100+2x8xA100+@8x400G-IB").cluster
ZONED = in_zones(THREE, ("east", "east", "west"))


def _names(cluster: ClusterSpec, *groups: str) -> list[str]:
    return [level.level for level in cluster.joining(groups)]


def test_the_levels_that_join_groups() -> None:
    assert cluster_violation(ZONED) is None
    assert ZONED.zones == ("east", "west")
    assert ZONED.joined_counts == (16, 32)
    assert _names(ZONED, "h100", "a100") == ["inter_rack"]
    assert _names(ZONED, "a100", "a100-2") == ["inter_zone"]
    assert _names(ZONED, "h100", "a100", "a100-2") == ["inter_rack", "inter_zone"]
    assert _names(THREE, "h100", "a100-2") == ["inter_rack"]


def test_the_way_out_of_a_group() -> None:
    around = {
        group.name: [level.level for level in ZONED.seen_from(group.name).levels]
        for group in ZONED.groups
    }
    assert around["h100"] == ["intra_node", "inter_rack", "inter_zone"]
    assert around["a100-2"] == ["intra_node", "intra_rack", "inter_zone"]


def test_a_zone_by_itself_is_the_cluster_of_its_groups() -> None:
    pair = parse_cluster("1x8xH100+1x8xA100+@8x400G-IB").cluster
    assert ZONED.in_zone("east") == in_zones(pair, ("east", "east"))
    assert ZONED.in_zone("west") == ZONED.alone("a100-2")


def test_a_cluster_without_zones_has_the_document_that_it_had() -> None:
    assert "zone" not in canonical_json(THREE)
    assert from_json(ClusterSpec, canonical_json(ZONED), "spec.json") == ZONED
    one = in_zones(two_groups(2, 2), ("here", "here"))
    assert cluster_violation(one) is None
    assert [level.level for level in one.levels] == ["inter_rack"]


def _without_zone(cluster: ClusterSpec) -> ClusterSpec:
    groups = (*cluster.groups[:2], replace(cluster.groups[2], zone=""))
    return replace(cluster, groups=groups)


def _with_sizes(inside: int, between: int) -> ClusterSpec:
    pairs = zip(ZONED.levels, (inside, between), strict=True)
    return replace(ZONED, levels=tuple(replace(x, group_size=n) for x, n in pairs))


def _within_a_group(cluster: ClusterSpec) -> ClusterSpec:
    outer = replace(cluster.groups[2].levels[1], level="inter_zone")
    group = replace(cluster.groups[2], levels=(cluster.groups[2].levels[0], outer))
    return replace(cluster, groups=(*cluster.groups[:2], group))


@pytest.mark.parametrize(
    ("cluster", "field", "reason"),
    [
        (_without_zone(ZONED), "groups.2.zone", "none; needs a zone, for other groups name one"),
        (replace(ZONED, levels=ZONED.levels[:1]), "levels", "inter_rack; needs inter_rack, which"),
        (replace(ZONED, levels=ZONED.levels[::-1]), "levels", "inter_zone, inter_rack; needs"),
        (replace(THREE, levels=ZONED.levels), "levels", "needs one inter_rack level"),
        (_with_sizes(8, 32), "levels.0.group_size", "8; needs a zone's 16 devices; nearest: 16"),
        (_with_sizes(16, 31), "levels.1.group_size", "31; needs all 32 devices; nearest: 32"),
        (_within_a_group(THREE), "groups.2.levels.1.level", "inter_zone; needs levels inside a"),
    ],
)
def test_one_line_says_what_is_wrong(cluster: ClusterSpec, field: str, reason: str) -> None:
    found = next(cluster_problems(cluster))
    assert found.field == field
    assert reason in found.reason
