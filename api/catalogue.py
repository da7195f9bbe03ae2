"""The catalogues as JSON documents: what has a name here, with its figures and sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ..datasets.catalogue.clusters import parse_cluster
from ..datasets.catalogue.device import devices
from ..datasets.catalogue.fabric import fabrics
from ..datasets.catalogue.local import core_count, memory_bytes
from ..datasets.catalogue.models import DEFAULT_MODEL, presets
from ..datasets.catalogue.node import nodes
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


def clusters_document() -> dict[str, Any]:
    """Devices, nodes and fabrics with their figures and sources, and this machine."""
    return {
        "forms": ["NODESxDEVICESxTYPE[@FABRIC]", "NxTYPE[@FABRIC]", "local[:N]", "FILE"],
        "local": {
            "cluster": parse_cluster("local").expansion,
            "cores": core_count(),
            "memory_bytes": memory_bytes(),
        },
        "devices": [_document(item) for item in devices().values()],
        "nodes": [_document(item) for item in nodes().values()],
        "fabrics": [_document(item, "curves") for item in fabrics().values()],
    }


def _document(item: Any, *without: str) -> dict[str, Any]:
    """A catalogue entry's fields; mappings become plain dictionaries."""
    found = {f.name: getattr(item, f.name) for f in fields(item) if f.name not in without}
    return {name: dict(v) if isinstance(v, Mapping) else v for name, v in found.items()}
