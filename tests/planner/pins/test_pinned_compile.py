"""Compiled blocks are planned where a pin asks for them, and nowhere else."""

from __future__ import annotations

import pytest
from kernel_doubles.compiled_layers import text_of

from shardwright.api.planning.uniform_plan import UniformStrategy, uniform_plan
from shardwright.api.problem.pins import resolve_pins
from shardwright.api.problem.resolve import Inputs, resolve
from shardwright.planner.solve.options import SolveOptions
from shardwright.planner.solve.problem import Problem
from shardwright.planner.solve.solution import Solution
from shardwright.planner.solve.solve import solve
from shardwright.spec.errors import InputError
from shardwright.spec.plan.plan import Plan


def problem(cluster: str = "2xA100-80GB", **more: object) -> Problem:
    asked = {"model": "gpt2", "cluster": cluster, "global_batch": 8, "seq_len": 128, **more}
    return resolve(Inputs(**asked))  # type: ignore[arg-type]


def planned(asked: Problem, *pins: str) -> Solution:
    return solve(asked, SolveOptions(pins=resolve_pins(pins, asked)))


def words(plan: Plan) -> list[str]:
    """How each layer is compiled."""
    return [text_of(strategy) for strategy in plan.layer_strategies()]


def test_nothing_is_compiled_unasked() -> None:
    solution = planned(problem())
    assert set(words(solution.plan)) == {"none"}
    assert solution.search.space["compile"] == ["none"]
    assert any("compile" in entry["what"] for entry in solution.search.left_out)


def test_pins_of_all_layers_and_of_some() -> None:
    asked = problem()
    whole = planned(asked, "compile=default")
    assert words(whole.plan) == ["none", *["default"] * 12, "none"]
    assert whole.plan.check() == []
    assert whole.prediction.step_time_s < planned(asked).prediction.step_time_s
    assert whole.search.lower_bound_s <= whole.prediction.step_time_s
    assert words(planned(asked, "compile@3-5=default").plan)[2:7] == [
        "none",
        *["default"] * 3,
        "none",
    ]


def test_a_pinned_graph_takes_blocks_of_one_rank() -> None:
    solution = planned(problem(dtype="fp32"), "compile=cuda_graph", "pp=2")
    assert words(solution.plan) == ["none", *["cuda_graph"] * 12, "none"]
    assert {s.data_parallel(1) for s in solution.plan.layer_strategies()} == {1}
    assert {stage.device_count for stage in solution.plan.program.stages} == {1}


@pytest.mark.parametrize("word", ["default", "cuda_graph"])
def test_the_flag_of_simulate_is_of_blocks(word: str) -> None:
    asked = problem("1xA100-80GB", dtype="fp32")
    plan, _ = uniform_plan(asked, UniformStrategy(techniques={"compile": word}))
    assert words(plan) == ["none", *[word] * 12, "none"]
    off, _ = uniform_plan(asked, UniformStrategy(techniques={"compile": "none"}))
    left_out, _ = uniform_plan(asked, UniformStrategy())
    assert off.hash == left_out.hash != plan.hash


def test_a_stack_that_compiles_refuses_the_pin() -> None:
    with pytest.raises(InputError, match="compiles every layer already"):
        resolve_pins(("compile=default",), problem(stack="torchtitan"))
