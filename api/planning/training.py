"""Reports with the time and cost of a whole training."""

from __future__ import annotations

from dataclasses import replace

from ...costmodel.explain.step_cost import with_cost, with_training
from ...spec.inputs.token_count import token_count
from ...spec.plan.rental_prices import RentalPrices
from ...spec.report.report import Assumption, Report
from ..problem.price_file import price_notes

TOKENS_FLAG = "--tokens"
STEPS_ALONE = "steps alone: failures, evaluations and checkpoints take no time"


def priced_report(report: Report, prices: RentalPrices | None) -> Report:
    """The report of a simulation with the plan's cost, if there are prices."""
    prediction = with_cost(report.prediction, report.plan, prices)
    notes = price_notes(prices, report.plan.cluster)
    known = [note for note in notes if note not in report.assumptions]
    return replace(report, prediction=prediction, assumptions=(*report.assumptions, *known))


def trained_report(report: Report, tokens: str | float | None) -> Report:
    """The report with the training on a number of tokens, if one is given.

    Raises:
        InputError: no number of tokens.
    """
    if tokens is None:
        return report
    count = token_count(tokens, TOKENS_FLAG)
    note = Assumption(path="training.time_s", value="no pauses", why=STEPS_ALONE)
    return replace(
        report,
        prediction=with_training(report.prediction, report.plan, count),
        assumptions=(*report.assumptions, note),
    )
