"""What a step costs: the price of the devices in use times its seconds, a token's share of it."""

from __future__ import annotations

from dataclasses import replace

from ...spec.plan.plan import Plan
from ...spec.plan.rental_prices import RentalPrices, plan_per_s
from ...spec.report.report import Prediction

MILLION = 1_000_000


def with_cost(prediction: Prediction, plan: Plan, prices: RentalPrices | None) -> Prediction:
    """The prediction with what the plan costs.

    cost_per_token = Σ over used devices and their nodes of price_per_s x step_time_s / tokens.

    Args:
        prediction: of the plan.
        plan: whose stages name the devices in use.
        prices: with one for each of its device groups; None leaves the prediction as it is.
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
