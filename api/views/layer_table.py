"""Decisions of a plan by layer; equal layers share a row."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ...spec.model.layers import Layer
from ...spec.plan.plan import Plan
from ...spec.strategy import LayerStrategy
from ...spec.technique import OFF, Values
from ...spec.techniques import TECHNIQUES
from ..catalogue.layer_names import layer_name
from .stage_table import span, split_text


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRow:
    """A run of layers of one class, stage and strategy.

    ``part`` is the virtual stage, '' if stages have one; ``group`` the device group with its own
    strategy, '' if all groups of the stage share it.
    """

    layers: str
    kind: str
    stage: str
    part: str
    group: str
    tp: str
    shard: str
    recompute: str
    techniques: str


def layer_rows(plan: Plan, techniques: Values = TECHNIQUES) -> list[LayerRow]:
    """List one row per run of equal layers, in data order."""
    rows: list[LayerRow] = []
    several = plan.program.chunks_per_stage > 1
    for stage, part, parts in plan.program.chunks():
        devices = plan.program.stages[stage]
        by_group = any(piece.by_device_group for piece in parts)
        groups = [piece.device_group for piece in devices.devices] if by_group else [None]
        where = {"stage": str(stage), "part": str(part) if several else ""}
        for group in groups:
            ranks = devices.device_count
            runs = _runs(plan.chunk_layers(parts, group))
            rows += [
                LayerRow(
                    layers=span(first, last),
                    kind=layer_name(layer),
                    group=group or "",
                    **where,
                    **_decided(layer, strategy, ranks, techniques),
                )
                for first, last, layer, strategy in runs
            ]
    return rows


def _runs(
    placed: tuple[tuple[int, Layer, LayerStrategy], ...],
) -> list[tuple[int, int, Layer, LayerStrategy]]:
    runs: list[tuple[int, int, Layer, LayerStrategy]] = []
    for number, layer, strategy in placed:
        if runs and runs[-1][1] == number - 1 and runs[-1][2:] == (layer, strategy):
            runs[-1] = (runs[-1][0], number, layer, strategy)
        else:
            runs.append((number, number, layer, strategy))
    return runs


def _decided(
    layer: Layer, strategy: LayerStrategy, ranks: int, techniques: Values
) -> dict[str, str]:
    used = [(t.name, t.text_of(strategy)) for t in techniques]
    return {
        "tp": split_text(strategy),
        "shard": strategy.shard.level_name(strategy.state_ranks(ranks)),
        "recompute": strategy.recompute,
        "techniques": ", ".join(f"{name} {text}" for name, text in used if text != OFF),
    }


def layer_table(plan: Plan) -> dict[str, Any]:
    """Rows for a page, without columns that are empty throughout."""
    rows = [asdict(row) for row in layer_rows(plan)]
    heads = [name for name in LayerRow.__dataclass_fields__ if any(row[name] for row in rows)]
    return {"heads": heads, "rows": [[row[name] for name in heads] for row in rows]}
