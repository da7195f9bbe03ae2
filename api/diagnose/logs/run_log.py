"""RunLog: facts that a training log says of its run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Unit = Literal["seconds", "samples_per_s", "tokens_per_s_per_device"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedStep:
    """A line of a step: the mean over ``count`` steps that end with ``step``."""

    step: int
    value: float
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLog:
    """Steps, memory and configuration of a run.

    ``kind``: who wrote the log. ``unit`` is that of every step's value. ``keys``: the configuration
    as printed, by the framework's own keys, empty where the log has none; ``form`` its form.
    ``peak_bytes``: the most of all lines, None where none says it; ``peak_of`` names the count.
    """

    kind: str
    unit: Unit
    steps: tuple[LoggedStep, ...]
    keys: Mapping[str, Any] = field(default_factory=dict)
    form: str = "arguments"
    peak_bytes: float | None = None
    peak_of: str = ""


LogReader = Callable[[Iterable[str]], RunLog]


def logged_steps(values: Mapping[int, float]) -> tuple[LoggedStep, ...]:
    """Steps in order, each the mean of those since the line before."""
    numbers = sorted(values)
    made, before = list[LoggedStep](), 0
    for number in numbers:
        count = max(1, number - before)
        made.append(LoggedStep(step=number, value=values[number], count=count))
        before = number
    if len(made) > 1 and made[0].count > made[1].count:  # a log that begins in the middle of a run
        made[0] = LoggedStep(step=made[0].step, value=made[0].value, count=made[1].count)
    return tuple(made)
