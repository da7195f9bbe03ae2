"""Reports with the price of a run's checkpoints."""

from __future__ import annotations

from dataclasses import replace

from ...costmodel.checkpoint import ANALYTIC, price_checkpoint
from ...spec.report.report import Assumption
from .report import Simulated

NOT_MEASURED = (
    "one drive of a node, shared by all; plan profile --checkpoint FOLDER measures the folder"
)


def with_checkpoint(simulated: Simulated) -> Simulated:
    """The simulation, its prediction with stall, writing and loading of a checkpoint."""
    report = simulated.report
    price = price_checkpoint(report.plan, simulated.simulator.pricer)
    notes = report.assumptions
    if price.source == ANALYTIC:
        notes += (Assumption(path="checkpoint.storage", value="catalogue", why=NOT_MEASURED),)
    prediction = replace(report.prediction, checkpoint=price)
    return replace(simulated, report=replace(report, prediction=prediction, assumptions=notes))
