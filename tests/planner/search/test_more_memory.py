"""More memory never makes the plan worse, in a space too large to be proven."""

from __future__ import annotations

from generators.samples import random_problem
from published.planning import planned

NUMBER, MOST_DEVICES = 1246, 8
SHALLOW = (4_108_971_767, 4_357_125_486)
"""Bytes a device; at the second, four layouts of six layers once hid the best of more."""


def test_a_shallow_model_is_searched_in_all_its_layouts() -> None:
    space = random_problem(NUMBER, MOST_DEVICES)
    less, more = (planned(space.with_memory(capacity)) for capacity in SHALLOW)
    assert less is not None
    assert more is not None
    assert "proof" not in (less.stopped_by, more.stopped_by)
    assert more.outcomes[0].step_time_s <= less.outcomes[0].step_time_s


def test_what_estimates_put_behind_is_found_with_more_memory_too() -> None:
    """Six layers on two devices: where all fit without sharding, some are faster sharded."""
    space = random_problem(254, MOST_DEVICES)
    capacities = (1_794_717_088, 1_798_633_847, 1_820_869_012, 4_566_614_049)
    found = [planned(space.with_memory(capacity)) for capacity in capacities]
    steps_s = [each.outcomes[0].step_time_s for each in found if each is not None]
    assert len(steps_s) == len(capacities)
    assert steps_s == sorted(steps_s, reverse=True)
    assert steps_s[-1] < 16.0


def test_two_layers_that_are_alike_may_change_unlike() -> None:
    """One of two like experts layers is recomputed and split otherwise, the other unsharded."""
    space = random_problem(1758, MOST_DEVICES)
    capacities = (2_158_661_585, 2_174_445_344, 2_199_947_592)
    found = [planned(space.with_memory(capacity)) for capacity in capacities]
    steps_s = [each.outcomes[0].step_time_s for each in found if each is not None]
    assert len(steps_s) == len(capacities)
    assert steps_s == sorted(steps_s, reverse=True)
    assert steps_s[-1] < 0.0359
