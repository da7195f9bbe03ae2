"""The report of all stages, as a JSON document and a page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpu.child import WHOLE, good, rows_of
from gpu.stage import Claim, Stage, Values, Verdict
from harness.shapes import Row, Table, judged, unmeasured

from shardwright.spec.codec import write_atomically

VERSION = 1


def document(
    stages: Sequence[Stage], out: Path, mark: str, about: Mapping[str, Any], reduced: bool
) -> dict[str, Any]:
    """Everything that is known so far, JSON-ready.

    Args:
        stages: all of them, measured or not.
        out: folder of the rows.
        mark: identity of the rows.
        about: device, versions, date, commit.
        reduced: whether it is the form that judges nothing.
    """
    parts = {stage.name: _stage(stage, out, mark, reduced) for stage in stages}
    return {"schema_version": VERSION, "reduced": reduced, **about, "stages": parts}


def _stage(stage: Stage, out: Path, mark: str, reduced: bool) -> dict[str, Any]:
    rows = rows_of(out, stage.name, mark)
    results, planned = rows.results(), rows.planned()
    values = good(rows)
    keys = [key for key in results if key in planned or key == WHOLE]
    failed = {key: results[key].why for key in keys if results[key].status == "failed"}
    if planned and values.keys() >= set(planned):
        failed.pop(WHOLE, None)  # it did get through in the end
    return {
        "shows": stage.shows,
        "seconds": round(sum(result.seconds for result in results.values()), 1),
        "rows": {key: values[key] for key in planned if key in values},
        "failed": failed,
        "left_out": [key for key in planned if key not in results],
        "tables": [asdict(table) for table in stage.tables(values)] if values else [],
        "claims": [asdict(judged_row(claim, values, reduced)) for claim in stage.claims],
    }


def judged_row(claim: Claim, values: Mapping[str, Values], reduced: bool) -> Row:
    """A claim as a row: PASS, MISS, or UNMEASURED with a reason."""
    if reduced:
        return unmeasured(claim.name, "nothing is judged on a CPU")
    verdict = claim.judge(values) if values else "not measured"
    if isinstance(verdict, Verdict):
        return judged(claim.name, verdict.figure, claim.target, verdict.met, **verdict.values)
    return unmeasured(claim.name, verdict)


def write(report: Mapping[str, Any], out: Path) -> str:
    """Write the report and each stage's files atomically; return the page."""
    write_atomically(out / "report.json", _json(report))
    for name, part in report["stages"].items():
        if part["rows"] or part["failed"]:
            write_atomically(out / f"{name}.json", _json(part))
            write_atomically(out / f"{name}.md", "\n".join(_section(name, part)) + "\n")
    page = markdown(report)
    write_atomically(out / "report.md", page)
    return page


def _json(part: Mapping[str, Any]) -> str:
    return json.dumps(part, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def markdown(report: Mapping[str, Any]) -> str:
    """The whole report as a page."""
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    lines = [f"# GPU report: {report['device']}", ""]
    if report["reduced"]:
        lines += ["The reduced form: it shows that the report runs, and judges nothing.", ""]
    lines += [f"- {report['date']}, commit {report['commit']}", f"- {versions}"]
    if "driver" in report:
        lines.append(f"- driver {report['driver']}, CUDA {report['cuda']}")
    for name, part in report["stages"].items():
        lines += ["", *_section(name, part)]
    return "\n".join(lines) + "\n"


def _section(name: str, part: Mapping[str, Any]) -> list[str]:
    lines = [f"## {name}", "", part["shows"]]
    if part["claims"]:
        lines += ["", _line(["", "figure", "target", "outcome"]), _line(["---"] * 4)]
        names = ("name", "figure", "target", "outcome")
        lines += [_line([str(row[n]) for n in names]) for row in part["claims"]]
    for table in part["tables"]:
        lines += ["", *_table(Table(**table))]
    for key, why in part["failed"].items():
        lines += ["", f"- failed: {key}: {why}"]
    if part["left_out"]:
        lines += ["", f"- left out, the budget was spent: {', '.join(part['left_out'])}"]
    return lines


def _table(table: Table) -> list[str]:
    lines = [f"**{table.title}**", "", _line(table.columns), _line(["---"] * len(table.columns))]
    return lines + [_line(row) for row in table.rows]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
