"""An explanation: every term of step and memory, with its share.

A step's terms add up to the step time, a stage's memory terms to its reserved bytes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from ...costmodel.explain.saved_results import BlockResult, block_results
from ...costmodel.explain.sensitivity import sensitivities
from ...costmodel.simulation.simulator import Simulation, Simulator
from ...spec.report.report import BREAKDOWN_TERMS, MEMORY_TERMS, MemoryRow, Prediction, Report

TERM_MEANINGS = {
    "matmul": "matrix products of forward and backward",
    "attention": "core attention: scores, softmax, weighted values",
    "elementwise": "norms, activations, residuals, losses: bound by memory bandwidth",
    "recompute": "forward work done again in the backward pass",
    "exposed_tp": "tensor-parallel collectives that hold up the critical stage",
    "exposed_dp": "gradient sums and parameter gathers that computation does not hide",
    "exposed_pp": "messages between stages that hold up the critical one",
    "exposed_cp": "ring and Ulysses exchanges, and moves between layouts, that show",
    "exposed_ep": "expert-parallel exchanges that computation does not hide",
    "bubble": "waiting for other stages",
    "optimizer": "the gradient norm, and the update of parameters and moments",
    "host": "launching and bookkeeping on the host",
    "unattributed": "what no term claims",
}
MEMORY_MEANINGS = {
    "parameters": "weights, and their gathered copies",
    "gradients": "gradients as they accumulate",
    "optimizer": "master weights and moments",
    "activations": "tensors saved for the backward pass",
    "workspace": "buffers of the largest operation",
    "communication": "buffers of the communicators",
    "fragmentation": "what the allocator holds and cannot use",
    "context": "the device's runtime",
}


def term_rows(prediction: Prediction) -> list[dict[str, Any]]:
    """List ``term``, ``seconds``, ``share`` and ``meaning``, adding up to the step."""
    names = [name for name in BREAKDOWN_TERMS if name in prediction.breakdown_s]
    names += [name for name in prediction.breakdown_s if name not in BREAKDOWN_TERMS]
    return [
        {
            "term": name,
            "seconds": prediction.breakdown_s[name],
            "share": prediction.breakdown_s[name] / prediction.step_time_s,
            "meaning": TERM_MEANINGS.get(name, f"what {name} adds, that nothing hides"),
        }
        for name in names
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A report broken down.

    ``critical_stage`` is the stage whose seconds the terms are; ``busy_s`` tells how busy every
    stage is; ``results`` are what a block may keep by name.
    """

    report: Report
    critical_stage: int
    busy_s: tuple[float, ...]
    results: tuple[BlockResult, ...] = ()

    @property
    def terms(self) -> list[dict[str, Any]]:
        """List ``term``, ``seconds``, ``share`` and ``meaning``, adding up to the step."""
        return term_rows(self.report.prediction)

    def memory(self, row: MemoryRow) -> list[dict[str, Any]]:
        """List ``term``, ``bytes`` and ``meaning`` of a stage.

        The sum is its reserved bytes.
        """
        names = [name for name in MEMORY_TERMS if name in row.by]
        names += [name for name in row.by if name not in MEMORY_TERMS]
        return [
            {"term": name, "bytes": row.by[name], "meaning": MEMORY_MEANINGS.get(name, name)}
            for name in names
        ]

    def to_document(self) -> dict[str, Any]:
        """The report's document with an ``explain`` key."""
        document = self.report.to_document()
        document["explain"] = {
            "critical_stage": self.critical_stage,
            "busy_s": list(self.busy_s),
            "terms": self.terms,
            "results": [asdict(row) for row in self.results],
            "memory": [
                {
                    "stage": row.stage,
                    "device_group": row.device_group,
                    "tier": row.tier,
                    "terms": self.memory(row),
                }
                for row in self.report.prediction.memory
            ],
        }
        return document


def explain_report(report: Report, simulation: Simulation, simulator: Simulator) -> Explanation:
    """Explain a simulated plan, with its sensitivities."""
    priced_sensitivities = sensitivities(report.plan, simulator, simulation.step_time_s)
    return Explanation(
        report=replace(report, sensitivities=priced_sensitivities),
        critical_stage=simulation.critical.stage,
        busy_s=tuple(run.busy_s + run.update_s for run in simulation.stages),
        results=tuple(block_results(report.plan, simulator.lowering)),
    )
