"""Models whose embedding and head share a weight get plans that unite both."""

from __future__ import annotations

import pytest

from shardwright.api.problem.resolve import Inputs, resolve
from shardwright.planner.solve.options import SolveOptions
from shardwright.planner.solve.solve import solve
from shardwright.planner.space.pins import Pin

GPT2 = Inputs(model="gpt2", cluster="8xH100", global_batch=64, seq_len=1024)


def test_one_stage_is_among_the_likely_plans() -> None:
    solution = solve(resolve(GPT2))
    first, *_, last = solution.plan.layer_strategies()
    assert (first.tp, first.shard) == (last.tp, last.shard)
    assert solution.search.gap < 0.15


@pytest.mark.parametrize("pin", [Pin(key="dp", value=8), Pin(key="shard", value="zero3")])
def test_pins_on_tied_models_have_plans(pin: Pin) -> None:
    solution = solve(resolve(GPT2), SolveOptions(pins=(pin,)))
    assert solution.prediction.feasible
