"""Judged rows of a committed report, or the reason for none."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.shapes import Evidence, Row, Table, reported, unmeasured

REPORTS = Path(__file__).resolve().parent / "reports"
NO_REPORT = "no GPU was at hand: `make gpu-report` measures it"
SEVERAL = {
    "a run over NCCL": "unmeasured, runs on >= 2 GPUs; the same code path runs over gloo",
    "explicit prefetch of sharded parameters": (
        "unmeasured, runs on >= 2 GPUs, where copies and kernels overlap"
    ),
    "links between GPUs, alone and together": "unmeasured, runs on >= 2 GPUs",
    "exchanges of experts' rows, flat and by node, in chunks": "unmeasured, runs on >= 2 GPUs",
    "predicted against measured on several GPUs": (
        "unmeasured, runs on >= 2 GPUs; see `published` for runs of others"
    ),
}
"""Beyond one GPU."""


def newest_report(folder: Path = REPORTS) -> Path | None:
    """The latest committed report, if any; files are DEVICE-DATE.json."""
    reports = sorted(folder.glob("*.json"), key=lambda path: (path.stem[-10:], path.stem))
    return reports[-1] if reports else None


def to_results(
    path: Path | None, claims: Sequence[tuple[str, str]], families: Sequence[str] = ()
) -> Evidence:
    """The rows and tables of a report.

    Args:
        path: of a ``report.json``; None where there is none.
        claims: name and target of everything that a report judges.
        families: of kernels that no claim names: what is not measured of them is said, too.
    """
    several = [unmeasured(name, why) for name, why in SEVERAL.items()]
    if path is None:
        rows = [Row(name=n, figure=NO_REPORT, target=t, outcome="UNMEASURED") for n, t in claims]
        rows += [unmeasured(_row_of(family), NO_REPORT) for family in families]
        return Evidence(rows=[*rows, *several])
    report = json.loads(path.read_text(encoding="utf-8"))
    if report["reduced"]:
        raise ValueError(f"{path.name} is of the reduced form, which judges nothing")
    parts = report["stages"]
    judged_rows = {row["name"]: Row(**row) for part in parts.values() for row in part["claims"]}
    rows = [
        judged_rows.get(
            name, Row(name=name, figure="not in the report", target=t, outcome="UNMEASURED")
        )
        for name, t in claims
    ]
    measured = parts.get("kernels", {}).get("rows", {})
    rows += [
        unmeasured(_row_of(family), "not in the report")
        for family in families
        if not any(key.startswith(f"{family} ") for key in measured)
    ]
    tables = [Table(**table) for part in parts.values() for table in part["tables"]]
    return Evidence(rows=[_about(path, report), *rows, *several], tables=[*tables, *_gaps(parts)])


def _row_of(family: str) -> str:
    return f"kernels of the family {family}"


def _about(path: Path, report: dict[str, Any]) -> Row:
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    driver = f"driver {report['driver']}, " if "driver" in report else ""
    figure = f"{report['device']}, {report['date']}, commit {report['commit']}, {driver}{versions}"
    return reported(f"measured on ({path.name})", figure)


def _gaps(parts: dict[str, Any]) -> list[Table]:
    """Rows that failed or were left out."""
    rows = [(name, key, why) for name, p in parts.items() for key, why in p["failed"].items()]
    rows += [
        (name, key, "the budget was spent") for name, p in parts.items() for key in p["left_out"]
    ]
    if not rows:
        return []
    return [Table(title="Not measured", columns=("stage", "row", "why"), rows=rows)]
