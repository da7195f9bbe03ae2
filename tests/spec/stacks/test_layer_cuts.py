"""Cuts of layers into stages, by a stack's rule."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.spec.cluster.stack_spec import LayerCut
from shardwright.spec.plan.layer_cuts import cut_violation, cuts

RULES: tuple[LayerCut, ...] = ("any", "ends", "even")


def model(blocks: int) -> list[bool]:
    return [False, *[True] * blocks, False]


def block_counts(is_block: list[bool], boundaries: tuple[int, ...]) -> list[int]:
    return [sum(is_block[start:stop]) for start, stop in pairwise(boundaries)]


@given(
    rule=st.sampled_from(RULES),
    blocks=st.integers(1, 40),
    stages=st.integers(1, 12),
    chunks=st.integers(1, 4),
)
def test_cuts_hold_every_layer_and_keep_their_rule(
    rule: LayerCut, blocks: int, stages: int, chunks: int
) -> None:
    is_block, kind = model(blocks), "interleaved" if chunks > 1 else "1f1b"
    for boundaries in cuts(rule, is_block, kind, stages, chunks):  # type: ignore[arg-type]
        assert boundaries[0] == 0
        assert boundaries[-1] == len(is_block)
        assert len(boundaries) == stages * chunks + 1
        assert all(start < stop for start, stop in pairwise(boundaries))
        assert cut_violation(rule, is_block, kind, stages, boundaries) is None  # type: ignore[arg-type]


def test_an_even_cut_comes_first() -> None:
    is_block = model(32)
    for rule in RULES:
        first = next(cuts(rule, is_block, "1f1b", 4, 1))
        assert block_counts(is_block, first) == [8, 8, 8, 8]


def test_first_and_last_stage_may_be_smaller() -> None:
    is_block = model(61)
    found = [block_counts(is_block, c) for c in cuts("ends", is_block, "1f1b", 16, 1)]
    assert [4] * 15 + [1] in found
    assert all(len(set(counts[1:-1])) == 1 for counts in found)


@pytest.mark.parametrize(
    ("rule", "counts", "allowed"),
    [
        ("ends", [3, 4, 4, 2], True),
        ("ends", [4, 3, 4, 4], False),
        ("even", [3, 3, 2, 2], True),
        ("even", [4, 3, 2, 2], False),
        ("any", [6, 1, 1, 1], True),
    ],
)
def test_cuts_are_judged(rule: LayerCut, counts: list[int], allowed: bool) -> None:
    is_block, boundaries = model(sum(counts)), [0]
    for count in counts:
        boundaries.append(boundaries[-1] + count)
    boundaries = [0, *(b + 1 for b in boundaries[1:-1]), len(is_block)]
    reason = cut_violation(rule, is_block, "1f1b", len(counts), boundaries)
    assert (reason is None) == allowed
