"""Rental cost of a step, and of a token."""

from __future__ import annotations

from dataclasses import replace

from ...spec.plan.plan import Plan
from ...spec.plan.rental_prices import RentalPrices, plan_per_s
from ...spec.report.report import Prediction

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
