"""Blocks of each pipeline stage: even, or as typed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...spec.errors import InputError
from ...spec.numbers import divisors, whole_number
from ...spec.schedules.stage_order import ScheduleKind, chunk_position

LayerCounts = str | Sequence[int]
COUNTS_FLAG, FIRST_FLAG, LAST_FLAG = (
    "--layers-per-stage",
    "--first-stage-layers",
    "--last-stage-layers",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCut:
    """Typed blocks of stages; None where left out.

    ``counts``: of every stage. ``first``, ``last``: of the end stages, the others share the rest
    evenly (Megatron-LM's ``--decoder-first-pipeline-num-layers`` and its counterpart).
    """

    counts: tuple[int, ...] | None = None
    first: int | None = None
    last: int | None = None

    @classmethod
    def from_flags(
        cls, counts: LayerCounts | None, first: int | None, last: int | None
    ) -> LayerCut:
        """The cut of three flags.

        Raises:
            InputError: counts that cannot be read, or beside the counts of end stages.
        """
        numbers = None if counts is None else _whole_numbers(counts)
        for flag, value in ((FIRST_FLAG, first), (LAST_FLAG, last)):
            if value is not None and value < 0:
                raise InputError(flag, value, "a whole number from 0", 0)
            if value is not None and numbers is not None:
                raise InputError(flag, value, f"nothing beside {COUNTS_FLAG}, which says it")
        return cls(counts=numbers, first=first, last=last)

    @property
    def is_even(self) -> bool:
        """True if nothing is typed."""
        return self == LayerCut()

    def blocks(self, blocks: int, stages: int) -> tuple[int, ...]:
        """Blocks of each stage of an uneven cut.

        Raises:
            InputError: counts that miss the stages or the blocks.
        """
        if self.counts is None:
            return self._between_ends(blocks, stages)
        usual = _near_even(blocks, stages)
        if len(self.counts) != stages:
            given = f"{len(self.counts)} counts"
            raise InputError(COUNTS_FLAG, given, f"{stages}: one a stage of --pp", usual)
        if sum(self.counts) != blocks:
            given = f"{','.join(map(str, self.counts))} = {sum(self.counts)}"
            raise InputError(COUNTS_FLAG, given, f"counts that add up to {blocks} blocks", usual)
        if 0 in self.counts[1:-1]:
            given = f"0 blocks on stage {self.counts.index(0, 1)}"
            raise InputError(COUNTS_FLAG, given, "at least 1 between the end stages", usual)
        return self.counts

    def _between_ends(self, blocks: int, stages: int) -> tuple[int, ...]:
        named = [n for n in (self.first, self.last) if n is not None]
        others, rest = stages - len(named), blocks - sum(named)
        if others < 0:
            raise InputError("--pp", stages, f"at least {len(named)} stages", len(named))
        if rest < others or rest % max(1, others) or (rest and not others):
            raise self._uneven_rest(blocks, others)
        middle = (rest // others,) * others if others else ()
        ends = [() if n is None else (n,) for n in (self.first, self.last)]
        return (*ends[0], *middle, *ends[1])

    def _uneven_rest(self, blocks: int, others: int) -> InputError:
        """Error naming the last typed flag, and the nearest count that leaves an even rest."""
        flag, typed = (FIRST_FLAG, self.first) if self.last is None else (LAST_FLAG, self.last)
        fixed = self.first if self.last is not None and self.first is not None else 0
        left, given = blocks - fixed, typed or 0
        legal = [n for n in range(left + 1) if _shares(left - n, others)]
        even = left / (others + 1)
        near = min(legal, key=lambda n: (abs(n - given), abs(n - even), n), default=None)
        allowed = f"a count that leaves the other {others} stages equal parts of {left} blocks"
        return InputError(flag, given, allowed, near)


def chunk_blocks(stage_blocks: Sequence[int], chunks: int, kind: ScheduleKind) -> tuple[int, ...]:
    """Blocks of each chunk in the order of data; a stage's are shared evenly by its chunks.

    Raises:
        InputError: a stage's blocks that its chunks cannot share.
    """
    stages = len(stage_blocks)
    positions = [0] * (stages * chunks)
    for stage, blocks in enumerate(stage_blocks):
        if blocks % chunks:
            allowed = f"a multiple of --vpp {chunks} on every stage"
            near = max(1, round(blocks / chunks)) * chunks
            raise InputError(COUNTS_FLAG, f"{blocks} on stage {stage}", allowed, near)
        for chunk in range(chunks):
            positions[chunk_position(kind, stage, chunk, stages)] = blocks // chunks
    return tuple(positions)


def check_even_cut(blocks: int, pipeline: tuple[int, int], devices: int) -> None:
    """Refuse a number of chunks that does not divide the blocks.

    Args:
        blocks: of the model.
        pipeline: ``--pp`` and ``--vpp``.
        devices: that pipeline and data parallelism share.

    Raises:
        InputError: with the nearest degrees that divide blocks and devices.
    """
    pp, vpp = pipeline
    if blocks % (pp * vpp) == 0:
        return
    near = nearest_pipeline(blocks, pipeline, devices)
    given = f"{pp} x {vpp} = {pp * vpp}" if vpp > 1 else pp
    raise InputError(
        "--pp x --vpp",
        given,
        f"a product that divides the {blocks} blocks, or {COUNTS_FLAG}",
        " x ".join(map(str, near)) if vpp > 1 else near[0],
    )


def nearest_pipeline(blocks: int, pipeline: tuple[int, int], devices: int) -> tuple[int, int]:
    """Stages and chunks nearest to typed ones that divide blocks and devices."""
    pp, vpp = pipeline
    legal = [
        (stages, chunks)
        for stages in divisors(math.gcd(devices, blocks))
        for chunks in divisors(blocks // stages)
        if chunks == vpp or (chunks > 1 and stages > 1) == (vpp > 1)
    ]
    usable = [pair for pair in legal if pair[1] == 1 or pair[0] > 1] or [(1, 1)]
    return min(usable, key=lambda n: (abs(n[0] * n[1] - pp * vpp), abs(n[0] - pp), n))


def _shares(rest: int, others: int) -> bool:
    return rest == 0 if others == 0 else rest >= others and rest % others == 0


def _near_even(blocks: int, stages: int) -> str:
    return ",".join(str((i + 1) * blocks // stages - i * blocks // stages) for i in range(stages))


def _whole_numbers(counts: LayerCounts) -> tuple[int, ...]:
    """Counts of a text or a list."""
    if isinstance(counts, str):
        numbers = [whole_number(part.strip()) for part in counts.split(",")]
    else:
        numbers = [n if type(n) is int and n >= 0 else None for n in counts]
    found = tuple(n for n in numbers if n is not None)
    if len(found) < len(numbers) or not found:
        allowed = "whole numbers with commas between, one a stage, such as 2,3,3"
        raise InputError(COUNTS_FLAG, counts, allowed)
    return found
