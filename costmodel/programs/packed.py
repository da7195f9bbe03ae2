"""Programs as flat arrays, for files that execute nothing when they are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .nest import LOOP_KINDS, Access, Leaf, Loop, Program

Arrays = dict[str, Any]
"""Arrays by name, of several types."""


def packed(programs: Sequence[Program]) -> Arrays:
    """Arrays of programs; ``NAME_ends`` are running totals of the entries of each owner."""
    leaves = [leaf for program in programs for leaf in program.leaves]
    loops = [loop for leaf in leaves for loop in leaf.loops]
    accesses = [access for leaf in leaves for access in leaf.accesses]
    return {
        "program_ends": _ends(len(program.leaves) for program in programs),
        "position": np.array([leaf.position for leaf in leaves], np.int32),
        "operations": np.array([leaf.operations for leaf in leaves], np.float32),
        "loop_ends": _ends(len(leaf.loops) for leaf in leaves),
        "loop_extent": np.array([loop.extent for loop in loops], np.int64),
        "loop_kind": np.array([LOOP_KINDS.index(loop.kind) for loop in loops], np.uint8),
        "loop_reduces": np.array([loop.reduces for loop in loops], np.bool_),
        "access_ends": _ends(len(leaf.accesses) for leaf in leaves),
        "access_bytes": np.array([access.value_bytes for access in accesses], np.float32),
        "access_writes": np.array([access.writes for access in accesses], np.bool_),
        "strides": np.array([s for access in accesses for s in access.strides], np.int64),
    }


def unpacked(arrays: Mapping[str, NDArray[Any]]) -> list[Program]:
    """Programs of :func:`packed` arrays.

    Raises:
        ValueError: arrays whose lengths disagree.
    """
    loops = [
        Loop(int(extent), LOOP_KINDS[kind], bool(reduces))
        for extent, kind, reduces in zip(
            arrays["loop_extent"], arrays["loop_kind"], arrays["loop_reduces"], strict=True
        )
    ]
    leaves, next_stride = [], 0
    strides = arrays["strides"].tolist()
    sides = list(
        zip(arrays["access_bytes"].tolist(), arrays["access_writes"].tolist(), strict=True)
    )
    rows = zip(
        arrays["position"].tolist(),
        arrays["operations"].tolist(),
        _spans(arrays["loop_ends"]),
        _spans(arrays["access_ends"]),
        strict=True,
    )
    for position, operations, own_loops, own_accesses in rows:
        nest = tuple(loops[own_loops])
        accesses = []
        for value_bytes, writes in sides[own_accesses]:
            last = next_stride + len(nest)
            accesses.append(Access(value_bytes, tuple(strides[next_stride:last]), writes))
            next_stride = last
        leaves.append(Leaf(position, nest, tuple(operations), tuple(accesses)))
    if next_stride != len(strides):
        raise ValueError(f"strides: {len(strides)} given, {next_stride} used")
    return [Program(tuple(leaves[span])) for span in _spans(arrays["program_ends"])]


def _ends(lengths: Iterable[int]) -> NDArray[np.int64]:
    return np.cumsum(np.fromiter(lengths, np.int64))


def _spans(ends: NDArray[Any]) -> list[slice]:
    return [slice(first, last) for first, last in pairwise([0, *ends.tolist()])]
