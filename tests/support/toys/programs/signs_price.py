"""The price of sign updates: two kernels over a unit's elements, and no states of an optimizer."""

from __future__ import annotations

from toys.programs.signs_value import NAME, TECHNIQUE, SignUpdates

from shardwright.costmodel.program_technique import ProgramPrice
from shardwright.costmodel.sharding.fsdp_unit import FsdpUnit
from shardwright.costmodel.sharding.fully_sharded import without_optimizer
from shardwright.costmodel.sharding.param_groups import UnitShape
from shardwright.costmodel.technique import TechniquePrice, with_addition
from shardwright.spec.report.work_items import streamed
from shardwright.spec.workload.number_formats import DTYPE_BYTES


def unit(shape: UnitShape, own: FsdpUnit, value: SignUpdates) -> FsdpUnit:
    """Signs, and the step along them."""
    n, name = own.update.elements, shape.dtype.master
    if not n:
        return own
    size = n * DTYPE_BYTES[name]
    update = (
        streamed("foreach_sign", n, 2 * size, name),
        streamed("foreach_add", n, 3 * size, name),
    )
    return with_addition(without_optimizer(shape, own), NAME, update=update)


PRICE = TechniquePrice(value=TECHNIQUE, at_least="work", program=ProgramPrice(unit=unit))
