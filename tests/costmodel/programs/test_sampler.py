"""The sampler: one program a cluster, heaviest first, the same each time."""

from __future__ import annotations

import numpy as np

from shardwright.costmodel.programs.sampler import chosen_programs


def _three_groups() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(3)
    points = np.concatenate([random.normal(c, 0.05, (40, 4)) for c in (0.0, 4.0, 9.0)])
    return points, np.repeat([1.0, 5.0, 2.0], 40)


def test_each_cluster_gives_one_program_and_the_heaviest_leads() -> None:
    points, seconds = _three_groups()
    chosen = chosen_programs(points, seconds, 3)
    assert [row // 40 for row in chosen] == [1, 2, 0]
    assert chosen == chosen_programs(points, seconds, 3)


def test_all_programs_are_chosen_where_there_are_few_and_none_twice() -> None:
    points, seconds = _three_groups()
    assert chosen_programs(points[:3], np.array([1.0, 3.0, 2.0]), 9) == [1, 2, 0]
    many = chosen_programs(points, seconds, 60)
    assert len(many) == len(set(many)) <= 60
    assert len(many) > 40


def test_equal_programs_do_not_stop_it() -> None:
    assert chosen_programs(np.ones((5, 2)), np.ones(5), 2) == [0]
