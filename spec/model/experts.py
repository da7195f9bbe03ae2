"""A layer's experts, and the rules for ep and etp."""

from __future__ import annotations

from dataclasses import replace

from ..strategy import LayerStrategy
from .feed_forward import Moe
from .layers import BlockLayer, Layer, MultiTokenLayer


def experts_of(layer: Layer) -> Moe | None:
    """The mixture of experts in a layer; None if it has none."""
    block = layer.block if isinstance(layer, MultiTokenLayer) else layer
    if isinstance(block, BlockLayer) and isinstance(block.mlp, Moe):
        return block.mlp
    return None


def dropless(layer: Layer) -> Layer:
    """The layer without a capacity factor: no token dropped or padded."""
    moe = experts_of(layer)
    if moe is None or moe.capacity_factor is None:
        return layer
    uncapped = replace(moe, capacity_factor=None)
    if isinstance(layer, MultiTokenLayer):
        return replace(layer, block=replace(layer.block, mlp=uncapped))
    return replace(layer, mlp=uncapped) if isinstance(layer, BlockLayer) else layer


def expert_violation(layer: Layer, strategy: LayerStrategy, stage_ranks: int) -> str | None:
    """Reason why ``strategy`` may not split a layer's experts, or None.

    Experts serve the tokens of all ranks of a stage, so each rank needs tokens of its own.
    Tensor-parallel ranks hold the same tokens unless the sequence is split between the parts of
    a block; without that, experts can only be split as an MLP is.
    """
    ep, etp, moe = strategy.ep, strategy.etp, experts_of(layer)
    if moe is None:
        for name, degree in (("ep", ep), ("etp", etp)):
            if degree != 1:
                return f"{name} {degree}: the {layer.kind} layer has no experts to split"
        return None
    if stage_ranks % ep:
        return f"ep {ep} does not divide the stage's {stage_ranks} ranks"
    if stage_ranks % (ep * etp):
        return f"etp {etp} beside ep {ep} does not divide the stage's {stage_ranks} ranks"
    if moe.experts % ep:
        return f"ep {ep} does not divide experts {moe.experts}"
    if moe.ffn % etp:
        return f"etp {etp} does not divide expert ffn {moe.ffn}"
    shared = strategy.tp > 1 and strategy.sequence_parallel == "none"
    if shared and (ep, etp) != (1, strategy.tp):
        needs = f"experts need sequence parallelism, or ep 1 and etp {strategy.tp}"
        return f"ep {ep} and etp {etp} with tp {strategy.tp}: {needs}"
    return None
