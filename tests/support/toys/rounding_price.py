"""The price of rounding: two casts of n activation elements each way, 6n bytes each."""

from __future__ import annotations

import math

from toys.rounding_value import COUNTS, NAME, TECHNIQUE

from shardwright.costmodel.layers.layer import LayerSegment
from shardwright.costmodel.sharding.fsdp_unit import FsdpUnit
from shardwright.costmodel.sharding.param_groups import UnitShape
from shardwright.costmodel.symbolic.layer_shape import LayerShape, activation_shape
from shardwright.costmodel.technique import AddedWork, LayerAddition, TechniquePrice, with_addition
from shardwright.spec.report.work_items import streamed
from shardwright.spec.workload.number_formats import ELEMENT_BYTES

BYTES_OF_BOTH = 4 + 2


def layer(segment: LayerSegment, shape: LayerShape) -> LayerAddition:
    """Casts down and up, of the input going forward and of its gradient going backward."""
    elements = math.prod(activation_shape(shape, shape.strategy, shape.seq_len, segment.hidden))
    size = elements * BYTES_OF_BOTH
    casts = (streamed("cast", elements, size, "bf16"), streamed("cast", elements, size, "fp32"))
    return LayerAddition(forward=AddedWork(items=casts), backward=AddedWork(items=casts[::-1]))


def unit(shape: UnitShape, own: FsdpUnit) -> FsdpUnit:
    """A layer's states beside the counts that a run keeps."""
    return with_addition(own, NAME, resident_bytes=COUNTS * ELEMENT_BYTES["int64"])


PRICE = TechniquePrice(value=TECHNIQUE, layer=layer, unit=unit)
