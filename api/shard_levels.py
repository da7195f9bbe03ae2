"""Link levels in the place of sharding degrees, where one strategy is typed for a whole plan."""

from __future__ import annotations

from ..planner.shard_levels import group_sizes, level_degrees
from ..spec.cluster import ClusterSpec


def with_degrees(text: str, cluster: ClusterSpec, tp: int, dp: int, field: str = "--shard") -> str:
    """``text`` with degrees in the place of levels; other texts are returned as they are.

    Args:
        text: a sharding level as typed.
        cluster: whose link levels are meant.
        tp: tensor-parallel degree.
        dp: data-parallel degree, the most that a state is split over.
        field: named in errors.

    Raises:
        InputError: a level that the cluster does not have.
    """
    return level_degrees(text, group_sizes(cluster), tp, dp, field)
