"""One strategy for many layers, as it applies to each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..model.experts import experts_of
from ..model.layers import Layer, has_block
from ..strategy import LayerStrategy
from ..technique import Values
from ..technique_values import with_value
from ..techniques import TECHNIQUES


def applicable_strategy(
    layer: Layer, strategy: LayerStrategy, techniques: Values = TECHNIQUES
) -> LayerStrategy:
    """A uniform strategy as it applies to a layer.

    Only blocks recompute, only experts split, techniques apply to the layers they are priced for.
    """
    for technique in techniques:
        if technique.name in strategy.techniques and layer.kind not in technique.kinds.simulable:
            strategy = with_value(strategy, technique.name, None)
    if strategy.recompute != "none" and not has_block(layer):
        strategy = replace(strategy, recompute="none")
    if (strategy.ep > 1 or strategy.etp > 1) and experts_of(layer) is None:
        strategy = replace(strategy, ep=1, etp=1)
    return strategy


def strategy_count(
    layers: Sequence[Layer], strategies: Sequence[LayerStrategy], techniques: Values = TECHNIQUES
) -> int:
    """Number of uniform strategies that a plan's layers take: the measure of simplicity.

    An embedding beside recomputed blocks, or a dense block beside experts, takes theirs as it
    applies to it.

    Args:
        layers: of the model.
        strategies: of each layer.
        techniques: that strategies may name.
    """
    by_pair = dict.fromkeys(zip(layers, strategies, strict=True))
    uniform: list[LayerStrategy] = []
    for layer, strategy in sorted(by_pair, key=lambda pair: freedom(pair[0]), reverse=True):
        if not any(applicable_strategy(layer, u, techniques) == strategy for u in uniform):
            uniform.append(strategy)
    return len(uniform)


def freedom(layer: Layer) -> tuple[bool, bool]:
    """Order of layers by the decisions that apply to them."""
    return (experts_of(layer) is not None, has_block(layer))
