"""Matrix products of the preset models' layers, forward and backward.

Every kind of layer of every single-tower preset, under legal tensor parallelism of 1, 2, 4 and 8,
for micro-batches of 2,048, 4,096 and 8,192 tokens, both ways.
"""

from __future__ import annotations

from functools import cache

from ...datasets.catalogue.stack import stack
from ...datasets.models.load import presets
from ...spec.choices import SequenceParallel
from ...spec.model.layers import Layer
from ...spec.report.work_items import Kernel
from ...spec.rules.plan_rules import layer_violation
from ...spec.strategy import LayerStrategy
from ..lowering.layer_lowering import lower_layer
from ..symbolic.layer_shape import LayerShape

DEGREES = (1, 2, 4, 8)
TOKENS = (2048, 4096, 8192)
STACK = "megatron"


@cache
def preset_products() -> frozenset[tuple[int, ...]]:
    """Sizes (m, k, n) of every product."""
    sizes: set[tuple[int, ...]] = set()
    for preset in presets().values():
        if len(preset.model.towers) > 1:
            continue  # a layer alone lacks the other tower's output
        for layer in preset.model.kinds():
            for degree in DEGREES:
                split: SequenceParallel = "none" if degree == 1 else "megatron"
                strategy = LayerStrategy(tp=degree, sequence_parallel=split)
                for tokens in TOKENS:
                    if layer_violation(layer, strategy, degree, 1, tokens) is None:
                        sizes |= _products(layer, strategy, tokens)
    return frozenset(sizes)


def _products(layer: Layer, strategy: LayerStrategy, tokens: int) -> set[tuple[int, ...]]:
    lowered = lower_layer(layer, LayerShape(strategy, None, 1, tokens, "bf16", stack(STACK)))
    entries = (*lowered.forward.entries, *lowered.backward.entries)
    works = [entry.work for entry in entries]
    return {x.shape for x in works if isinstance(x, Kernel) and x.op == "matmul"}
