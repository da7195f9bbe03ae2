"""Degrees that are no level: bytes and traffic of each state follow its own degree."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from generators.catalogue_problems import problem
from generators.plan_cases import LLAMA, Sizes

from shardwright.api.planning.report import simulate_plan
from shardwright.api.planning.uniform_plan import UniformStrategy, uniform_plan
from shardwright.costmodel.sharding.fsdp_unit import FsdpUnit
from shardwright.costmodel.sharding.param_groups import UnitShape
from shardwright.costmodel.sharding.state_layouts import lower_unit
from shardwright.costmodel.symbolic.tape import WorkItem
from shardwright.datasets.catalogue.stack import stack
from shardwright.spec.cluster.stack_spec import StackSpec
from shardwright.spec.errors import InputError
from shardwright.spec.model.layers import BlockLayer
from shardwright.spec.parallel.rank_groups import RankGroup, stage_groups
from shardwright.spec.report.report import Prediction
from shardwright.spec.report.work_items import Collective
from shardwright.spec.rules.layer_rules import layer_violation
from shardwright.spec.strategy import LayerStrategy, Sharding
from shardwright.spec.workload.workload import DtypeRecord

RANKS = 32
SEQ_LEN = 64
BF16, FP32 = DtypeRecord.from_shorthand("bf16"), DtypeRecord.from_shorthand("fp32")
BLOCK = next(x for x in Sizes(hidden=64, ffn=128).model().layers() if isinstance(x, BlockLayer))
NESTED = [
    (p, g, o) for p, g, o in itertools.product((1, 2, 8, 32), repeat=3) if g % p == 0 == o % g
]


def unit(
    shard: Sharding,
    dtype: DtypeRecord = BF16,
    used: StackSpec | None = None,
    strategy: LayerStrategy | None = None,
) -> FsdpUnit:
    plain = strategy or LayerStrategy()
    chosen = LayerStrategy(
        tp=plain.tp, cp=plain.cp, sequence_parallel=plain.sequence_parallel, shard=shard
    )
    assert layer_violation(BLOCK, chosen, RANKS, RANKS, SEQ_LEN) is None
    return lower_unit(
        UnitShape(
            layers=(BLOCK,),
            strategy=chosen,
            stage_ranks=RANKS,
            seq_len=SEQ_LEN,
            dtype=dtype,
            stack=used or stack("shardwright"),
        )
    )


def of(p: int, g: int, o: int, second: int = 1) -> Sharding:
    return Sharding(parameters=p, gradients=g, optimizer=o, secondary_parameters=second)


def wires(items: tuple[WorkItem, ...]) -> list[tuple[str, int, int, int]]:
    return [
        (c.kind, c.ranks, c.stride, c.payload_bytes) for c in items if isinstance(c, Collective)
    ]


WHOLE = unit(of(1, 1, 1)).local_elements
"""Every dimension 0 of the block divides by 32, so nothing is padded but the norms."""
PADDED = unit(of(32, 32, 32)).flat_bytes // 2


@pytest.mark.parametrize(("p", "g", "o"), NESTED)
def test_every_degree_has_its_own_bytes(p: int, g: int, o: int) -> None:
    found, whole = unit(of(p, g, o)), unit(of(1, 1, 1))
    padded = found.whole_bytes // 2
    masters, pieces = 4 * padded // o, 2 * padded // p if 1 < p < o else 0
    assert found.parameter_bytes == masters + pieces
    assert found.optimizer_bytes - 2 * 4 * padded // o == whole.optimizer_bytes - 8 * WHOLE
    assert found.shard_gradient_bytes == 4 * padded // (g if g > 1 else o)
    fp32 = unit(of(p, g, o), FP32)
    assert fp32.parameter_bytes == 4 * padded // (p if p > 1 else o)


@pytest.mark.parametrize(("p", "g", "o"), NESTED)
def test_a_steps_traffic_is_that_of_its_levels(p: int, g: int, o: int) -> None:
    """Of one micro-batch and one step; rings of n ranks send (n - 1)/n of what they join."""
    found = unit(of(p, g, o))
    gathered = p if p > 1 else o
    padded = found.whole_bytes // 2
    gather = [("all_gather", gathered, 1, 2 * padded)] if gathered > 1 else []
    assert wires(found.gather.forward) == wires(found.gather.backward) == gather
    outer_gather = [("all_gather", o // p, p, 2 * padded // p)] if 1 < p < o else []
    assert wires(found.gather.outer) == outer_gather
    reduced, replicas = g if g > 1 else o, RANKS // o
    scatter = [("reduce_scatter", reduced, 1, 4 * padded)] if reduced > 1 else []
    across = [("all_reduce", replicas, o, 4 * padded // o)] if replicas > 1 else []
    nested = 1 < g < o
    assert wires(found.reduce.fresh) == scatter + ([] if nested else across)
    settled = [("reduce_scatter", o // g, g, 4 * padded // g), *across] if nested else []
    assert wires(found.reduce.outer) == settled


def test_levels_cost_what_they_did() -> None:
    for degrees in ((1, 1, 32), (1, 32, 32), (32, 32, 32), (8, 8, 8), (1, 1, 1)):
        found = unit(of(*degrees))
        assert found.gather.outer == found.reduce.outer == ()
        assert found.gather.forward == found.gather.backward


def test_secondary_parameters_serve_the_backward_pass() -> None:
    plain, hpz = unit(of(32, 32, 32)), unit(of(32, 32, 32, second=8))
    assert wires(hpz.gather.forward) == wires(plain.gather.forward)
    assert wires(hpz.gather.backward) == [("all_gather", 8, 1, 2 * PADDED)]
    assert hpz.parameter_bytes - plain.parameter_bytes == 2 * PADDED // 8
    assert hpz.reduce.fresh == plain.reduce.fresh


def test_instances_of_a_distributed_optimizer_reduce_inside_and_sum_across() -> None:
    """Megatron-LM --num-distributed-optimizer-instances: 4 instances of 8 ranks."""
    megatron = stack("megatron")
    one, four = unit(of(1, 1, 32), used=megatron), unit(of(1, 1, 8), used=megatron)
    assert [w[:3] for w in wires(one.reduce.fresh)] == [("reduce_scatter", 32, 1)]
    assert [w[:3] for w in wires(four.reduce.fresh)] == [
        ("reduce_scatter", 8, 1),
        ("all_reduce", 4, 8),
    ]
    assert [w[:3] for w in wires(four.post_update)] == [("all_gather", 8, 1)]
    assert four.optimizer_bytes == 4 * one.optimizer_bytes
    assert four.parameter_bytes == one.parameter_bytes


def test_states_shard_over_every_rank_that_holds_equal_weights() -> None:
    full = of(32, 32, 32)
    plain = unit(full)
    for strategy in (
        LayerStrategy(cp=4),
        LayerStrategy(tp=2, sequence_parallel="ulysses"),
        LayerStrategy(tp=2, cp=4, sequence_parallel="ulysses"),
    ):
        assert unit(full, strategy=strategy) == plain
    beside_tp = unit(of(8, 8, 8), strategy=LayerStrategy(tp=2, cp=2))
    assert wires(beside_tp.gather.forward)[0][1:3] == (8, 2)


@pytest.mark.parametrize(("p", "g", "o"), NESTED)
@pytest.mark.parametrize("strategy", [LayerStrategy(tp=2), LayerStrategy(cp=4)])
def test_groups_of_states_partition_the_ranks(
    p: int, g: int, o: int, strategy: LayerStrategy
) -> None:
    ranks = RANKS * strategy.weight_split
    sharded = LayerStrategy(tp=strategy.tp, cp=strategy.cp, shard=of(p, g, o))
    groups = stage_groups([sharded], ranks)
    needed = unit_groups(sharded, ranks)
    assert needed <= {*groups}
    for group in groups:
        members = Counter(r for rank in range(ranks) for r in {*group.members(rank)})
        assert set(members.values()) == {group.size}
        assert all(rank in group.members(rank) for rank in range(ranks))
        assert max(members) < ranks


def unit_groups(strategy: LayerStrategy, ranks: int) -> set[RankGroup]:
    found = lower_unit(
        UnitShape(
            layers=(BLOCK,),
            strategy=strategy,
            stage_ranks=ranks,
            seq_len=SEQ_LEN,
            dtype=BF16,
            stack=stack("shardwright"),
        )
    )
    every = (
        found.gather.forward,
        found.gather.backward,
        found.gather.outer,
        found.reduce.fresh,
        found.reduce.outer,
    )
    return {RankGroup(w[1], w[2]) for items in every for w in wires(items)}


def predicted(shard: str, stack_name: str = "shardwright", batch: int = 128) -> Prediction:
    asked = problem("gpt2-xl", "4x8xH100", batch, 1024, stack=stack_name)
    plan, _ = uniform_plan(asked, UniformStrategy(shard=shard))
    return simulate_plan(plan, asked.stack, asked.measured, ()).report.prediction


def test_memory_is_ordered_by_every_degree() -> None:
    held = {
        shard: predicted(shard).memory[0].by
        for shard in ("zero3", "8/8/32", "2/8/32", "hpz", "hsdp", "1/1/32", "1/1/8")
    }
    for term, order in {
        "parameters": ("zero3", "8/8/32", "2/8/32", "1/1/32"),
        "gradients": ("zero3", "8/8/32", "1/1/32"),
        "optimizer": ("zero3", "1/1/8"),
    }.items():
        sizes = [held[shard][term] for shard in order]
        assert sizes == sorted(sizes)
        assert len({*sizes}) == len(sizes)
    assert held["8/8/32"]["optimizer"] == held["zero3"]["optimizer"]
    same = held["hsdp"]["gradients"]  # but for rows that 8 parts pad less than 32
    assert held["8/8/32"]["gradients"] == pytest.approx(same, rel=1e-4)
    assert held["hpz"]["parameters"] > held["zero3"]["parameters"]


def test_gathers_inside_a_node_show_less_than_gathers_across() -> None:
    """What the nodes do not exchange for each micro-batch does not show."""
    exposed = {
        shard: predicted(shard, batch=1024).breakdown_s["exposed_dp"]
        for shard in ("zero3", "hpz", "8/8/32")
    }
    assert exposed["8/8/32"] < exposed["hpz"] < exposed["zero3"]


def test_more_instances_cost_memory_and_reduce_over_fewer_nodes() -> None:
    one, four = (predicted(shard, "megatron") for shard in ("1/1/32", "1/1/8"))
    assert four.memory[0].by["optimizer"] > 3.9 * one.memory[0].by["optimizer"]
    assert four.memory[0].by["parameters"] == one.memory[0].by["parameters"]


def test_degrees_read_as_they_were_typed() -> None:
    for text in ("zero1", "zero3", "hsdp:8", "hpz:8", "8/8/32", "1/8/32", "1/1/8"):
        assert Sharding.from_text(text, 32).level_name(32) == text
    assert of(8, 8, 32, second=2).level_name(32) == "8/8/32+hpz:2"


@pytest.mark.parametrize("text", ["hpz:1", "hpz:32", "hpz:64", "hpz:5", "hpz:", "8/8"])
def test_degrees_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        Sharding.from_text(text, 32)


@pytest.mark.parametrize(
    ("shard", "words"),
    [
        (of(8, 2, 32), "nest"),
        (of(1, 1, 5), "does not divide dp 32"),
        (of(8, 8, 8, second=8), "must divide"),
        (of(1, 1, 8, second=2), "must divide"),
        (of(32, 32, 32, second=5), "secondary_parameters 5 does not divide"),
    ],
)
def test_shardings_that_do_not_nest_are_named(shard: Sharding, words: str) -> None:
    block = next(x for x in LLAMA.model().layers() if isinstance(x, BlockLayer))
    reason = layer_violation(block, LayerStrategy(shard=shard), RANKS, RANKS, SEQ_LEN)
    assert reason is not None
    assert words in reason
