"""A pytest plugin that logs the figures that tests compare.

Loaded with ``-p`` in a child process. Every line of the file that ``EVIDENCE_FIGURES`` names is a
JSON document: the outcome of a test, or a figure of a comparison. With ``EVIDENCE_CASES`` only so
many parametrized cases and long tests of the evidence tier run, drawn by ``EVIDENCE_SEED``, and
none begins after ``EVIDENCE_LIMIT_S`` seconds.
"""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest
from checks import live_bytes_check, lowering_check
from generators.family_cases import FamilyCase
from generators.plan_cases import Case
from ranks import rank_pools
from runner.sampled import is_long

from shardwright.executor.launch.pool import TRAIN_JOB
from shardwright.spec.codec import from_document
from shardwright.spec.plan.plan import Plan

CASES = int(os.environ.get("EVIDENCE_CASES", "0"))
"""Cases to draw; 0 keeps all tests."""
SEED = os.environ.get("EVIDENCE_SEED", "0")
END_S = time.monotonic() + float(os.environ.get("EVIDENCE_LIMIT_S", "inf"))
_plain_run = rank_pools.RankPool.run
_plain_compare = lowering_check.compare
_plain_equal = lowering_check.check_kernels_equal
_plain_apart = live_bytes_check.peak_apart


def write(**document: Any) -> None:
    """One line."""
    with Path(os.environ["EVIDENCE_FIGURES"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(document) + "\n")


def _run(
    self: rank_pools.RankPool, job: str, payload: Any, *arguments: Any, **named: Any
) -> list[Any]:
    results = _plain_run(self, job, payload, *arguments, **named)
    if job == TRAIN_JOB and isinstance(results[0], dict) and "verify" in results[0]:
        dtype = from_document(Plan, payload["plan"], "plan").workload.dtype.param
        verified = results[0]["verify"]
        write(figure=f"gradient difference, {dtype}", value=verified["max_rel_grad_diff"])
        write(figure=f"loss difference, {dtype}", value=verified["max_rel_loss_diff"])
    return results


def _apart(predicted_bytes: float, peak_bytes: float) -> float:
    difference = _plain_apart(predicted_bytes, peak_bytes)
    write(figure="live bytes against the simulated peak", value=difference)
    return difference


def _compare(
    case: Case | FamilyCase, plan: Plan, record: dict[str, Any], *more: Any, **named: Any
) -> lowering_check.Comparison:
    comparison = _plain_compare(case, plan, record, *more, **named)
    write(
        figure="FLOPs of a run that the lowering lacks",
        value=abs(comparison.recorded_flops - comparison.lowered_flops)
        / max(1, comparison.recorded_flops),
    )
    return comparison


def _equal(found: lowering_check.Comparison, rank: int) -> None:
    write(
        figure="bytes of a run that the lowering lacks",
        value=1 - found.matched_bytes / found.recorded_bytes,
    )
    write(
        figure="kernels and collectives that only one side names",
        value=float(len(found.kernels_apart) + len(found.collectives_apart)),
    )
    _plain_equal(found, rank)


# Before any test module asks for them.
rank_pools.RankPool.run = _run  # type: ignore[method-assign]
lowering_check.compare = _compare
lowering_check.check_kernels_equal = _equal
live_bytes_check.peak_apart = _apart


@pytest.hookimpl(trylast=True)  # after the tables have given most of their cases to this tier
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Draw parametrized cases and long tests, in place."""
    if not CASES:
        return
    cases = [item for item in items if hasattr(item, "callspec") or is_long(item)]
    numbers = random.Random(f"cases {SEED}").sample(range(len(cases)), min(CASES, len(cases)))
    items[:] = [cases[number] for number in sorted(numbers)]


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Let no test begin after the limit."""
    if time.monotonic() > END_S:
        item.session.shouldstop = "the time is up"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Log the outcome of each test's call, or of its failed setup."""
    if report.when == "call" or report.outcome != "passed":
        last_line = report.longreprtext.strip().splitlines()[-1:] if report.failed else []
        write(test=report.nodeid, outcome=report.outcome, why="".join(last_line))
