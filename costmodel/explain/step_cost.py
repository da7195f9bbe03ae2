"""Rental cost of a step and a token; time and cost of a whole training."""

from __future__ import annotations

from dataclasses import replace

from ...spec.plan.plan import Plan
from ...spec.plan.rental_prices import RentalPrices, plan_per_s
from ...spec.report.report import Prediction
from ...spec.report.training_run import TrainingRun

MILLION = 1_000_000


def with_cost(prediction: Prediction, plan: Plan, prices: RentalPrices | None) -> Prediction:
    """Add the plan's cost to the prediction, if there are ``prices``.

    cost_per_token = Σ over used devices and their nodes of price_per_s x step_time_s / tokens.
    """
    if prices is None:
        return prediction
    step = plan_per_s(plan, prices) * prediction.step_time_s
    token = step / plan.workload.tokens_per_step
    return replace(
        prediction,
        cost_per_token=token,
        cost_per_million_tokens=token * MILLION,
        cost_per_step=step,
        currency=prices.currency,
    )


def with_training(prediction: Prediction, plan: Plan, tokens: int) -> Prediction:
    """Add the training on ``tokens`` to the prediction, with its cost if steps have one.

    time_s = ceil(tokens / tokens a step) x step_time_s.
    """
    steps = -(-tokens // plan.workload.tokens_per_step)
    devices = sum(stage.device_count for stage in plan.program.stages)
    time_s = steps * prediction.step_time_s
    step_cost = prediction.cost_per_step
    training = TrainingRun(
        tokens=tokens,
        steps=steps,
        time_s=time_s,
        device_s=time_s * devices,
        cost=None if step_cost is None else steps * step_cost,
    )
    return replace(prediction, training=training)
