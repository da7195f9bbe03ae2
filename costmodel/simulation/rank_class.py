"""Classes of ranks that do the same work: one a stage and device group, for shares are equal in it.

Device groups of a stage meet wherever the stage hands anything on: a message needs all samples of
its micro-batch, a reduction all ranks. So every pass of a stage takes as long as that of its
slowest class, and what one class gains in one pass and loses in another is not credited. Each
class has its own memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...spec.errors import InputError
from ...spec.plan.plan import Plan
from ..lowering.chunk import StageChunk
from ..pricing.link_span import LinkSpan

MAX_CLASSES = 2**14
"""Classes of one plan; each is lowered and priced on its own."""


@dataclass(frozen=True, slots=True)
class RankClass:
    """The ranks of one device group of a stage, their chunks, and how far their groups reach."""

    group: str
    count: int
    chunks: tuple[StageChunk, ...]
    link_span: LinkSpan


def refuse_too_many(plan: Plan) -> None:
    """One representative rank a class: a plan of very many is refused, never averaged.

    Raises:
        InputError: more than ``MAX_CLASSES``.
    """
    classes = sum(len(stage.devices) for stage in plan.program.stages)
    if classes > MAX_CLASSES:
        given = f"{classes} classes of ranks (stage, device group)"
        raise InputError("stages", given, f"at most {MAX_CLASSES}", MAX_CLASSES)
