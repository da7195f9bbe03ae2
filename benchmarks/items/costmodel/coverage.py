"""Share of published runs that ``plan simulate`` can express, with reasons."""

from __future__ import annotations

from collections import Counter
from typing import Any

from harness.shapes import PLANNING, Evidence, Item, Row, Table, judged, reported
from harness.work import Work

from shardwright.api.validation.published_run import qualifies, simulate_run, simulation_arguments
from shardwright.datasets.published.runs import PublishedRun, published_runs
from shardwright.spec.errors import InputError, NotBuiltError

LEAST = 0.95
EVERY = 10
"""At a glance one row in so many."""
SHOWN = 3


def run(work: Work) -> Evidence:
    """Ask every row that has the sizes, source by source."""
    rows: dict[str, list[PublishedRun]] = {}
    for row in filter(qualifies, published_runs()):
        rows.setdefault(row.source_name, []).append(row)
    every = work.sized(1, EVERY)
    pieces = work.pieces(list(rows), lambda source: _source(rows[source][::every]))
    return Evidence(
        rows=[_share(pieces), _fits(pieces)],
        tables=[_by_source(list(rows), pieces), _reasons(pieces), _assumed(pieces)],
    )


def _source(runs: list[PublishedRun]) -> dict[str, Any]:
    """Rows of a source: expressed, legal plans, and refusals with reasons."""
    counts: dict[str, Any] = {"rows": len(runs), "said": 0, "even_cuts": 0, "fits": 0}
    refused: dict[str, list[str]] = {}
    assumed: Counter[str] = Counter()
    for one in runs:
        try:
            question = simulation_arguments(one)
            report = simulate_run(question)
        except (InputError, NotBuiltError) as error:
            refused.setdefault(reason_of(one, error), []).append(one.id)
            continue
        counts["said"] += 1
        counts["even_cuts"] += question.even_cuts
        counts["fits"] += report.prediction.feasible
        assumed.update({note.path for note in question.assumed})
    return {**counts, "refused": refused, "assumed": assumed}


def reason_of(run: PublishedRun, error: Exception) -> str:
    """The reason without the row's name, so that equal ones add up."""
    return str(error).removeprefix(f"{run.id}: ").removeprefix("--")


def _share(pieces: list[dict[str, Any]]) -> Row:
    rows, expressed = (sum(piece[key] for piece in pieces) for key in ("rows", "said"))
    plans = sum(piece["even_cuts"] for piece in pieces)
    return judged(
        "published runs that plan simulate prices",
        f"{expressed} of {rows} ({expressed / rows:.1%}); {plans} of them as plans, "
        "their layers cut evenly",
        f"{LEAST:.0%}",
        expressed >= LEAST * rows,
        rows=rows,
        said=expressed,
        even_cuts=plans,
    )


def _fits(pieces: list[dict[str, Any]]) -> Row:
    expressed, fits = (sum(piece[key] for piece in pieces) for key in ("said", "fits"))
    return reported(
        "of them, predicted to fit their devices (all did run)",
        f"{fits} of {expressed} ({fits / expressed:.1%})",
        said=expressed,
        fits=fits,
    )


def _by_source(names: list[str], pieces: list[dict[str, Any]]) -> Table:
    rows = [
        (name, str(p["rows"]), str(p["said"]), str(p["even_cuts"]), str(p["fits"]))
        for name, p in zip(names, pieces, strict=True)
    ]
    columns = ("source", "rows", "said", "of them as plans", "predicted to fit")
    return Table(title="By source", columns=columns, rows=rows)


def _reasons(pieces: list[dict[str, Any]]) -> Table:
    refused: dict[str, list[str]] = {}
    for piece in pieces:
        for reason, ids in piece["refused"].items():
            refused.setdefault(reason, []).extend(ids)
    rows = [
        (str(len(ids)), reason, ", ".join(ids[:SHOWN]))
        for reason, ids in sorted(refused.items(), key=lambda item: (-len(item[1]), item[0]))
    ]
    return Table(title="Refused, by reason", columns=("rows", "reason", "such as"), rows=rows)


def _assumed(pieces: list[dict[str, Any]]) -> Table:
    total: Counter[str] = sum((Counter(piece["assumed"]) for piece in pieces), Counter())
    expressed = sum(piece["said"] for piece in pieces)
    rows = [(path, f"{count} of {expressed}") for path, count in total.most_common()]
    return Table(title="Not printed, so assumed", columns=("what", "rows"), rows=rows)


ITEM = Item(
    name="coverage",
    shows="Published runs of every family and machine can be said to plan simulate.",
    target=(
        "at least 95 % of the rows with layers, hidden, heads, sequence, micro-batch, tp and a "
        "measured figure; no accuracy is asked."
    ),
    run=run,
    reads=(*PLANNING, "api", "profiler"),
)
