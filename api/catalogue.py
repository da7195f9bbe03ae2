"""The models that have a name here, as a JSON document with sizes and sources."""

from __future__ import annotations

from typing import Any

from ..datasets.catalogue.models import DEFAULT_MODEL, presets
from ..spec.dense import dense_parts
from ..spec.model import BlockLayer


def models_document() -> dict[str, Any]:
    """``default``, and every model with a name: sizes, source, what of it is left out."""
    return {
        "default": DEFAULT_MODEL,
        "models": [
            {
                "name": item.name,
                "parameters": item.model.param_count(),
                "layers": item.model.block_count,
                "hidden": item.model.hidden,
                "vocab": item.model.vocab,
                "tie_embeddings": item.model.tie_embeddings,
                **_block(next(x for x in item.model.kinds() if isinstance(x, BlockLayer))),
                "source": item.source,
                "left_out": list(item.left_out),
            }
            for item in presets().values()
        ],
    }


def _block(layer: BlockLayer) -> dict[str, Any]:
    attention, mlp = dense_parts(layer)
    return {
        "heads": attention.heads,
        "kv_heads": attention.kv_heads,
        "head_dim": attention.head_dim,
        "ffn": mlp.ffn,
        "activation": mlp.activation,
    }
