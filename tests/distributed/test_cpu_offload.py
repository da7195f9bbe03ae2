"""States on the host, on real ranks: what is held where, and that nothing else changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from checks.live_bytes_check import TOLERANCE, peak_apart
from checks.lowering_check import check_lowering, executor_stack
from checks.run_checks import check_case, check_run
from generators.family_cases import FamilyCase, t5
from generators.plan_cases import PLAIN, Case, Sizes, sharded
from ranks.checkpoint_matrix import SAME_BOUND, apart
from ranks.expert_runs import MIXTRAL, spread
from ranks.rank_pools import RankPool
from toys.technique_ranks import TechniqueRankSuite

from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.simulation.simulator import Simulator
from shardwright.costmodel.techniques import TECHNIQUES as PRICES
from shardwright.executor.launch.pool import TRAIN_JOB
from shardwright.spec.model.layer_parameters import layer_parameters
from shardwright.spec.model.layers import BlockLayer
from shardwright.spec.plan.plan import Plan
from shardwright.spec.plan.relative_position_bias import bias_holders
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.technique_values import with_value
from shardwright.spec.techniques import TECHNIQUES as VALUES
from shardwright.spec.techniques.cpu_offload import CpuOffload

NAME = "cpu_offload"
SIZES = Sizes(blocks=2, hidden=64, ffn=160, vocab=512)
TP2 = LayerStrategy(tp=2, sequence_parallel="megatron")
SAVED_AT, LAST = 2, 5


def offloaded(strategy: LayerStrategy, parameters: bool = False) -> LayerStrategy:
    return with_value(strategy, NAME, CpuOffload(parameters=parameters))


def everything(level: str, ranks: int) -> LayerStrategy:
    """Parameters too."""
    return offloaded(sharded(level, ranks), parameters=True)


SOME = Case(
    name="some layers",
    micro_batch=4,
    strategies=[
        sharded("zero3", 2),
        offloaded(sharded("zero2", 2)),
        everything("zero3", 2),
        sharded("zero1", 2),
    ],
)


class TestCpuOffload(TechniqueRankSuite):
    values, prices, name = VALUES, PRICES, NAME
    cases = (SOME, Case(name="tp", strategies=offloaded(replace(TP2, recompute="full"))))


@pytest.mark.parametrize(
    "case",
    [
        SOME,
        Case(name="dp", strategies=offloaded(PLAIN)),
        Case(name="zero1", strategies=offloaded(sharded("zero1", 2)), dtype="bf16"),
        Case(name="all", strategies=everything("zero3", 2)),
        Case(name="all in bf16", strategies=everything("zero3", 2), dtype="bf16", micro_batch=4),
        Case(name="pipeline", stages=2, strategies=offloaded(PLAIN)),
    ],
    ids=lambda case: case.name,
)
def test_each_tier_holds_what_is_predicted(two_ranks: RankPool, case: Case) -> None:
    """The device's peak within the usual tolerance, the host's bytes exactly."""
    case = replace(case, sizes=SIZES, seq_len=64, ranks=2)
    plan = case.plan()
    predicted = rows(plan)
    payload = {"plan": plan.to_document(), "flash": True, "steps": 3}
    for traced in two_ranks.run("ranks.rank_jobs:live_bytes", payload):
        stage = traced["stage"]
        assert peak_apart(predicted[stage, "hbm"], min(traced["peak_bytes"])) <= TOLERANCE
        assert predicted[stage, "host"] == traced["host_bytes"]


def rows(plan: Plan) -> dict[tuple[int, str], int]:
    found = Simulator.for_plan(plan, Machine(plan.cluster), executor_stack(True)).run(plan)
    assert found is not None
    return {(row.stage, row.tier): row.allocated_bytes for row in found.memory}


def test_what_leaves_the_device_is_gone_from_it(two_ranks: RankPool) -> None:
    """What lives between steps is less by the states' bytes, and by the shards' with ``all``."""
    plain, optimizer, whole = (
        Case(name="", strategies=s, sizes=SIZES, seq_len=64, ranks=2)
        for s in (sharded("zero3", 2), offloaded(sharded("zero3", 2)), everything("zero3", 2))
    )
    resident = []
    for case in (plain, optimizer, whole):
        payload = {"plan": case.plan().to_document(), "steps": 1}
        resident.append(two_ranks.run("ranks.rank_jobs:live_bytes", payload)[0]["resident_bytes"])
    specs = layer_parameters(plain.plan().model.layers()[1], 64)
    elements = 2 * sum(spec.elements for spec in specs) // 2
    counts = 2 * len(specs) * 4
    assert resident[0] - resident[1] == 8 * elements + counts
    assert resident[1] - resident[2] == 4 * elements


FOUR = (
    Case(name="tp2 in dp2", strategies=offloaded(TP2)),
    Case(
        name="mixed",
        micro_batch=8,
        strategies=[
            sharded("zero1", 4),
            offloaded(LayerStrategy(tp=2, shard=sharded("zero3", 2).shard), parameters=True),
            everything("hsdp:2", 4),
            replace(offloaded(TP2), recompute="full"),
            offloaded(PLAIN),
            sharded("zero3", 4),
        ],
    ),
    Case(name="zero3 in stages", stages=2, strategies=everything("zero3", 2)),
    Case(
        name="zero bubble", stages=2, kind="zero_bubble", strategies=offloaded(sharded("zero1", 2))
    ),
    Case(
        name="interleaved",
        stages=2,
        chunks=2,
        kind="interleaved",
        sizes=Sizes(gpt2=True, tied=True),
        strategies=everything("zero3", 2),
    ),
)


@pytest.mark.parametrize("case", FOUR, ids=lambda case: case.name)
def test_a_run_is_the_reference_on_four_ranks(four_ranks: RankPool, case: Case) -> None:
    check_run(four_ranks, case.plan())


@pytest.mark.parametrize("case", FOUR[1:3], ids=lambda case: case.name)
def test_what_is_priced_is_what_runs_on_four_ranks(four_ranks: RankPool, case: Case) -> None:
    sizes = Sizes(blocks=4, hidden=64, ffn=160, vocab=512)
    check_lowering(four_ranks, replace(case, sizes=sizes, seq_len=64))


def test_tables_that_stages_share_are_summed_first(two_ranks: RankPool) -> None:
    """T5's relative positions: each stage has a copy, and their gradients are summed at the end."""
    case = FamilyCase(name="", model=t5(hidden=64, ffn=160, vocab=512), flash=False, seq_len=64)
    case = replace(case, ranks=2, stages=2, micro_batch=2, boundaries=(2,))
    blocks = [isinstance(layer, BlockLayer) for layer in case.plan().model.layers()]
    case = replace(case, strategies=[offloaded(PLAIN) if block else PLAIN for block in blocks])
    assert bias_holders(case.plan())
    check_case(two_ranks, case)
    check_lowering(two_ranks, case)


