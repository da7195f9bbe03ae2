"""Passes: what a pipeline schedule puts in order."""

from __future__ import annotations

from typing import Literal, NamedTuple

BackwardPart = Literal["whole", "input", "weight"]
"""How much of a backward a pass does: all of it, the gradient of its input, or those of weights."""


class Pass(NamedTuple):
    """One micro-batch through one chunk of a stage; ``forward`` false is a backward pass.

    A backward may be split (Qi et al., 2024, section 2): ``part`` "input" makes the gradient
    that the chunk before waits for, "weight" the gradients of weights, which nobody does. A
    pass that ``overlaps`` starts together with the one after it in the order, and the
    communication inside either may run beside the computation of the other.
    """

    forward: bool
    chunk: int
    micro_batch: int
    part: BackwardPart = "whole"
    overlaps: bool = False

    @property
    def exchanges_messages(self) -> bool:
        """Whether it waits for the chunk before it and has something for the one after.

        Weight gradients have neither.
        """
        return self.part != "weight"

    @property
    def message(self) -> Pass:
        """The pass as messages name it: a gradient is the same to the first part of a backward."""
        return Pass(self.forward, self.chunk, self.micro_batch)
