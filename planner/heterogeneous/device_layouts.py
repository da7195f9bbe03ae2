"""Devices of each stage of a pipeline over several device groups.

Two families. *In blocks*: some groups in any order, each with consecutive stages of its own width.
*Shared*: every stage holds fixed numbers of devices of some groups, with their shares of each
micro-batch. A group's devices are taken from the first on; the rest stay idle.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..space.pipeline_shape import DeviceSlice, StagePlacement

Stages = tuple[tuple[tuple[str, int, int], ...], ...]
"""Devices by stage, as (device group, first, count) each."""


class DeviceLayout(NamedTuple):
    """Devices of every stage, before samples are split."""

    stages: Stages

    @property
    def shared(self) -> bool:
        """True if its stages hold devices of several groups."""
        return len(self.stages[0]) > 1

    @property
    def widths(self) -> tuple[int, ...]:
        """Devices of every stage."""
        return tuple(sum(count for _, _, count in stage) for stage in self.stages)

    @property
    def used(self) -> int:
        """Devices in stages."""
        return sum(self.widths)


Groups = Sequence[tuple[str, int]]
"""Names of device groups, and the number of devices of each."""


def layouts(groups: Groups, most_stages: int) -> list[DeviceLayout]:
    """Every layout of at least two groups, fewest idle devices first."""
    every = [*_in_blocks(groups, most_stages), *_shared(groups, most_stages)]
    return sorted(every, key=lambda layout: (-layout.used, len(layout.stages), layout.stages))


def layout_count(groups: Groups) -> int:
    """Upper estimate of the number of :func:`layouts`."""
    sizes = [sum(count // width for width in range(1, count + 1)) for _, count in groups]
    total = 0
    for chosen in range(2, len(groups) + 1):
        for some in itertools.combinations(sizes, chosen):
            total += (math.factorial(chosen) + 1) * math.prod(some)
    return total


def full_layouts(groups: Groups, most_stages: int) -> list[DeviceLayout]:
    """Layouts with as many stages as possible of every used group."""
    full = [
        *_in_blocks(groups, most_stages, full=True),
        *_shared(groups, most_stages, full=True),
    ]
    return sorted(full, key=lambda layout: (-layout.used, len(layout.stages), layout.stages))


def _in_blocks(groups: Groups, most_stages: int, full: bool = False) -> Iterator[DeviceLayout]:
    for chosen in range(2, len(groups) + 1):
        for order in itertools.permutations(groups, chosen):
            choices = [_blocks(name, count, full, most_stages) for name, count in order]
            for blocks in itertools.product(*choices):
                stages = tuple(stage for block in blocks for stage in block)
                if len(stages) <= most_stages:
                    yield DeviceLayout(stages)


def _blocks(name: str, count: int, full: bool, most: int) -> list[Stages]:
    """Stages of one width in a group; ``full``: the maximum number."""
    blocks: list[Stages] = []
    widths = range(1, count + 1) if not full else _whole_widths(count)
    for width in widths:
        fitting = min(count // width, most)
        for stages in [fitting] if full else range(1, fitting + 1):
            blocks.append(tuple(((name, s * width, width),) for s in range(stages)))
    return blocks


def _whole_widths(count: int) -> list[int]:
    return [w for w in range(1, count + 1) if count % w == 0 or w & (w - 1) == 0]


def _shared(groups: Groups, most_stages: int, full: bool = False) -> Iterator[DeviceLayout]:
    for chosen in range(2, len(groups) + 1):
        for some in itertools.combinations(groups, chosen):
            wide = (_whole_widths(count) if full else range(1, count + 1) for _, count in some)
            for widths in itertools.product(*wide):
                fitting = min(c // w for (_, c), w in zip(some, widths, strict=True))
                fitting = min(fitting, most_stages)
                for stages in [fitting] if full else range(1, fitting + 1):
                    yield DeviceLayout(
                        tuple(
                            tuple(
                                (name, s * w, w) for (name, _), w in zip(some, widths, strict=True)
                            )
                            for s in range(stages)
                        )
                    )


def place_layout(layout: DeviceLayout, samples: tuple[int, ...]) -> tuple[StagePlacement, ...]:
    """Layout with the groups' samples of a micro-batch on each stage."""
    return tuple(
        tuple(DeviceSlice(*part, count) for part, count in zip(stage, samples, strict=True))
        for stage in layout.stages
    )


def sample_splits(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Every split of ``total`` samples into positive ``parts`` parts."""
    for boundaries in itertools.combinations(range(1, total), parts - 1):
        yield tuple(b - a for a, b in itertools.pairwise((0, *boundaries, total)))
