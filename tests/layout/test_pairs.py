"""One concept has one name on the price side and on the run side."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PAIRS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "attention": (
        "costmodel/layers/attention.py",
        "executor/models/attention.py",
        ("attention_mixer", "cross_attention"),
    ),
    "block": ("costmodel/layers/block.py", "executor/models/block.py", ()),
    "core_attention": (
        "costmodel/layers/core_attention.py",
        "executor/models/core_attention.py",
        ("core_attention",),
    ),
    "heads": ("costmodel/layers/heads.py", "executor/models/heads.py", ()),
    "latent_attention": (
        "costmodel/layers/latent_attention.py",
        "executor/models/latent_attention.py",
        ("latent_attention",),
    ),
    "layer": ("costmodel/layers/layer.py", "executor/models/layer.py", ()),
    "lora": ("costmodel/ops/lora.py", "executor/models/lora.py", ()),
    "mlp": ("costmodel/layers/mlp.py", "executor/models/mlp.py", ("mlp",)),
    "moe": ("costmodel/layers/moe.py", "executor/models/moe/mixture.py", ("mixture",)),
    "redistribute": (
        "costmodel/ops/redistribute.py",
        "executor/stage/redistribute.py",
        ("redistribute",),
    ),
    "replicated_linear": (
        "costmodel/ops/linear.py",
        "executor/models/linear/replicated_linear.py",
        ("replicated_linear",),
    ),
    "ring_attention": (
        "costmodel/layers/ring_attention.py",
        "executor/models/context_parallel/ring_attention.py",
        ("ring_attention",),
    ),
    "shared_parts": (
        "costmodel/layers/shared_parts.py",
        "executor/models/shared_parts.py",
        ("shared_parts", "shares"),
    ),
    **{
        part: (f"costmodel/ops/moe/{part}.py", f"executor/models/moe/{part}.py", shared)
        for part, shared in {
            "gate": ("route",),
            "order": ("permute", "permute_weights"),
            "dispatch": (),
            "experts": (),
            "combine": ("combine",),
        }.items()
    },
    "ulysses": (
        "costmodel/layers/ulysses.py",
        "executor/models/context_parallel/ulysses.py",
        ("tokens_for_heads", "heads_for_tokens"),
    ),
    "vision": ("costmodel/layers/vision.py", "executor/models/vision.py", ()),
}
"""For each concept its module on either side, and the functions that both have."""
UNPAIRED = frozenset({"expert_chunks", "feed_forward", "mixer", "tower_inputs"})
"""Modules of costmodel/layers without one counterpart: two look-up tables, a lowering's own, and
experts' chunks, whose run is in three modules."""


def functions(path: Path) -> set[str]:
    """Names of a module's top-level functions."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("concept", PAIRS)
def test_price_and_run_name_a_concept_alike(concept: str, root: Path) -> None:
    price, run, shared = PAIRS[concept]
    for side in (price, run):
        assert (root / side).is_file(), side
        assert set(shared) <= functions(root / side), side


def test_every_priced_layer_has_a_run_side(root: Path) -> None:
    layers = {path.stem for path in (root / "costmodel/layers").glob("*.py")} - {"__init__"}
    paired = {Path(price).stem for price, _, _ in PAIRS.values() if "/layers/" in price}
    assert layers == paired | UNPAIRED
