"""Best uniform plan, the baseline of layer-by-layer choices."""

from __future__ import annotations

from ...costmodel.galvatron.job import MB, GalvatronJob, usable_mb
from ...costmodel.galvatron.plan_cost import GalvatronCost, GalvatronPlan, plan_cost
from .options import Legal, options_of


def best_uniform(
    job: GalvatronJob, budget_mb: int, reference: GalvatronPlan, legal: Legal
) -> tuple[GalvatronPlan, GalvatronCost] | None:
    """Fastest uniform plan of another's shape; None if none fits.

    Args:
        job: the question.
        budget_mb: MB of a device, part of it withheld.
        reference: plan with these micro-batches and stages.
        legal: legality of a strategy of layers, or of embedding and head.
    """
    options = options_of(job, reference.microbatches, len(reference.division), legal)
    usable, best = usable_mb(budget_mb) * MB, None
    for strategy in options.strategies:
        for ends in options.ends:
            plan = GalvatronPlan(
                layers=(strategy,) * sum(job.layers),
                ends=ends.strategy,
                microbatches=reference.microbatches,
                division=reference.division,
            )
            price = plan_cost(job, plan)
            fits = max(price.used_bytes) <= usable
            if fits and (best is None or price.step_s < best[1].step_s):
                best = plan, price
    return best
