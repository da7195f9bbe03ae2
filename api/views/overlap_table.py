"""Exposed tensor-parallel collectives by kind of layer, as a table of a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...costmodel.explain.hidden_collectives import LayerOverlap
from ...spec.plan.plan import Plan
from ...spec.units import format_seconds


def may_overlap(plan: Plan) -> bool:
    """True if a layer of the plan has tensor parallelism and a technique."""
    return any(
        strategy.tp > 1 and strategy.techniques
        for _, _, parts in plan.program.chunks()
        for part in parts
        for strategy in (part.strategy, *part.by_device_group.values())
    )


def overlap_table(overlaps: Sequence[LayerOverlap]) -> list[dict[str, Any]]:
    """Rows of texts, of a micro-batch: ``layer, layers, forward, backward, kernels, saved``."""
    return [_row(row) for row in overlaps]


def _row(row: LayerOverlap) -> dict[str, Any]:
    shown_s, plain_s = row.forward_s + row.backward_s, row.plain_forward_s + row.plain_backward_s
    saved = _saved(plain_s - shown_s - row.added_s)
    if row.least_s < shown_s:
        saved = f"at most {format_seconds(plain_s - row.least_s - row.added_s)}, unmeasured"
    return {
        "layer": row.first_layer,
        "layers": row.layers,
        "forward": _shown(row.forward_s, row.plain_forward_s),
        "backward": _shown(row.backward_s, row.plain_backward_s),
        "kernels": _longer(row.added_s),
        "saved": saved,
    }


def _shown(after_s: float, plain_s: float) -> str:
    return f"{format_seconds(after_s)} of {format_seconds(plain_s)}"


def _longer(seconds: float) -> str:
    if not seconds:
        return "as long"
    return f"{format_seconds(abs(seconds))} {'longer' if seconds > 0 else 'shorter'}"


def _saved(seconds: float) -> str:
    return format_seconds(seconds) if seconds >= 0 else f"{format_seconds(-seconds)} lost"
