"""Probes: legal plans over exactly the ranks at work, whatever their number."""

from __future__ import annotations

import pytest

from shardwright.executor.groups.rank_layout import plan_world_size
from shardwright.profiler.overhead.probes import Probe, message_probe, probe_plan, probes

RANKS = range(1, 9)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("coarse", [True, False])
def test_every_probe_is_a_legal_plan_of_all_ranks(ranks: int, coarse: bool) -> None:
    asked = [*probes(ranks, coarse), message_probe(ranks)]
    for probe in filter(None, asked):
        plan = probe_plan(probe, ranks)
        assert plan.check() == [], probe
        assert plan_world_size(plan) == ranks, probe


@pytest.mark.parametrize("ranks", RANKS)
def test_ranks_are_split_where_they_can_be(ranks: int) -> None:
    split = {probe.tp for probe in probes(ranks, coarse=False)} - {1}
    assert split == ({2} if ranks % 2 == 0 else set())
    assert (message_probe(ranks) is not None) == (ranks % 2 == 0)


@pytest.mark.parametrize(
    "probe", [Probe(tp=2), Probe(tp=3), Probe(stages=2), Probe(hidden=64, tp=5)]
)
def test_a_probe_that_cannot_run_is_refused(probe: Probe) -> None:
    with pytest.raises(ValueError, match=r"does not divide|idle|divide"):
        probe_plan(probe, 3)
