"""Evidence tier of the tests: parity, lowering and live bytes of plans.

The long form runs every test of the tier, each file as a process. The short form draws parametrized
cases and long tests of the tables in ``runner.sampled`` and runs them in one process, so that pools
of ranks stay warm; files run in a drawn order, and no test begins after the time limit.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from harness.paths import BENCHMARKS, ROOT, SUPPORT
from harness.processes import ran
from harness.shapes import EVERYTHING, Evidence, Item, Row, Table, judged, reported
from harness.work import Work
from runner.sampled import EVERY, LONG, table_name

MARK = "@pytest.mark.evidence"
PLUGIN = "support.figures_plugin"
SAMPLED = {*EVERY, *LONG}
"""Test files with cases or tests that only this tier runs."""
CASES, GLANCE = 400, 8
"""Cases of the short form."""
LIMIT_S = 480
BOUNDS = {
    "gradient difference, fp32": 5e-6,
    "loss difference, fp32": 1e-5,
    "live bytes against the simulated peak": 0.02,
    "FLOPs of a run that the lowering lacks": 0.0,
    "bytes of a run that the lowering lacks": 0.01,
    "kernels and collectives that only one side names": 0.0,
}
"""Largest allowed values, those of the tests; a figure without one is reported."""


def run(work: Work) -> Evidence:
    """Run the tests, and gather what they compare."""
    if work.full:
        names = _test_files()
        pieces = work.pieces(names, lambda name: _tested([name], {}))
        rows = [_file_row(name, piece) for name, piece in zip(names, pieces, strict=True)]
    else:
        drawn = work.sized(CASES, GLANCE)
        pieces = work.pieces(["drawn"], lambda _: _drawn(drawn, work.seed))
        rows = [_drawn_row(pieces[0], drawn)]
    figures: dict[str, list[float]] = {}
    for piece in pieces:
        for name, values in piece["figures"].items():
            figures.setdefault(name, []).extend(values)
    rows += [_figure_row(name, values) for name, values in sorted(figures.items())]
    failures = [(test, why) for piece in pieces for test, why in piece["failures"]]
    for test, why in failures:
        work.say(f"failed: {test}: {why}")
    tables = [Table(title="What failed", columns=("test", "why"), rows=failures)]
    return Evidence(rows=rows, tables=tables if failures else [])


def _test_files() -> list[str]:
    return [
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if table_name(path) in SAMPLED or MARK in path.read_text(encoding="utf-8")
    ]


def _drawn(count: int, seed: int) -> dict[str, Any]:
    names = [f"tests/{name}" for name in sorted(SAMPLED)]
    random.Random(f"files {seed}").shuffle(names)
    return _tested(names, {"EVIDENCE_CASES": str(count), "EVIDENCE_SEED": str(seed),
                           "EVIDENCE_LIMIT_S": str(LIMIT_S)})  # fmt: skip


def _tested(names: list[str], settings: dict[str, str]) -> dict[str, Any]:
    """Outcomes and figures of one pytest process."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "figures.jsonl")
        log.touch()
        paths = [str(BENCHMARKS), str(SUPPORT), os.environ.get("PYTHONPATH", "")]
        environment = {
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            "EVIDENCE_FIGURES": str(log),
            **settings,
        }
        command = [sys.executable, "-m", "pytest", "-q", "-m", "evidence", "-p", PLUGIN]
        done = ran([*command, *names], environment)
        lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    outcomes = {line["test"]: line["outcome"] for line in lines if "test" in line}
    if not outcomes or done.code not in (0, 1, 2):
        output = (done.out.decode(errors="replace").strip() or done.err.strip()).splitlines()
        raise RuntimeError(
            f"pytest {names[0]} exited with {done.code}: {output[-1] if output else ''}"
        )
    figures: dict[str, list[float]] = {}
    for line in lines:
        if "figure" in line:
            figures.setdefault(line["figure"], []).append(line["value"])
    return {
        "counts": Counter(outcomes.values()),
        "failures": [(x["test"], x["why"]) for x in lines if x.get("outcome") == "failed"],
        "figures": figures,
        "seconds": done.wall_s,
    }


def _drawn_row(piece: dict[str, Any], drawn: int) -> Row:
    counts = piece["counts"]
    passed, failed = counts.get("passed", 0), counts.get("failed", 0)
    skipped = counts.get("skipped", 0)
    left = drawn - passed - failed - skipped
    figure = f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else "")
    late = f"; {left} of {drawn} not begun within {LIMIT_S} s" if left > 0 else ""
    return judged(
        "cases drawn from the tables",
        f"{figure}, {piece['seconds']:.0f} s{late}",
        "all pass",
        not failed and passed > 0,
        passed=passed,
        failed=failed,
        skipped=skipped,
        not_begun=left,
    )


def _file_row(name: str, piece: dict[str, Any]) -> Row:
    counts = piece["counts"]
    passed, failed = counts.get("passed", 0), counts.get("failed", 0)
    skipped = counts.get("skipped", 0)
    figure = f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else "")
    return judged(
        name,
        f"{figure}, {piece['seconds']:.0f} s",
        "all pass",
        not failed and passed > 0,
        passed=passed,
        failed=failed,
        skipped=skipped,
    )


def _figure_row(name: str, values: list[float]) -> Row:
    ordered = sorted(values)
    median, worst = ordered[len(ordered) // 2], ordered[-1]
    figure = f"worst {worst:.2g}, median {median:.2g} of {len(ordered)} comparisons"
    numbers = {"worst": worst, "median": median, "comparisons": len(ordered)}
    if name not in BOUNDS:
        return reported(name, figure, **numbers)
    return judged(name, figure, f"at most {BOUNDS[name]:g}", worst <= BOUNDS[name], **numbers)


ITEM = Item(
    name="distributed",
    shows="Random plans on real ranks equal the reference, and what the cost model says of them.",
    target="400 cases of the tables pass, drawn; as many as begin within 480 s.",
    full_target=(
        "every test of the evidence tier passes, among them 210 plans for parity, 80 for the "
        "lowering and 60 for live bytes."
    ),
    run=run,
    reads=(*EVERYTHING, *_test_files(), "tests/conftest.py", "tests/distributed/conftest.py",
           "tests/support", "pyproject.toml", "benchmarks/support/figures_plugin.py"),
)  # fmt: skip
