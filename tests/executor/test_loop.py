"""A run ends at the first step whose figures are not numbers, and says which."""

from __future__ import annotations

import math
from typing import Any

import pytest

from shardwright.executor.engine.engine import StepResult
from shardwright.executor.train.loop import StepHooks, run_steps
from shardwright.spec.errors import RunError


class Engine:
    step_index = 6

    def __init__(self, step: StepResult) -> None:
        self._step = step

    def step(self, *hooks: object) -> StepResult:
        return self._step


class Agreement:
    def announce(self, number: int) -> None:
        """Nothing."""

    def look(self, number: int) -> None:
        """Nobody asks for anything."""


class Context:
    rank = 0


def _run(**fields: Any) -> list[StepResult]:
    done: list[tuple[int, bool]] = []
    hooks = StepHooks(
        begin=lambda number: None,
        inspect=lambda number: None,
        report=lambda document: None,
        done=lambda number, last: done.append((number, last)),
    )
    step = StepResult(**{"loss": 6.25, "gradient_norm": 1.0, "time_s": 0.1, **fields})
    given: Any = Engine(step), 7, Context(), hooks, Agreement()
    results = run_steps(*given)[0]
    assert done == [(7, True)]
    return results


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(("field", "name"), [("loss", "loss"), ("gradient_norm", "gradient norm")])
def test_what_is_no_number_is_named(field: str, name: str, value: float) -> None:
    with pytest.raises(RunError, match=rf"^step 7: the {name} is {value}, not a finite number$"):
        _run(**{field: value})


def test_a_skipped_step_may_have_overflowed() -> None:
    assert _run(gradient_norm=math.inf, skipped=True)[0].skipped
    assert len(_run()) == 1
