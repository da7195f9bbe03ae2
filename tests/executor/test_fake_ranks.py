"""Collectives of large worlds: one rank at a time on a process group without peers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest
import torch
from lowering_check import Comparison, compare, executor_stack, recorded_items
from plan_cases import Case, Sizes, random_case
from rank_jobs import make_engine, recorded_step

from shardwright.costmodel.step import step_work
from shardwright.spec.kernels import Collective

SIZES = Sizes(blocks=4, hidden=64, heads=8, kv_heads=8, ffn=128, vocab=512)
FakeRanks = Callable[[int, int], AbstractContextManager[None]]


def large_case(ranks: int, seed: int) -> Case:
    stages = random.Random(f"{ranks} {seed}").choice([1, 2, 4])
    case = random_case(seed, ranks=ranks, stages=stages, sizes=SIZES)
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


@pytest.mark.parametrize("seed", range(20))
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


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("flash", [True, False], ids=["flash", "unfused"])
@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize("tp", [1, 2, 4])
@pytest.mark.parametrize(
    "family", [{}, {"gpt2": True}, {"qk_norm": True}, {"kv_heads": 4}], ids=str
)
def test_one_layer_in_every_split(
    family: dict[str, int],
    tp: int,
    samples: int,
    flash: bool,
    recompute: str,
    fake_ranks: FakeRanks,
) -> None:
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
