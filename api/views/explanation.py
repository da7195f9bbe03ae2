"""An explanation: every term of step and memory, with its share.

A step's terms add up to the step time, a stage's memory terms to its reserved bytes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from ...costmodel.explain.beside import BesideWork, beside_work
from ...costmodel.explain.hidden_collectives import LayerOverlap, layer_overlaps
from ...costmodel.explain.hidden_exchanges import LayerExchanges, layer_exchanges
from ...costmodel.explain.level_bytes import LevelBytes, level_bytes
from ...costmodel.explain.saved_results import BlockResult, block_results
from ...costmodel.explain.sensitivity import sensitivities
from ...costmodel.simulation.simulator import Simulation, Simulator
from ...spec.report.report import BREAKDOWN_TERMS, MEMORY_TERMS, MemoryRow, Prediction, Report
from ...spec.units import format_bytes, format_seconds

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
    stage is; ``results`` are what a block may keep by name; ``beside``, techniques' work on lanes
    of that stage; ``exchanges``, those of experts' rows by kind of layer; ``overlaps``, what shows
    of tensor-parallel collectives by kind of layer; ``sent``, a rank's bytes over each link level.
    """

    report: Report
    critical_stage: int
    busy_s: tuple[float, ...]
    results: tuple[BlockResult, ...] = ()
    beside: tuple[BesideWork, ...] = ()
    exchanges: tuple[LayerExchanges, ...] = ()
    overlaps: tuple[LayerOverlap, ...] = ()
    sent: tuple[LevelBytes, ...] = ()

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

    @property
    def overlap_lines(self) -> list[str]:
        """Lines on tensor-parallel collectives that show, by kind of layer."""
        return [_overlap_line(row) for row in self.overlaps]

    @property
    def sent_text(self) -> str:
        """A line on the bytes over each link level; '' where nothing is sent."""
        parts = [
            f"{row.level} {format_bytes(row.sent_bytes)}"
            + ("" if row.plain_bytes is None else f" ({format_bytes(row.plain_bytes)} without)")
            for row in self.sent
        ]
        without = any(row.plain_bytes is not None for row in self.sent)
        what = ", with techniques and without" if without else ""
        return f"a rank sends a step{what}: {', '.join(parts)}" if parts else ""

    def to_document(self) -> dict[str, Any]:
        """The report's document with an ``explain`` key."""
        document = self.report.to_document()
        document["explain"] = {
            "critical_stage": self.critical_stage,
            "busy_s": list(self.busy_s),
            "terms": self.terms,
            "results": [asdict(row) for row in self.results],
            "beside": [{**asdict(row), "hidden": row.hidden} for row in self.beside],
            **({"exchanges": [asdict(row) for row in self.exchanges]} if self.exchanges else {}),
            **({"overlaps": [asdict(row) for row in self.overlaps]} if self.overlaps else {}),
            "sent_bytes": [asdict(row) for row in self.sent],
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


def _overlap_line(row: LayerOverlap) -> str:
    ways = (
        ("forward", row.plain_forward_s, row.forward_s),
        ("backward", row.plain_backward_s, row.backward_s),
    )
    shown = ", ".join(
        f"{format_seconds(after_s)} of {format_seconds(plain_s)} {way}"
        for way, plain_s, after_s in ways
    )
    line = f"tp collectives of layer {row.first_layer} ({row.layers} such) that show: {shown}"
    if row.least_s < row.forward_s + row.backward_s:
        return f"{line}; all may hide, unmeasured"
    if not row.added_s:
        return line
    more = "longer" if row.added_s > 0 else "shorter"
    return f"{line}; kernels {format_seconds(abs(row.added_s))} {more}"


def explain_report(report: Report, simulation: Simulation, simulator: Simulator) -> Explanation:
    """Explain a simulated plan, with its sensitivities."""
    priced_sensitivities = sensitivities(report.plan, simulator, simulation.step_time_s)
    lowering = simulator.lowering
    beside = beside_work(simulation, simulator.pricer, report.plan.program.schedule.microbatches)
    return Explanation(
        report=replace(report, sensitivities=priced_sensitivities),
        critical_stage=simulation.critical.stage,
        busy_s=tuple(run.busy_s + run.update_s for run in simulation.stages),
        results=tuple(block_results(report.plan, lowering)),
        beside=tuple(beside),
        exchanges=tuple(layer_exchanges(report.plan, simulator)),
        overlaps=tuple(layer_overlaps(report.plan, simulator)),
        sent=level_bytes(report.plan, lowering.stack, tuple(lowering.techniques.values())),
    )
