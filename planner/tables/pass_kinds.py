"""Pass kinds of tables and bounds: direction and place in step."""

from __future__ import annotations

from itertools import product

from ...costmodel.lowering.stage_passes import PassKind
from ...spec.schedules.passes import BackwardPart

ENDS = ((True, True), (True, False), (False, False), (False, True))
"""Where in the step a micro-batch is, as (first, last)."""
DIRECTIONS = ("forward", "whole", "input", "weight")
"""Forward, and the backward whole or in its two parts."""
KINDS = len(DIRECTIONS) * len(ENDS)
PARTS: tuple[BackwardPart, ...] = ("whole", "whole", "input", "weight")
PASSES = tuple(
    PassKind(direction == "forward", 0, *ends, part)
    for (direction, part), ends in product(zip(DIRECTIONS, PARTS, strict=True), ENDS)
)
"""A pass of every kind, by its number."""


def kind_number(kind: PassKind) -> int:
    """Number of a pass kind, for any chunk."""
    direction = 0 if kind.forward else DIRECTIONS.index(kind.part)
    return direction * len(ENDS) + ENDS.index((kind.first, kind.last))
