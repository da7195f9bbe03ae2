"""Published configurations against our plans: figures and tables of ``published_picks``."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from harness.shapes import Row, Table, judged
from harness.work import Work
from published.published_plans import (
    Configuration,
    adds_up,
    gains,
    published,
    read_all,
    searched,
    seconds_of,
)

DRAWN = {"Megatron-Bridge": 24, "MLPerf": 8}
"""Questions of each publisher in the short form."""
SHARE = 0.95
ROUNDING = 1e-9
AT_A_GLANCE = 1
SHOWN = 4
"""Terms and rows that are named in a cell."""
ENDED = "OOM"
"""Word in the notes of runs that ended for lack of memory."""


def planned(work: Work, publisher: str) -> dict[str, Any]:
    """Every question of a publisher, planned anew, with its configurations."""
    runs = published(publisher)
    questions, refused = read_all(runs)
    by_key = {f"question {question[0].ids[0]}": question for question in questions}
    keys = work.sample(list(by_key), DRAWN[publisher], AT_A_GLANCE)
    ended = {run.id for run in runs if ENDED in run.notes}
    return {
        "rows": len(runs),
        "refused": {reason: [run.id for run in rows] for reason, rows in refused.items()},
        "ended": ended,
        "questions": work.pieces(keys, lambda key: _plan_of(by_key[key])),
    }


def _plan_of(question: Sequence[Configuration]) -> dict[str, Any]:
    """Our plan of a question, and its gains over each configuration."""
    run, ours = question[0].run, searched(question[0].problem)
    configurations = []
    for one in question:
        theirs = one.theirs
        piece: dict[str, Any] = {
            "ids": one.ids,
            "layout": ", ".join(one.pins),
            "fits_as_read": one.as_read.prediction.feasible,
            "step_s": None if theirs is None else seconds_of(theirs),
        }
        if ours is not None and theirs is not None:
            gained = gains(ours, theirs)
            piece |= {"gains_s": gained, "adds_up": adds_up(gained, ours, theirs)}
        configurations.append(piece)
    dtype = question[0].asked.plan.workload.dtype.shorthand
    what = f"{run.model}, {run.gpus} x {run.hardware}, {dtype}, {run.global_batch} x {run.seq}"
    search = None if ours is None else ours.search
    return {
        "what": what,
        "step_s": None if ours is None else seconds_of(ours),
        "gap": None if search is None else search.gap,
        "left_out": [] if search is None else [item["what"] for item in search.left_out],
        "configurations": configurations,
    }


def _each(planned_rows: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return [(q, c) for q in planned_rows["questions"] for c in q["configurations"]]


def figures(publisher: str, planned_rows: dict[str, Any]) -> list[Row]:
    """Shares that are expressible, feasible and no slower in our plan."""
    refused = sum(map(len, planned_rows["refused"].values()))
    rows, expressed = planned_rows["rows"], planned_rows["rows"] - refused
    ran = [(c, set(c["ids"]) - planned_rows["ended"]) for _, c in _each(planned_rows)]
    count = sum(len(ids) for _, ids in ran)
    fits = sum(len(ids) for c, ids in ran if c["step_s"] is not None)
    read = sum(len(ids) for c, ids in ran if c["fits_as_read"])
    compared = [(q, c) for q, c in _each(planned_rows) if c["step_s"] is not None]
    slower = [c["ids"][0] for q, c in compared if not _no_slower(q, c)]
    sums = sum(bool(c.get("adds_up")) for _, c in compared)
    ratios = [c["step_s"] / q["step_s"] for q, c in compared if q["step_s"] is not None]
    middle = statistics.median(ratios) if ratios else float("nan")
    return [
        judged(
            f"{publisher}: rows that print a layout and are plans of ours, no field dropped",
            f"{expressed} of {rows} ({expressed / rows:.1%})",
            f"at least {SHARE:.0%}",
            expressed >= SHARE * rows,
            rows=rows,
            said=expressed,
        ),
        judged(
            f"{publisher}: of those that ran, judged feasible in memory",
            f"{fits} of {count} ({fits / count:.1%}), blanks being the planner's to choose; "
            f"{read} with blanks as plan validate reads them",
            f"at least {SHARE:.0%}",
            fits >= SHARE * count,
            ran=count,
            fits=fits,
            fits_as_read=read,
        ),
        judged(
            f"{publisher}: our plan no slower under the same prices",
            f"{len(compared) - len(slower)} of {len(compared)} configurations, "
            f"{len(planned_rows['questions'])} questions; theirs take {middle:.2f} times as long "
            "(median)" + (f"; slower: {', '.join(slower[:SHOWN])}" if slower else ""),
            "all of them",
            not slower,
            configurations=len(compared),
            slower=slower,
            median_ratio=middle,
        ),
        judged(
            f"{publisher}: gains by term that add up to the difference of the steps",
            f"{sums} of {len(compared)}",
            "all of them",
            sums == len(compared),
        ),
    ]


def _no_slower(question: dict[str, Any], one: dict[str, Any]) -> bool:
    ours: float | None = question["step_s"]
    return ours is not None and ours <= float(one["step_s"]) * (1 + ROUNDING)


def plan_table(publisher: str, planned_rows: dict[str, Any]) -> Table:
    """A line a configuration."""
    rows = []
    for question, one in _each(planned_rows):
        ours, theirs = question["step_s"], one["step_s"]
        terms = one.get("gains_s", {})
        largest = sorted(terms, key=lambda term: -abs(terms[term]))[:SHOWN]
        rows.append(
            (
                ", ".join(one["ids"][:SHOWN]) + (" …" if len(one["ids"]) > SHOWN else ""),
                question["what"],
                one["layout"],
                "none fits" if theirs is None else f"{theirs:.4g}",
                "none fits" if ours is None else f"{ours:.4g}",
                "" if question["gap"] is None else f"{question['gap']:.1%}",
                ", ".join(f"{t} {terms[t]:+.3g}" for t in largest if terms[t]),
            )
        )
    columns = ("rows", "question", "printed", "theirs s", "ours s", "gap", "gain by term, s")
    return Table(title=f"{publisher}: theirs and ours, same prices", columns=columns, rows=rows)


def term_table(plans: Mapping[str, dict[str, Any]]) -> Table:
    """Mean gain of each term, as a share of their step."""
    shares: dict[str, dict[str, list[float]]] = {}
    for publisher, planned_rows in plans.items():
        for _, one in _each(planned_rows):
            for term, seconds in one.get("gains_s", {}).items():
                by_publisher = shares.setdefault(term, {})
                by_publisher.setdefault(publisher, []).append(seconds / one["step_s"])
    rows = [
        (term, *(f"{statistics.fmean(by_publisher.get(p, [0.0])):+.2%}" for p in plans))
        for term, by_publisher in shares.items()
    ]
    return Table(title="Mean gain by term, of their step", columns=("term", *plans), rows=rows)


def left_out_table(plans: Mapping[str, dict[str, Any]]) -> Table:
    """Rows without a plan of ours or a fit; unsearched choices."""
    rows = []
    for publisher, planned_rows in plans.items():
        for reason, ids in planned_rows["refused"].items():
            rows.append((publisher, "no plan of ours", reason, ", ".join(ids)))
        for _, one in _each(planned_rows):
            if one["step_s"] is None:
                rows.append((publisher, "does not fit", one["layout"], ", ".join(one["ids"])))
        counted = Counter(what for q in planned_rows["questions"] for what in q["left_out"])
        rows += [(publisher, "not searched", w, f"{n} questions") for w, n in counted.items()]
    return Table(title="Left out", columns=("publisher", "how", "what", "rows"), rows=rows)
