"""The page's view of a report: terminal text and figures to draw.

One JSON document for the file that ``plan export --to html`` writes and for the service's page, so
that neither computes anything itself.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ...costmodel.explain.hidden_collectives import LayerOverlap
from ...costmodel.memory.feasibility import MemoryRule
from ...costmodel.simulation.timeline import simulated_timeline
from ...spec.errors import InputError
from ...spec.report.report import MEMORY_TERMS, MemoryRow, Report, SearchResult
from ...spec.units import format_bytes, format_seconds
from ..planning.report import Simulated
from .answer_text import (
    advice_text,
    common_stack_text,
    cost_text,
    grouped,
    largest_text,
    sensitivity_parts,
    tie_text,
    training_text,
)
from .explanation import MEMORY_MEANINGS, TERM_MEANINGS
from .layer_table import layer_table
from .overlap_table import overlap_table
from .report_text import (
    ROUNDING,
    cluster_text,
    excess_lines,
    half_width_text,
    memory_text,
    mfu_note,
    peak_memory_row,
    percent,
    question_text,
    search_text,
    shape_text,
    sources_text,
    stage_text,
)
from .stage_table import stage_rows


def report_view(
    report: Report, rule: MemoryRule, overlaps: Sequence[LayerOverlap] = ()
) -> dict[str, Any]:
    """The view of a report, and of what shows of its layers' collectives.

    Returns:
        ``{title, cluster, shape, plan_hash, feasible, excess, figures, facts, memory, step_time_s,
        proven, terms, stages, layers, overlaps, memory_terms, rivals, assumptions, sources}``;
        times are seconds, sizes texts, shares fractions.
    """
    prediction = report.prediction
    return {
        "title": question_text(report.plan),
        "cluster": cluster_text(report),
        "shape": shape_text(report.plan),
        "plan_hash": report.plan.hash,
        "feasible": prediction.feasible,
        "excess": excess_lines(prediction.memory, rule),
        "figures": figures(report),
        "facts": _facts(report),
        "memory": memory_bar_view(peak_memory_row(prediction)),
        "step_time_s": prediction.step_time_s,
        "proven": is_proven(report.search),
        "terms": _terms(report),
        "stages": _stages(report),
        "layers": layer_table(report.plan),
        "overlaps": overlap_table(overlaps),
        "memory_terms": _memory_terms(report),
        "rivals": [
            {
                "by": rival.lost_by,
                "shape": shape_text(rival.plan),
                "step": format_seconds(rival.prediction.step_time_s),
                "simplest": rival.simplest,
                "fastest": rival.fastest,
            }
            for rival in report.alternatives
        ],
        "assumptions": [
            {"path": note.path, "value": str(note.value), "why": note.why}
            for note in report.assumptions
        ],
        "sources": f"{sources_text(report)}; {report.provenance.stack}; "
        f"calibration {report.provenance.calibration}",
    }


def is_proven(search: SearchResult | None) -> bool:
    """True where every legal plan of the space was priced or cut by a proven bound."""
    return search is not None and search.stopped_by == "proof" and search.gap == 0


def figures(report: Report) -> list[dict[str, str]]:
    """List the headline figures beside the fullest memory."""
    prediction = report.prediction
    low, high = (format_seconds(s) for s in prediction.step_time_interval_s)
    level = f"{prediction.interval_level * 100:.0f} % of runs"
    tokens = prediction.samples_per_s * report.plan.workload.seq_len
    return [
        {
            "name": "step",
            "value": format_seconds(prediction.step_time_s),
            "note": f"{half_width_text(prediction)}: {low} to {high} in {level}",
        },
        {
            "name": "tokens/s a device",
            "value": grouped(prediction.tokens_per_s_per_device),
            "note": f"{grouped(tokens)} in all",
        },
        {
            "name": "MFU",
            "value": percent(prediction.mfu),
            "note": f"{mfu_note(prediction)}; HFU {percent(prediction.hfu)}",
        },
    ]


def _facts(report: Report) -> list[tuple[str, str]]:
    prediction, search = report.prediction, report.search
    facts = [
        ("cost", cost_text(prediction)),
        ("training", training_text(prediction)),
        ("search", search_text(report)),
        ("ties", "" if search is None else tie_text(search)),
        ("1 % more of", ", ".join(sensitivity_parts(report))),
        *(("advice", advice_text(item)) for item in report.advice),
    ]
    if report.common_stack is not None:
        step_s = report.prediction.step_time_s
        facts.append(("with", common_stack_text(report.common_stack, step_s)))
    if search is not None and search.largest is not None:
        facts.insert(0, ("largest", largest_text(search.largest)))
    return [(name, text) for name, text in facts if text]


def memory_bar_view(row: MemoryRow) -> dict[str, Any]:
    """Memory use as a bar and as text."""
    return {
        "tier": row.tier,
        "share": row.reserved_bytes / max(1, row.capacity_bytes),
        "text": memory_text(row),
    }


def _terms(report: Report) -> list[dict[str, Any]]:
    """List terms worth showing, largest first.

    Their shares add up to the step's but for rounding.
    """
    prediction = report.prediction
    rows = [
        {
            "term": name,
            "seconds": seconds,
            "text": format_seconds(seconds),
            "share": seconds / prediction.step_time_s,
            "meaning": TERM_MEANINGS.get(name, name),
        }
        for name, seconds in prediction.breakdown_s.items()
        if seconds > ROUNDING * prediction.step_time_s
    ]
    return sorted(rows, key=lambda row: (-float(str(row["seconds"])), str(row["term"])))


def _stages(report: Report) -> list[dict[str, Any]]:
    rows = []
    others = [row for row in report.prediction.memory if row.tier != "hbm"]
    for row in stage_rows(report.plan, report.prediction):
        cells = asdict(row)
        del cells["memory"]
        tiers = [] if row.memory is None else [row.memory]
        tiers += [o for t in tiers for o in others if _stage_label(o) == _stage_label(t)]
        rows.append({**cells, "tiers": [memory_bar_view(tier) for tier in tiers]})
    return rows


def _stage_label(row: MemoryRow) -> tuple[int, str]:
    return row.stage, row.device_group


def _memory_terms(report: Report) -> dict[str, Any]:
    """Bytes by term as text, one row per stage and tier."""
    rows = report.prediction.memory
    names = [*MEMORY_TERMS, *(n for n in rows[0].by if n not in MEMORY_TERMS)]
    return {
        "terms": [{"name": name, "meaning": MEMORY_MEANINGS.get(name, name)} for name in names],
        "rows": [
            {
                "place": stage_text(row, rows),
                "tier": row.tier,
                "by": [format_bytes(row.by.get(name, 0)) for name in names],
                "reserved": format_bytes(row.reserved_bytes),
                "capacity": format_bytes(row.capacity_bytes),
            }
            for row in rows
        ],
    }


MAX_TRACE_SPANS = 60_000
"""A timeline with more would make a page too large to open."""


def step_trace(simulated: Simulated) -> dict[str, Any] | str:
    """Timeline of the step, or the reason why a page has none."""
    try:
        timeline = simulated_timeline(
            simulated.simulation, simulated.simulator, most_spans=MAX_TRACE_SPANS
        )
    except InputError as error:
        return f"no timeline: {error}"
    if len(timeline.spans) > MAX_TRACE_SPANS:
        return f"no timeline: {len(timeline.spans)} spans; plan simulate --trace writes them"
    trace: dict[str, Any] = json.loads(timeline.to_perfetto())
    return trace
