"""Which tokens a rank holds: every token once, in order, against counting them one by one."""

from __future__ import annotations

import itertools
import random

import pytest

from shardwright.spec.model.model_spec import EmbeddingLayer
from shardwright.spec.parallel.batch_partition import IndexRange
from shardwright.spec.parallel.sequence_partition import (
    IndexRanges,
    count,
    drop_leading,
    exchanged_tokens,
    input_tokens,
    intersect_ranges,
    local_tokens,
    merge_ranges,
    partition_range,
    positions_of,
    ring_tokens,
)
from shardwright.spec.rules.context_parallel_rules import context_parallel_violation
from shardwright.spec.strategy import LayerStrategy

SEQ_LEN = 144
STRATEGIES = [
    LayerStrategy(tp=tp, cp=cp, sequence_parallel=sp)
    for tp, cp, sp in itertools.product((1, 2, 3, 4), (1, 2, 3, 4), ("none", "megatron", "ulysses"))
    if tp > 1 or sp == "none"
]


def numbers(spans: IndexRanges) -> list[int]:
    return [number for span in spans for number in range(*span)]


def random_spans(source: random.Random) -> IndexRanges:
    chosen = sorted(source.sample(range(40), source.randrange(1, 30)))
    return merge_ranges(IndexRange(number, number + 1) for number in chosen)


def test_a_ring_of_four_by_hand() -> None:
    found = [[tuple(span) for span in ring_tokens(4, i, 16)] for i in range(4)]
    assert found == [
        [(0, 2), (14, 16)],
        [(2, 4), (12, 14)],
        [(4, 6), (10, 12)],
        [(6, 10)],
    ]


@pytest.mark.parametrize("seed", range(40))
def test_spans_are_sets_of_numbers(seed: int) -> None:
    source = random.Random(seed)
    one, other = random_spans(source), random_spans(source)
    shared = sorted(set(numbers(one)) & set(numbers(other)))
    assert numbers(intersect_ranges(one, other)) == shared
    assert [
        numbers(one)[place] for place in numbers(positions_of(one, intersect_ranges(one, other)))
    ] == shared
    assert count(one) == len(numbers(one))
    leading = source.randrange(20)
    assert numbers(drop_leading(one, leading)) == [
        n - leading for n in numbers(one) if n >= leading
    ]
    parts = source.randrange(1, 6)
    pieces = [partition_range(one, parts, index) for index in range(parts)]
    assert [number for piece in pieces for number in numbers(piece)] == numbers(one)
    assert all(count(piece) <= -(-count(one) // parts) for piece in pieces)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_ranks_of_a_replica_hold_every_token(strategy: LayerStrategy) -> None:
    layer = EmbeddingLayer(vocab=8, hidden=8)
    assert context_parallel_violation(layer, strategy, SEQ_LEN) is None
    ranks = range(strategy.width, 2 * strategy.width)  # a second replica's are the same
    own = [numbers(exchanged_tokens(strategy, rank, SEQ_LEN)) for rank in ranks]
    assert sorted(itertools.chain(*own)) == list(range(SEQ_LEN))
    for split, tokens in (
        (strategy.sequence_split, local_tokens),
        (strategy.input_split, input_tokens),
    ):
        held = [tokens(strategy, rank, SEQ_LEN) for rank in ranks]
        assert {count(spans) for spans in held} == {SEQ_LEN // split}
        assert len(set(held)) == split
        assert sorted(itertools.chain(*map(numbers, set(held)))) == list(range(SEQ_LEN))
