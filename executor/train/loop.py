"""Steps in sequence: reported, hooked, with garbage collection between them."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...spec.errors import RunError
from ..engine.engine import Engine, StepResult
from ..launch.rank_context import RankContext
from ..launch.step_requests import STOP, AgreedRequest, StepAgreement

COLLECT_EVERY = 20
"""Steps between collections of cyclic garbage, which wait for a moment between two steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepHooks:
    """Callbacks before a step, at complete gradients, with its report, after that.

    Only rank 0 reports. ``done`` also takes whether the step is the run's last.
    """

    begin: Callable[[int], None]
    inspect: Callable[[int], None]
    report: Callable[[dict[str, Any]], None]
    done: Callable[[int, bool], None]


def run_steps(
    engine: Engine, last: int, context: RankContext, hooks: StepHooks, agreement: StepAgreement
) -> tuple[list[StepResult], AgreedRequest | None]:
    """Run steps up to number ``last``; rank 0 reports each.

    Returns:
        The steps, and the request that stopped them before the last, if any.

    Raises:
        RunError: a loss or gradient norm that is not a number.
    """
    results: list[StepResult] = []
    with _paused_gc() as collect:
        for number in range(engine.step_index + 1, last + 1):
            hooks.begin(number)
            announce = partial(agreement.announce, number)
            step = engine.step(partial(hooks.inspect, number), announce)
            _require_finite(number, step)
            results.append(step)
            if context.rank == 0:
                hooks.report(
                    {
                        "event": "step",
                        "step": number,
                        "loss": step.loss,
                        "gradient_norm": reported_norm(step),
                        "time_s": step.time_s,
                        **({"skipped": True} if step.skipped else {}),
                        **({"balance": step.balance.to_document()} if step.balance else {}),
                    }
                )
            request = agreement.look(number)
            stops = request is not None and request.kind == STOP
            hooks.done(number, stops or number == last)
            if stops and number < last:
                return results, request
            if request is not None and not stops:
                agreement.pause(int(request.value))
            if number % COLLECT_EVERY == 0:
                collect()
    return results, None


def _require_finite(number: int, step: StepResult) -> None:
    for name, value in (("loss", step.loss), ("gradient norm", reported_norm(step) or 0.0)):
        if not math.isfinite(value):
            raise RunError(f"step {number}: the {name} is {value}, not a finite number")


def reported_norm(step: StepResult) -> float | None:
    """Gradient norm of a step; None on overflow, which changes nothing."""
    return None if step.skipped else step.gradient_norm


@contextmanager
def _paused_gc() -> Iterator[Callable[[], int]]:
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield gc.collect
    finally:
        gc.enable()
        gc.unfreeze()
