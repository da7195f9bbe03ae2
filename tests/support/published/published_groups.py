"""Groups of measured layouts of one question, and which of them the planner would take."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from published.published_plans import Configuration, configuration, seconds_of

from shardwright.api.problem.pins import resolve_pins
from shardwright.api.validation.priced_run import measured_s
from shardwright.api.validation.scores import LAYOUT_COLUMNS, QUESTION_COLUMNS
from shardwright.costmodel.explain.accuracy import LEAST_LAYOUTS
from shardwright.datasets.published.runs import PublishedRun, published_runs
from shardwright.planner.search.build import single_group_search
from shardwright.planner.search.work_limits import REST, Limits
from shardwright.planner.solve.engine import make_evaluator
from shardwright.planner.solve.garbage_collection import garbage_collection_paused
from shardwright.planner.solve.options import SolveOptions
from shardwright.spec.errors import InfeasibleError, InputError, NotBuiltError

LIMITS = Limits(proof=REST)
"""A good plan of each layout is wanted, and little of its proof, which takes most of a search."""
Rows = tuple[PublishedRun, ...]
"""Rows of one layout: a run that was repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Layouts of one question that ``plan validate`` ranks too."""

    source: str
    layouts: tuple[Rows, ...]

    @property
    def name(self) -> str:
        """The question in words."""
        run = self.layouts[0][0]
        batch = f"batch {run.global_batch} x {run.seq}"
        return f"{self.source}: {run.model} on {run.gpus} x {run.hardware}, {batch}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """A layout with what was measured of it and what the planner predicts of its best plan.

    ``predicted_s`` is None where no plan with the layout fits. ``as_read_s`` is what ``plan
    validate`` predicts, of blocks that are cut evenly; None where that does not fit.
    """

    layout: str
    measured_s: float
    predicted_s: float | None
    as_read_s: float | None


def groups() -> list[Group]:
    """Every group with ``LEAST_LAYOUTS`` layouts or more, in the order of the table."""
    found: dict[tuple[object, ...], dict[tuple[object, ...], list[PublishedRun]]] = {}
    for run in published_runs():
        if _priced(run):
            question = tuple(getattr(run, name) for name in QUESTION_COLUMNS)
            layout = tuple(getattr(run, name) for name in LAYOUT_COLUMNS)
            own = found.setdefault((run.source_name, question), {})
            own.setdefault(layout, []).append(run)
    return [
        Group(source=str(source), layouts=tuple(map(tuple, own.values())))
        for (source, _), own in found.items()
        if len(own) >= LEAST_LAYOUTS
    ]


def _priced(run: PublishedRun) -> bool:
    """Whether ``plan validate`` scores a row: measured in seconds, and a plan of ours."""
    if run.seconds is None and run.tokens_per_s_per_gpu is None:
        return False
    try:
        return _measured(configuration(run)) is not None
    except (InputError, NotBuiltError):
        return False


def _measured(one: Configuration) -> float | None:
    return measured_s(one.run, one.asked.plan.workload.global_batch)


def picked(rows: Rows) -> Pick:
    """What the planner says of a layout: of the best plan that has all that its rows print."""
    one = configuration(rows[0])
    seconds = [_measured(configuration(run)) for run in rows]
    return Pick(
        layout=", ".join(one.pins),
        measured_s=statistics.median(s for s in seconds if s is not None),
        predicted_s=_least_s(one),
        as_read_s=seconds_of(one.as_read) if one.as_read.prediction.feasible else None,
    )


def _least_s(one: Configuration) -> float | None:
    """Seconds of the best plan that the search finds with all that is printed."""
    evaluator = make_evaluator(one.problem, SolveOptions(pins=resolve_pins(one.pins, one.problem)))
    with garbage_collection_paused():
        try:
            return single_group_search(evaluator, LIMITS).run().outcomes[0].step_time_s
        except InfeasibleError:
            return None


def pick_of(picks: Sequence[Pick], as_read: bool = False) -> Pick | None:
    """The layout that the planner takes: the fastest predicted of those that fit.

    Args:
        picks: the layouts of a question.
        as_read: with blanks as ``plan validate`` reads them, instead of the planner's own.
    """
    fits = [
        (seconds, pick.layout, pick)
        for pick in picks
        if (seconds := pick.as_read_s if as_read else pick.predicted_s) is not None
    ]
    return min(fits, default=(0.0, "", None))[2]


def regret(pick: Pick, picks: Sequence[Pick]) -> float:
    """How much slower a layout was measured than the fastest measured one."""
    return pick.measured_s / min(other.measured_s for other in picks) - 1
