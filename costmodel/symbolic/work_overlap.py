"""What a collective of a pass runs beside."""

from __future__ import annotations

from typing import Literal, NamedTuple

from ...spec.cluster.stack_spec import StackSpec
from ...spec.report.work_items import ExposedTerm

ExpertStage = Literal["dispatch", "gather", "experts", "weights", "scatter", "combine"]
"""Of a chunk of experts' rows: their way there, over one level and the next; products; weights'
gradients, for which the way back does not wait; and the way back."""


class WorkOverlap(NamedTuple):
    """Work beside which a collective runs.

    ``product``: the matrix product before it, both cut into ``chunks``. ``following``: the next
    ``kernels``, as in a ring's steps. ``pass``: all kernels of its pass. ``gathered``: number
    ``chunk`` of ``chunks`` gathers that are issued at once, each before its chunk's products;
    ``scattered``: the same after them, in order; ``queued``: before those, on the same wire.
    ``experts``: number ``chunk`` of ``chunks`` of experts' rows, at this ``stage``; kernels too.
    """

    beside: Literal["product", "following", "pass", "gathered", "queued", "scattered", "experts"]
    chunks: int = 1
    kernels: int = 0
    chunk: int = 0
    stage: ExpertStage = "experts"

    @property
    def trails(self) -> bool:
        """True for the last chunk's gradients of weights, which follow its way back."""
        return self.stage == "weights" and self.chunk == self.chunks - 1


BESIDE_PASS = WorkOverlap("pass")


def usual_overlap(stack: StackSpec, term: ExposedTerm, kernels: int) -> WorkOverlap | None:
    """The overlap of a collective inside a layer, or None where the stack has none.

    Args:
        stack: of the layer.
        term: of the collective.
        kernels: following ones that need not wait for it.
    """
    overlaps = stack.overlaps
    if term == "exposed_tp" and overlaps.tp:
        return WorkOverlap("product", chunks=stack.tp_chunks)
    if term == "exposed_cp" and overlaps.cp:
        return WorkOverlap("following", kernels=kernels)
    return BESIDE_PASS if term == "exposed_ep" and overlaps.ep else None
