"""Pass kinds of tables and bounds: direction and place in step."""

from __future__ import annotations

from itertools import product

import numpy as np

from ...costmodel.lowering.stage_passes import PassKind
from ...spec.schedules.passes import BackwardPart

ENDS = ((True, True), (True, False), (False, False), (False, True))
"""Where in the step a micro-batch is, as (first, last)."""
DIRECTIONS = ("forward", "whole", "input", "weight", "sending")
"""Forward, and the backward whole, in its two parts, or whole until its message leaves."""
KINDS = len(DIRECTIONS) * len(ENDS) + 1
STEP_END = KINDS - 1
"""A stage's reductions after all passes, as one more kind."""
PARTS: tuple[BackwardPart, ...] = ("whole", "whole", "input", "weight", "whole")
PASSES = tuple(
    PassKind(direction == "forward", 0, *ends, part)
    for (direction, part), ends in product(zip(DIRECTIONS, PARTS, strict=True), ENDS)
)
"""A pass of every kind but the last, by its number."""
WHOLE, SENDING = (
    slice(len(ENDS) * d, len(ENDS) * (d + 1)) for d in map(DIRECTIONS.index, ("whole", "sending"))
)
UNTIL_MESSAGE = np.arange(KINDS)
"""Kind that counts for what waits for a pass's message, by the kind of the pass."""
UNTIL_MESSAGE[WHOLE] = np.arange(KINDS)[SENDING]


def kind_number(kind: PassKind, sends: bool = False) -> int:
    """Number of a pass kind, for any chunk.

    Args:
        kind: the kind.
        sends: True for the part of it that its message waits for.
    """
    direction = 0 if kind.forward else DIRECTIONS.index(kind.part)
    number = direction * len(ENDS) + ENDS.index((kind.first, kind.last))
    return int(UNTIL_MESSAGE[number]) if sends else number
