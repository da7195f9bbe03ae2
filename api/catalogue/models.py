"""Named models as a JSON document with sizes and sources."""

from __future__ import annotations

from typing import Any

from ...datasets.models.load import DEFAULT_MODEL, presets
from .model_sizes import model_kind, model_parts


def models_document() -> dict[str, Any]:
    """``default``, and every named model: sizes, source, omissions."""
    return {
        "default": DEFAULT_MODEL,
        "models": [
            {
                "name": item.name,
                "kind": model_kind(item.model),
                "parameters": item.model.param_count(),
                "active_parameters": item.model.active_param_count(),
                "layers": item.model.block_count,
                "hidden": item.model.towers[-1].layers[0].layer.hidden,
                "vocab": item.model.vocab,
                "tie_embeddings": item.model.tie_embeddings,
                **model_parts(item.model),
                "source": item.source,
                "left_out": list(item.left_out),
                "simplified": list(item.simplified),
            }
            for item in presets().values()
        ],
    }
