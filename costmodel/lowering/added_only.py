"""Values of techniques that only add: to a layer's work, to what it holds, never taking away.

Added cost is never below 0, so a layer with such a value takes at least the seconds of the plain
layer in every pass and in the update, and at least its bytes on every tier.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...spec.model.towers import shared_tables
from ...spec.strategy import LayerStrategy
from ..sharding.fsdp_unit import FsdpUnit
from ..technique import TechniquePrice
from .layer_lowering import lower_layer
from .plan_lowering import Lowering


def only_adds_to_passes(
    lowering: Lowering, price: TechniquePrice, index: int, strategy: LayerStrategy, batch: int
) -> bool:
    """True if a technique changes none of a layer's passes, and frees nothing between them.

    Args:
        lowering: of the model.
        price: of the technique.
        index: number of the layer.
        strategy: with the technique's value.
        batch: samples of a micro-batch on a rank.
    """
    if price.stack is not None or price.host_work is not None:
        return False
    shape = lowering.shape(index, strategy, None, batch, False)
    addition = price.addition(lowering.layers[index], shape, lower_layer)
    return addition is None or addition.kept_bytes >= 0


def only_adds_to_states(
    lowering: Lowering,
    price: TechniquePrice,
    index: int,
    strategy: LayerStrategy,
    ranks: int,
    plain: FsdpUnit,
) -> bool:
    """True if a technique changes nothing of a layer's states; arguments as above.

    ``ranks``: of the layer's stage; ``plain``: the layer's states without the technique. Layers
    that share a table with another are no case.
    """
    if price.unit is None:
        return True
    if index in shared_tables(lowering.model):
        return False
    own = lowering.uncached_unit((index,), strategy, ranks)
    names = "added", "added_update", "added_bytes", "added_tier_bytes"
    additions: dict[str, Any] = {
        name: getattr(plain, name) for name in (*names, "gradient_lanes", "update_lanes")
    }
    if replace(own, **additions) != plain:
        return False
    return own.added_bytes >= plain.added_bytes and all(s >= 0 for _, s, _ in own.added_tier_bytes)
