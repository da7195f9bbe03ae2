"""Groups of packed sequences: the cheapest partition, and every token in its own place."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from shardwright.kernels.attention.length_groups import CALL_WORK, ROW_PAIRS, length_groups

WIDTH = 400
CALL_PAIRS = CALL_WORK / WIDTH


def _pairs(shapes: tuple[tuple[int, int], ...]) -> float:
    """Work of groups in pairs of tokens, without the rows that are moved."""
    return sum(count * longest**2 + CALL_PAIRS for count, longest in shapes)


def _least_pairs(lengths: tuple[int, ...]) -> float:
    """The least work of all partitions of the sorted lengths into runs."""
    rising = sorted(length for length in lengths if length)
    cuts = range(1, len(rising))
    every = itertools.chain.from_iterable(
        itertools.combinations(cuts, n) for n in range(len(rising))
    )
    bounds = ((0, *inner, len(rising)) for inner in every)
    return min(_pairs(_shapes(rising, each)) for each in bounds)


def _shapes(rising: list[int], bounds: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    return tuple((end - start, rising[end - 1]) for start, end in itertools.pairwise(bounds))


@pytest.mark.parametrize("seed", range(6))
def test_the_partition_is_the_cheapest_and_loses_no_token(seed: int) -> None:
    draw = np.random.default_rng(seed)
    lengths = tuple(int(n) for n in draw.integers(0, 60, 9))
    groups = length_groups(lengths, WIDTH, pads=True)
    assert groups is not None
    assert _pairs(groups.shapes) == pytest.approx(_least_pairs(lengths))
    tokens, rows = sum(lengths), sum(count * longest for count, longest in groups.shapes)
    assert groups.taken[groups.placed].tolist() == list(range(tokens))
    assert len(groups.taken) == rows == tokens + len(groups.padding)
    assert set(groups.placed.tolist()).isdisjoint(groups.padding.tolist())


def test_a_sequence_lies_in_order_in_one_row_of_its_group() -> None:
    lengths = (3, 1, 0, 2)
    groups = length_groups(lengths, WIDTH, pads=True)
    assert groups is not None
    assert groups.shapes == ((3, 3),)
    # By length in the order of their tokens; the last token of a sequence fills its row.
    assert groups.taken.view(3, 3).tolist() == [[0, 1, 2], [3, 3, 3], [4, 5, 5]]


def test_only_equal_lengths_share_a_call_where_padding_would_be_seen() -> None:
    groups = length_groups((2, 3, 2), WIDTH, pads=False)
    assert groups is not None
    assert groups.shapes == ((2, 2), (1, 3))
    assert len(groups.padding) == 0


def test_long_sequences_keep_calls_of_their_own() -> None:
    # Two calls cost less than moving all rows into one, even without padding.
    length = int(CALL_PAIRS // ROW_PAIRS)
    assert length_groups((length, length), WIDTH, pads=True) is None
    assert length_groups((length // 4,) * 2, WIDTH, pads=True) is not None
