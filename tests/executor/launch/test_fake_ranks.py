"""Collectives of large worlds: one rank at a time on a process group without peers."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest
import torch
from checks.lowering_check import Comparison, compare, executor_stack, recorded_items
from generators.plan_cases import Case, Sizes, random_case
from ranks.rank_jobs import make_engine, recorded_step

from shardwright.costmodel.lowering.step_work import step_work
from shardwright.spec.report.work_items import Collective

SIZES = Sizes(blocks=4, hidden=64, heads=8, kv_heads=8, ffn=128, vocab=512)
FakeRanks = Callable[[int, int], AbstractContextManager[None]]


def large_case(ranks: int, seed: int, splits: bool = False) -> Case:
    stages = random.Random(f"{ranks} {seed}").choice([1, 2, 4])
    case = random_case(seed, ranks=ranks, stages=stages, sizes=SIZES, splits=splits)
    return replace(case, seq_len=16, global_batch=max(2, stages) * case.micro_batch)


def stages_of(case: Case, seed: int) -> list[int]:
    """The first stage, the last and one between."""
    between = random.Random(seed).randrange(case.stages)
    return sorted({0, case.stages - 1, between})


def look(case: Case, rank: int, fake_ranks: FakeRanks) -> Comparison:
    plan = case.plan()
    with fake_ranks(rank, case.ranks):
        engine = make_engine(plan, rank, torch.device("cpu"), case.flash)
        return compare(case, plan, recorded_step(engine))


SEEDS = [seed if seed % 2 else pytest.param(seed, marks=pytest.mark.evidence) for seed in range(20)]
"""The odd ones hold every schedule, family, recomputation and level of sharding of all."""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ranks", [16, 64, 1024])
def test_collectives_match_exactly(ranks: int, seed: int, fake_ranks: FakeRanks) -> None:
    case = large_case(ranks, seed)
    width = ranks // case.stages
    for stage in stages_of(case, seed):
        # low places hold whole shards, as the lowering's representative rank does
        place = random.Random(seed).randrange(min(width, 8)) if stage else 0
        found = look(case, stage * width + place, fake_ranks)
        assert found.collectives_apart == {}, (stage, place)
        assert found.recorded_flops == found.lowered_flops, (stage, place)
        assert place or found.kernels_apart == {}, stage


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("ranks", [16, 64])
def test_rings_and_exchanges_match_exactly(ranks: int, seed: int, fake_ranks: FakeRanks) -> None:
    case = large_case(ranks, seed, splits=True)
    for stage in stages_of(case, seed):
        found = look(case, stage * (ranks // case.stages), fake_ranks)
        assert found.collectives_apart == {}, stage
        assert found.recorded_flops == found.lowered_flops, stage
        assert found.kernels_apart == {}, stage


@pytest.mark.parametrize("seed", range(5))
def test_the_last_rank_holds_the_same_groups(seed: int, fake_ranks: FakeRanks) -> None:
    """Its shards may be short, so only what a collective is and whom it joins is compared."""
    case = large_case(1024, seed)
    plan = case.plan()
    with fake_ranks(1023, 1024):
        engine = make_engine(plan, 1023, torch.device("cpu"), case.flash)
        _, recorded = recorded_items(recorded_step(engine))
    lowered = step_work(plan, executor_stack(case.flash), case.stages - 1)
    groups = [Counter[object](), Counter[object]()]
    for collective, count in recorded.items():
        groups[0][collective.kind, collective.ranks, collective.stride] += count
    for item in lowered:
        if isinstance(item, Collective):
            groups[1][item.kind, item.ranks, item.stride] += 1
    assert groups[0] == groups[1]


FAMILIES: tuple[dict[str, int], ...] = ({}, {"gpt2": True}, {"qk_norm": True}, {"kv_heads": 4})
Split = tuple[dict[str, int], int, str, int, bool]
EVERY_SPLIT: list[Split] = [
    (family, tp, recompute, samples, flash)
    for family in FAMILIES
    for tp in (1, 2, 4)
    for recompute in ("none", "selective", "full")
    for samples in (1, 2)
    for flash in (True, False)
]
"""Four neighbours differ in samples and attention only."""
QUICK_SPLITS = [
    EVERY_SPLIT[4 * n + (n % 3 + n // 3 % 3 + n // 9) % 4] for n in range(len(EVERY_SPLIT) // 4)
]


@pytest.mark.parametrize("split", QUICK_SPLITS, ids=str)
def test_one_layer_in_a_quarter_of_all_splits(split: Split, fake_ranks: FakeRanks) -> None:
    check_one_layer(split, fake_ranks)


@pytest.mark.evidence
@pytest.mark.parametrize("split", EVERY_SPLIT, ids=str)
def test_one_layer_in_every_split(split: Split, fake_ranks: FakeRanks) -> None:
    check_one_layer(split, fake_ranks)


def test_the_quarter_pairs_every_value_with_every_other() -> None:
    columns = range(len(EVERY_SPLIT[0]))
    for a, b in itertools.combinations(columns, 2):
        pairs = {(str(split[a]), str(split[b])) for split in EVERY_SPLIT}
        assert pairs == {(str(split[a]), str(split[b])) for split in QUICK_SPLITS}


def check_one_layer(split: Split, fake_ranks: FakeRanks) -> None:
    family, tp, recompute, samples, flash = split
    sizes = replace(Sizes(blocks=1, hidden=64, kv_heads=4, ffn=160, vocab=512), **family)
    for sequence_parallel in ("none", "megatron")[: 1 + (tp > 1)]:
        case = Case(
            name="one layer",
            sizes=sizes,
            ranks=tp,
            strategies=replace(
                Case(name="").strategies,
                tp=tp,
                sequence_parallel=sequence_parallel,
                recompute=recompute,
            ),
            global_batch=samples,
            micro_batch=samples,
            seq_len=64,
            flash=flash,
        )
        plan = case.plan()
        with fake_ranks(0, tp):
            engine = make_engine(plan, 0, torch.device("cpu"), flash)
            found = compare(case, plan, recorded_step(engine))
        assert (found.kernels_apart, found.collectives_apart) == ({}, {})
        assert found.recorded_flops == found.lowered_flops
