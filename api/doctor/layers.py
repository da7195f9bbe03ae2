"""Layer classes of a model: planned, simulated and run."""

from __future__ import annotations

from typing import Any

from ...costmodel.lowering.plan_lowering import Lowering
from ...spec.errors import NotBuiltError
from ...spec.model.layers import Layer
from ...spec.model.model_spec import ModelSpec
from ...spec.rules.executable import unsupported_layer, unsupported_towers, unsupported_window
from ...spec.rules.plan_rules import layer_violation
from ...spec.strategy import LayerStrategy
from ..catalogue.layer_names import layer_name
from ..views.stage_table import ranges

SINGLE_DEVICE = LayerStrategy()


def layer_support_rows(lowering: Lowering) -> list[dict[str, Any]]:
    """List a row for each layer class of each tower.

    A kind is *planned* if one device alone may hold it, *simulated* if it lowers to kernels and
    bytes, *run* if the bundled executor builds it; else the row says why not.

    Args:
        lowering: of the model, at the sequence length in question.
    """
    model, rows, first = lowering.model, [], 0
    for tower in model.towers:
        kinds: dict[Layer, list[int]] = {}
        for number, layer in enumerate(tower.expand(), start=first):
            kinds.setdefault(layer, []).append(number)
        for layer, numbers in kinds.items():
            row = {
                "tower": tower.name,
                "kind": layer.kind,
                "what": layer_name(layer),
                "count": len(numbers),
                "layers": ranges(numbers),
            }
            rows.append({**row, **_support(lowering, layer, numbers[0])})
        first += tower.layer_count
    return rows


def _support(lowering: Lowering, layer: Layer, index: int) -> dict[str, Any]:
    tokens = lowering.contexts[index].tokens
    planned = layer_violation(layer, SINGLE_DEVICE, 1, 1, tokens)
    reasons = {
        "planned": planned,
        "simulated": planned or _lowering_reason(lowering, index),
        "run": _run_reason(lowering.model, layer, tokens),
    }
    return {
        **{name: reason is None for name, reason in reasons.items()},
        "why_not": {name: reason for name, reason in reasons.items() if reason is not None},
    }


def _lowering_reason(lowering: Lowering, index: int) -> str | None:
    try:
        lowering.layer(index, SINGLE_DEVICE, None, 1, 1)
    except NotBuiltError as error:
        return str(error)
    return None


def _run_reason(model: ModelSpec, layer: Layer, tokens: int) -> str | None:
    reason = unsupported_layer(layer) or unsupported_window(layer, tokens)
    return reason or unsupported_towers(model)
