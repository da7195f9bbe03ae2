"""More memory never makes the plan worse, in a space too large to be proven."""

from __future__ import annotations

from planning import planned
from samples import random_problem

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
