"""Published configurations as plans of ours: read, completed, and held against our own plan.

A configuration is what a row prints. What it leaves blank (recomputation, sharding, sequence
parallelism, schedule, cuts) is the planner's to choose: a search under pins on what is printed.
Degrees that are blank are 1, as ``plan validate`` reads them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from shardwright.api.planning.report import solution_report
from shardwright.api.problem.pins import resolve_pins
from shardwright.api.validation.published_model import MEMORY_FORMATS
from shardwright.api.validation.published_run import PlannedRun, planned_run, simulation_arguments
from shardwright.datasets.published.names import source_entry
from shardwright.datasets.published.runs import PublishedRun, published_runs
from shardwright.planner.solve.options import SolveOptions
from shardwright.planner.solve.problem import Problem
from shardwright.planner.solve.solve import solve
from shardwright.spec.errors import InfeasibleError, InputError, NotBuiltError
from shardwright.spec.report.report import Report

PUBLISHERS = {"Megatron-Bridge": ("bridge", "bskill"), "MLPerf": ("mlperf",)}
"""Who published configurations, and the short names of their sources."""
LAYOUT = ("tp", "pp", "micro_batch")
"""A row without these prints no configuration."""
DEGREES = ("tp", "pp", "vpp", "cp")


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """One layout of one question, and the rows that print it; the first is ``run``."""

    run: PublishedRun
    ids: tuple[str, ...]
    asked: PlannedRun
    pins: tuple[str, ...]

    @property
    def problem(self) -> Problem:
        """The question: model, cluster, batch, sequence, formats, stack."""
        return self.asked.problem

    @cached_property
    def as_read(self) -> Report:
        """What ``plan simulate`` says where blanks are filled as ``plan validate`` fills them."""
        return self.asked.simulate_run()

    @cached_property
    def completed(self) -> Report | None:
        """The best plan that has all that is printed; None where none fits."""
        return searched(self.problem, self.pins)

    @property
    def theirs(self) -> Report | None:
        """The fastest plan known that has all that is printed and fits; None if there is none."""
        read = self.as_read if self.as_read.prediction.feasible else None
        found = [report for report in (read, self.completed) if report is not None]
        return min(found, key=seconds_of, default=None)


def seconds_of(report: Report) -> float:
    """Simulated seconds of a step."""
    return report.prediction.step_time_s


def searched(problem: Problem, pins: Sequence[str] = ()) -> Report | None:
    """What ``plan`` answers; None where nothing fits."""
    try:
        solution = solve(problem, SolveOptions(pins=resolve_pins(pins, problem), top=0))
    except InfeasibleError:
        return None
    return solution_report(problem, solution)


def pins_of(run: PublishedRun, model_has_experts: bool) -> tuple[str, ...]:
    """What a row prints, as pins."""
    degrees = {name: getattr(run, name) or 1 for name in DEGREES}
    split = degrees["tp"] * degrees["pp"] * degrees["cp"]
    pins = degrees | {"dp": run.dp or (run.gpus or 0) // split, "micro_batch": run.micro_batch}
    if model_has_experts:
        pins["ep"] = run.ep or 1
    texts = [f"{name}={value}" for name, value in pins.items()]
    if run.zero is not None:
        texts.append(f"shard=zero{run.zero}")
    return tuple(texts)


def configuration(run: PublishedRun, as_kept: bool = False) -> Configuration:
    """A row as a configuration.

    Args:
        run: the row.
        as_kept: with what its source keeps in memory, where that is known.

    Raises:
        InputError: it cannot be said as a plan of ours.
        NotBuiltError: it has what this version does not serve.
    """
    question = simulation_arguments(run)
    if as_kept:
        known = source_entry(run).get("of_memory", {})
        question = replace(question, of_memory={n: known[n] for n in MEMORY_FORMATS if n in known})
    pins = pins_of(run, bool(run.experts))
    if run.recompute:
        pins = (*pins, f"recompute={question.arguments['recompute']}")
    asked = planned_run(question)
    return Configuration(run=run, ids=(run.id,), asked=asked, pins=pins)


def published(publisher: str) -> list[PublishedRun]:
    """The rows of a publisher that print a layout."""
    names = PUBLISHERS[publisher]
    return [
        run
        for run in published_runs()
        if run.source_name in names and all(getattr(run, name) for name in LAYOUT)
    ]


def read_all(
    runs: Iterable[PublishedRun],
) -> tuple[list[list[Configuration]], dict[str, list[PublishedRun]]]:
    """Rows as configurations, those of one question together; and those refused, by reason."""
    found: dict[tuple[object, ...], dict[tuple[object, ...], Configuration]] = {}
    refused: dict[str, list[PublishedRun]] = {}
    for run in runs:
        try:
            one = configuration(run, as_kept=True)
        except (InputError, NotBuiltError) as error:
            reason = str(error).removeprefix(f"{run.id}: ").removeprefix("--")
            refused.setdefault(reason, []).append(run)
            continue
        plan = one.asked.plan
        question = (plan.model, plan.cluster, plan.workload, one.problem.stack)
        own = found.setdefault(question, {})
        key = (plan.hash, one.pins)
        known = own.get(key)
        own[key] = replace(known, ids=(*known.ids, run.id)) if known else one
    return [[*own.values()] for own in found.values()], refused


def gains(ours: Report, theirs: Report) -> dict[str, float]:
    """Seconds of each term that our plan spares; negative where it takes more."""
    mine, other = (dict(report.prediction.breakdown_s) for report in (ours, theirs))
    return {term: other.get(term, 0.0) - mine.get(term, 0.0) for term in {**other, **mine}}


def adds_up(found: Mapping[str, float], ours: Report, theirs: Report) -> bool:
    """Whether the gains by term are the difference of the two steps."""
    whole = seconds_of(theirs) - seconds_of(ours)
    return math.isclose(sum(found.values()), whole, rel_tol=0, abs_tol=1e-9 * seconds_of(theirs))
