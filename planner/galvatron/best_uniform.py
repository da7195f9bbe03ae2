"""The best plan with one strategy for all layers: what choosing layer by layer is held against."""

from __future__ import annotations

from ...costmodel.galvatron.job import MB, GalvatronJob, usable_mb
from ...costmodel.galvatron.plan_cost import GalvatronCost, GalvatronPlan, plan_cost
from .options import Legal, options_of


def best_uniform(
    job: GalvatronJob, budget_mb: int, like: GalvatronPlan, legal: Legal
) -> tuple[GalvatronPlan, GalvatronCost] | None:
    """The fastest plan of one strategy with the micro-batches and stages of another; None: none.

    Args:
        job: the question.
        budget_mb: MB of a device, of which a part may be withheld.
        like: the plan whose shape it has.
        legal: whether layers, or embedding and head, may be split so.
    """
    options = options_of(job, like.microbatches, len(like.division), legal)
    usable, best = usable_mb(budget_mb) * MB, None
    for strategy in options.strategies:
        for ends in options.ends:
            plan = GalvatronPlan(
                layers=(strategy,) * sum(job.layers),
                ends=ends.strategy,
                microbatches=like.microbatches,
                division=like.division,
            )
            price = plan_cost(job, plan)
            fits = max(price.used_bytes) <= usable
            if fits and (best is None or price.step_s < best[1].step_s):
                best = plan, price
    return best