def test_states_of_experts_may_be_on_the_host(four_ranks: RankPool) -> None:
    case = spread(Case(name="experts", sizes=MIXTRAL), LayerStrategy(ep=2), "zero1")
    strategies = case.layer_strategies()
    moved = [strategies[0], *map(offloaded, strategies[1:-1]), strategies[-1]]
    check_run(four_ranks, replace(case, strategies=moved).plan())


def test_the_host_s_update_is_the_device_s(four_ranks: RankPool) -> None:
    """To the last bit: with every gradient clipped, losses are those of the plan without it."""
    case = replace(FOUR[1], clip=0.05)
    plain = [replace(strategy, techniques={}) for strategy in case.layer_strategies()]
    found = [train(four_ranks, c.plan(), 4) for c in (case, replace(case, strategies=plain))]
    assert [x.hex() for x in found[0]] == [x.hex() for x in found[1]]


@pytest.mark.parametrize("parameters", [False, True])
def test_an_overflowing_step_changes_nothing(four_ranks: RankPool, parameters: bool) -> None:
    strategy = offloaded(sharded("zero3", 4), parameters)
    plan = Case(name="fp16", dtype="fp16", strategies=strategy).plan()
    found = four_ranks.run("ranks.rank_jobs:overflow", {"plan": plan.to_document()})
    assert all(one == found[0] for one in found)
    assert found[0]["skipped"] == [True, False]
    assert found[0]["moved"] == [False, True]


def test_the_device_has_what_the_host_updated(two_ranks: RankPool) -> None:
    """After a step, and after weights were put back; where parameters stay there, nothing."""
    plan = replace(SOME, sizes=SIZES, ranks=2).plan()
    payload = {"plan": plan.to_document(), "technique": NAME}
    for rank in two_ranks.run("toys.technique_jobs:copies", payload):
        assert set(rank["stepped"].values()) == {"equal", "freed"}
        assert rank["put_back"] == rank["stepped"]
        assert {k for k, v in rank["stepped"].items() if v == "freed"} == set(rank["layer 2"])
        assert rank["moved"]


def test_gradients_leave_while_other_layers_go_backward(two_ranks: RankPool) -> None:
    """Whatever reduces them; not where a backward is split, whose parts complete them together."""
    layers = replace(SOME, sizes=Sizes(blocks=2), ranks=2).plan()
    split = replace(FOUR[3], ranks=2, strategies=offloaded(PLAIN)).plan()
    for plan, expected in ((layers, [1, 2]), (split, [])):
        payload = {"plan": plan.to_document(), "technique": NAME}
        for found in two_ranks.run("toys.technique_jobs:copied_in_backward", payload):
            assert found == expected


def train(pool: RankPool, plan: Plan, steps: int, **checkpoint: Any) -> list[float]:
    payload = {"plan": plan.to_document(), "steps": steps, "random_tokens": True}
    result = pool.run(TRAIN_JOB, {**payload, "follow_bytes": False, "checkpoint": checkpoint})[0]
    losses: list[float] = result["measured"]["losses"]
    return losses


def test_checkpoints_go_on_with_and_without_it(two_ranks: RankPool, tmp_path: Path) -> None:
    """Bit-equal under the same plan; what is offloaded may be another in the next."""
    some = replace(SOME, sizes=Sizes(blocks=2), ranks=2)
    plain = replace(some, strategies=[replace(s, techniques={}) for s in some.layer_strategies()])
    whole = replace(some, strategies=everything("zero3", 2)).plan()
    for saved, other in ((some.plan(), plain.plan()), (plain.plan(), whole)):
        folder = tmp_path / saved.hash[-8:]
        losses = train(two_ranks, saved, LAST, folder=str(folder), every=SAVED_AT)
        source = str(folder / f"step-{SAVED_AT:08d}")
        if saved == some.plan():
            again = train(two_ranks, saved, LAST, resume=source)
            assert [x.hex() for x in again] == [x.hex() for x in losses[SAVED_AT:]]
        found = train(two_ranks, other, LAST, resume=source)
        assert apart(found, losses[SAVED_AT:]) <= SAME_BOUND
