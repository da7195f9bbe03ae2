"""Passes, which a pipeline schedule orders."""

from __future__ import annotations

from typing import Literal, NamedTuple

BackwardPart = Literal["whole", "input", "weight"]
"""Part of a backward: all of it, the gradient of the input, or those of the weights."""


class Pass(NamedTuple):
    """One micro-batch through one chunk of a stage, forward or backward.

    A backward may be split (Qi et al., 2024, section 2): ``part`` "input" computes the gradient
    that the chunk before waits for, "weight" those of the weights. A pass that ``overlaps`` starts
    with the next one in the order, each hiding communication behind the other's computation.
    """

    forward: bool
    chunk: int
    micro_batch: int
    part: BackwardPart = "whole"
    overlaps: bool = False

    @property
    def exchanges_messages(self) -> bool:
        """True if the pass receives from one chunk and sends to another.

        Weight gradients do neither.
        """
        return self.part != "weight"

    @property
    def message(self) -> Pass:
        """The pass as messages name it.

        It is the same for a whole backward and its first part.
        """
        return Pass(self.forward, self.chunk, self.micro_batch)
