"""The price of parking: share · n bytes of a block's output to the host and back, on lanes.

The copy down begins once the block has run, and its buffer is one of two: the block after the next
waits for it. The copy up begins with the block before (in a backward: the one behind), which the
block's own backward waits for.
"""

from __future__ import annotations

import math

from toys.parking_value import TECHNIQUE, share_of

from shardwright.costmodel.layers.layer import LayerSegment
from shardwright.costmodel.symbolic.layer_shape import LayerShape, activation_shape
from shardwright.costmodel.technique import AddedLaneWork, LayerAddition, TechniquePrice
from shardwright.spec.report.work_items import TO_DEVICE, TO_HOST, streamed
from shardwright.spec.workload.number_formats import DTYPE_BYTES

BUFFERS = 2


def layer(segment: LayerSegment, shape: LayerShape) -> LayerAddition:
    """Copies of a block's output, down after its forward and up before its backward."""
    tokens, *rest = activation_shape(shape, shape.strategy, shape.seq_len, segment.hidden)
    elements = round(share_of(shape.strategy) * tokens) * math.prod(rest)
    if not elements:
        return LayerAddition()
    size = elements * DTYPE_BYTES[shape.dtype]
    down = streamed(TO_HOST, elements, 2 * size, shape.dtype)
    up = streamed(TO_DEVICE, elements, 2 * size, shape.dtype)
    return LayerAddition(
        beside_forward=(AddedLaneWork(lane="to_host", items=(down,), begins="after", lag=BUFFERS),),
        beside_backward=(AddedLaneWork(lane="to_device", items=(up,), begins="before"),),
        kept_tier_bytes=(("host", size),),
    )


PRICE = TechniquePrice(value=TECHNIQUE, layer=layer)
