"""A pytest plugin that writes down what tests compare: worst figures, not only passes.

Loaded with ``-p figures_plugin`` in a child process. Every line of the file that
``EVIDENCE_FIGURES`` names is a JSON document: the outcome of a test, or a figure of a comparison.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import lowering_check
import pytest
import rank_pools
from plan_cases import Case

from shardwright.costmodel.machine import Machine
from shardwright.costmodel.simulate import Simulator
from shardwright.executor.launch import TRAIN_JOB
from shardwright.spec.codec import from_document
from shardwright.spec.plan import Plan

LIVE_JOB = "rank_jobs:live_bytes"
GLANCE = int(os.environ.get("EVIDENCE_TESTS", "0"))
"""Tests to keep of each function; 0 keeps all."""
_plain_run = rank_pools.RankPool.run
_plain_compare = lowering_check.compare


def write(**document: Any) -> None:
    """One line."""
    with Path(os.environ["EVIDENCE_FIGURES"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(document) + "\n")


def _run(
    self: rank_pools.RankPool, job: str, payload: Any, *arguments: Any, **named: Any
) -> list[Any]:
    found = _plain_run(self, job, payload, *arguments, **named)
    if job == TRAIN_JOB and isinstance(found[0], dict) and "verify" in found[0]:
        dtype = from_document(Plan, payload["plan"], "plan").workload.dtype.param
        verified = found[0]["verify"]
        write(figure=f"gradient difference, {dtype}", value=verified["max_rel_grad_diff"])
        write(figure=f"loss difference, {dtype}", value=verified["max_rel_loss_diff"])
    if job == LIVE_JOB:
        _note_bytes(payload, found)
    return found


def _note_bytes(payload: dict[str, Any], found: list[dict[str, Any]]) -> None:
    plan = from_document(Plan, payload["plan"], "plan")
    stack = lowering_check.executor_stack(payload.get("flash", True))
    simulation = Simulator.for_plan(plan, Machine(plan.cluster), stack).run(plan)
    if simulation is None:
        raise RuntimeError("a simulation without a limit ends")
    predicted = [row.allocated_bytes for row in simulation.memory]
    errors = [
        abs(predicted[rank["stage"]] / peak - 1) for rank in found for peak in rank["peak_bytes"]
    ]
    write(figure="live bytes against the simulated peak", value=max(errors))


def _compare(case: Case, plan: Plan, record: dict[str, Any]) -> lowering_check.Comparison:
    found = _plain_compare(case, plan, record)
    write(
        figure="FLOPs of a run that the lowering lacks",
        value=abs(1 - found.lowered_flops / found.recorded_flops),
    )
    write(
        figure="bytes of a run that the lowering lacks",
        value=1 - found.matched_bytes / found.recorded_bytes,
    )
    write(
        figure="kernels and collectives that only one side names",
        value=float(len(found.kernels_apart) + len(found.collectives_apart)),
    )
    return found


# Before any test module asks for them.
rank_pools.RankPool.run = _run  # type: ignore[method-assign]
lowering_check.compare = _compare


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep a few tests of each function where only a glance is wanted."""
    if not GLANCE:
        return
    seen: dict[str, int] = {}
    for item in items.copy():
        function = item.nodeid.partition("[")[0]
        seen[function] = seen.get(function, 0) + 1
        if seen[function] > GLANCE:
            items.remove(item)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """The outcome of each test: of its call, or of a setup that did not get so far."""
    if report.when == "call" or report.outcome != "passed":
        said = report.longreprtext.strip().splitlines()[-1:] if report.failed else []
        write(test=report.nodeid, outcome=report.outcome, why="".join(said))
