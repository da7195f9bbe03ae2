"""Who works on which samples, and who sends which rows: against counting them one by one."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from generators.heterogeneous_cases import FAST, SLOW, MixedCase, ranks
from generators.plan_cases import Case

from shardwright.spec.parallel.batch_partition import (
    batch_partition,
    batch_partition_violation,
    batch_share_violation,
)
from shardwright.spec.plan.plan import Stage, StageDevices
from shardwright.spec.plan.stage_messages import (
    ActivationBlock,
    activation_blocks,
    entry_strategy,
    messages,
)
from shardwright.spec.strategy import LayerStrategy

PLAIN, TP2 = LayerStrategy(), LayerStrategy(tp=2)
TP2_SP = LayerStrategy(tp=2, sequence_parallel="megatron")
CP2 = LayerStrategy(cp=2)
SPLITS = [
    PLAIN,
    TP2,
    TP2_SP,
    replace(TP2_SP, tp=4),
    CP2,
    replace(TP2, cp=2),
    replace(TP2_SP, cp=2),
    LayerStrategy(tp=2, sequence_parallel="ulysses"),
    LayerStrategy(tp=3, sequence_parallel="ulysses", cp=2),
]
SAMPLES, SEQ_LEN = 12, 24


def stage(*held: tuple[str, int, float | None]) -> Stage:
    devices = tuple(
        StageDevices(device_group=name, first_rank=0, count=count, batch_share=share)
        for name, count, share in held
    )
    return Stage(devices=devices, virtual_stages=((),))


def numbers(block: ActivationBlock) -> set[tuple[int, int]]:
    """The rows of a block, one by one."""
    tokens = (token for span in block.tokens for token in range(*span))
    return {(t, s) for t in tokens for s in range(*block.samples)}


def test_replicas_take_equal_parts_of_their_groups_share() -> None:
    mixed = stage((FAST, 2, 0.75), (SLOW, 2, 0.25))
    plain = [tuple(part) for part in batch_partition(mixed, PLAIN, 8)]
    assert plain == [(0, 3), (3, 6), (6, 7), (7, 8)]
    split = [tuple(part) for part in batch_partition(mixed, TP2, 8)]
    assert split == [(0, 6), (0, 6), (6, 8), (6, 8)]
    even = [tuple(part) for part in batch_partition(stage((FAST, 4, None)), TP2, 8)]
    assert even == [(0, 4), (0, 4), (4, 8), (4, 8)]


@pytest.mark.parametrize(
    ("held", "strategy", "word"),
    [
        (((FAST, 1, 0.7), (SLOW, 1, 0.3)), PLAIN, "0.7 of fast is 8.4 of the micro-batch's 12"),
        (((FAST, 1, 0.75), (SLOW, 1, 0.5)), PLAIN, "add up to 1.25"),
        (((FAST, 3, 0.75), (SLOW, 1, 0.25)), TP2, "does not divide the 3 ranks of fast"),
        (((FAST, 2, 0.75), (SLOW, 2, 0.25)), PLAIN, "dp 2 of fast does not divide its 9 samples"),
    ],
)
def test_shares_that_do_not_come_out_are_named(
    held: tuple[tuple[str, int, float], ...], strategy: LayerStrategy, word: str
) -> None:
    assert word in (batch_partition_violation(stage(*held), strategy, SAMPLES) or "")


def test_a_third_written_in_decimals_is_a_third() -> None:
    assert batch_share_violation(stage((FAST, 1, 2 / 3), (SLOW, 1, 0.3333333)), SAMPLES) is None


def random_stage(source: random.Random) -> tuple[Stage, LayerStrategy]:
    while True:
        strategy = source.choice(SPLITS)
        counts = [source.choice([1, 2, 3, 4, 6]) for _ in range(source.choice([1, 1, 2]))]
        shares: list[float | None] = [None] if len(counts) == 1 else [0.75, 0.25]
        held = zip((FAST, SLOW), counts, shares, strict=False)
        found = stage(*held)
        if batch_partition_violation(found, strategy, SAMPLES) is None:
            return found, strategy


@pytest.mark.parametrize("seed", range(60))
def test_every_rank_gets_every_row_once_from_a_rank_that_holds_it(seed: int) -> None:
    source = random.Random(seed)
    held, wanted = (activation_blocks(*random_stage(source), SAMPLES, SEQ_LEN) for _ in range(2))
    got: list[Counter[tuple[int, int]]] = [Counter() for _ in wanted]
    for message in messages(held, wanted):
        rows = numbers(message.block)
        assert rows <= numbers(held[message.source])
        got[message.target].update(rows)
    for block, rows in zip(wanted, got, strict=True):
        assert rows == Counter(numbers(block))


@pytest.mark.parametrize("seed", range(20))
def test_stages_that_are_alike_send_rank_to_rank(seed: int) -> None:
    held = activation_blocks(*random_stage(random.Random(seed)), SAMPLES, SEQ_LEN)
    found = [(m.source, m.target, m.block) for m in messages(held, held)]
    assert found == [(rank, rank, block) for rank, block in enumerate(held)]


def test_equal_holders_share_the_sending() -> None:
    held = activation_blocks(stage((FAST, 2, None)), TP2, SAMPLES, SEQ_LEN)
    wanted = activation_blocks(stage((FAST, 4, None)), TP2, SAMPLES, SEQ_LEN)
    assert [(m.source, m.target) for m in messages(held, wanted)] == [
        (0, 0), (0, 2), (1, 1), (1, 3)
    ]  # fmt: skip


def test_activations_arrive_as_the_layer_before_left_them_only_between_equal_stages() -> None:
    base = Case(name="", global_batch=8, micro_batch=4)
    alike = MixedCase(name="", held=(ranks(2), ranks(2)), strategies=(TP2, PLAIN), base=base)
    other = MixedCase(name="", held=(ranks(2), ranks(1)), strategies=(TP2, PLAIN), base=base)
    assert entry_strategy(alike.plan(), 1, 0) == TP2
    assert entry_strategy(other.plan(), 1, 0) == PLAIN
    assert entry_strategy(other.plan(), 0, 0) is None
