"""Plans with experts: states, traffic, memory and time of a step."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace
from functools import cache

import pytest
from generators.catalogue_problems import problem
from generators.expert_cases import MIXTURES, PLAIN, SEQ_LEN, ExpertCase, block_of, model_of, splits

import shardwright as sw
from shardwright.api.planning.uniform_plan import UniformStrategy, uniform_plan
from shardwright.costmodel.explain.breakdown import breakdown, predict
from shardwright.costmodel.lowering.model_flops import model_flops_per_sample
from shardwright.costmodel.lowering.stage_passes import PassKind
from shardwright.costmodel.lowering.step_work import step_work
from shardwright.costmodel.memory.feasibility import MemoryRule
from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.sharding.fsdp_unit import FsdpUnit
from shardwright.costmodel.sharding.param_groups import UnitShape, param_groups
from shardwright.costmodel.sharding.state_layouts import lower_unit
from shardwright.costmodel.simulation.event_simulation import simulate_events
from shardwright.costmodel.simulation.layer_slots import layer_slots
from shardwright.costmodel.simulation.simulator import Simulation, Simulator
from shardwright.costmodel.simulation.step_end import communicators
from shardwright.datasets.catalogue.stack import stack
from shardwright.spec.model.feed_forward import Mlp, Moe
from shardwright.spec.model.layer_parameters import layer_parameters
from shardwright.spec.model.model_spec import BlockLayer
from shardwright.spec.parallel.rank_groups import stage_groups
from shardwright.spec.report.work_items import Collective
from shardwright.spec.strategy import LayerStrategy, Sharding
from shardwright.spec.workload.workload import DtypeRecord

RANKS = 8
MOE = Moe(**PLAIN)
LARGE = Moe(experts=16, topk=2, ffn=1024)
BF16, FP32 = (DtypeRecord.from_shorthand(name) for name in ("bf16", "fp32"))
LEVELS = ("zero0", "zero1", "zero2", "zero3")


def shape_of(
    layer: BlockLayer, strategy: LayerStrategy, name: str = "shardwright", ranks: int = RANKS
) -> UnitShape:
    return UnitShape(
        layers=(layer,),
        strategy=strategy,
        stage_ranks=ranks,
        seq_len=SEQ_LEN,
        dtype=BF16,
        stack=stack(name),
    )


def unit(layer: BlockLayer, strategy: LayerStrategy, name: str = "shardwright") -> FsdpUnit:
    return lower_unit(shape_of(layer, strategy, name))


def sharded(strategy: LayerStrategy, level: str) -> LayerStrategy:
    same = strategy.state_ranks(RANKS)
    return replace(strategy, shard=Sharding.from_text(level, same))


@cache
def simulated(case: ExpertCase) -> tuple[Simulation, Simulator]:
    plan = case.plan()
    simulator = Simulator.for_plan(plan, Machine(plan.cluster), stack("shardwright"))
    found = simulator.run(plan)
    assert found is not None
    return found, simulator


def case_of(ep: int = 1, moe: Moe = LARGE, **fields: object) -> ExpertCase:
    model = model_of(moe, hidden=512)
    plain = {"model": model, "strategy": LayerStrategy(ep=ep), "seq_len": 256}
    return ExpertCase(**(plain | fields))  # type: ignore[arg-type]


def test_parts_of_all_ranks_make_the_model() -> None:
    """Each part times the ranks that split it is every parameter once; so are its shards."""
    for moe in MIXTURES:
        layer = block_of(moe)
        specs = layer_parameters(layer, SEQ_LEN)
        for strategy, level in itertools.product(splits(layer, RANKS), LEVELS):
            parts = param_groups(shape_of(layer, sharded(strategy, level)))
            dense, experts = parts
            split = strategy.ep * strategy.etp
            of_experts = sum(spec.elements for spec in specs if spec.expert)
            down_bias = sum(s.elements for s in specs if s.expert and s.split_dim is None)
            assert experts.whole * split == of_experts + (strategy.etp - 1) * down_bias
            whole = sum(
                spec.elements * (strategy.tp if spec.split_dim is None else 1)
                for spec in specs
                if not spec.expert
            )
            assert dense.whole * strategy.tp == whole
            for part, ranks in ((dense, RANKS // strategy.tp), (experts, RANKS // split)):
                assert part.ranks.size * part.replicas.size == ranks
                assert part.whole <= part.padded
                assert part.padded - part.whole < part.degree * part.whole


def test_experts_shard_over_all_that_hold_them_where_the_layer_does() -> None:
    layer = block_of(MOE)
    for strategy in splits(layer, RANKS):
        same = RANKS // (strategy.ep * strategy.etp)
        whole = strategy.state_ranks(RANKS)
        for level in LEVELS:
            found = param_groups(shape_of(layer, sharded(strategy, level)))[1]
            expected = 1 if level == "zero0" or whole == 1 else same
            assert found.degree == expected, (strategy, level)
            assert found.ranks.stride == strategy.ep * strategy.etp


@pytest.mark.parametrize("degree", [2, 4, 8])
def test_experts_shard_no_farther_than_the_dense_parts(degree: int) -> None:
    layer, tried = block_of(MOE), 0
    for strategy in splits(layer, RANKS):
        if strategy.state_ranks(RANKS) % degree:
            continue
        tried += 1
        shard = Sharding(parameters=degree, gradients=degree, optimizer=degree)
        dense, experts = param_groups(shape_of(layer, replace(strategy, shard=shard)))
        held = strategy.ep * strategy.etp
        same = range(0, dense.ranks.members(0)[-1] + strategy.weight_split, held)
        assert experts.ranks.members(0) == tuple(same), strategy
        assert experts.replicas.size * len(same) * held == RANKS
    assert tried


def test_experts_whole_in_a_node_are_gathered_between_nodes_once_a_step() -> None:
    """Parameters and gradients of dense parts over 4 of 8 ranks, experts of 4: whole there."""
    strategy = replace(LayerStrategy(ep=4), shard=Sharding.from_text("4/4/8", RANKS))
    found, part = unit(block_of(LARGE), strategy), param_groups(shape_of(block_of(LARGE), strategy))
    experts = part[1]
    assert (experts.parameters, experts.gradients, experts.degree) == (1, 1, 2)
    assert (experts.nests_parameters, experts.nests_gradients) == (True, True)
    near = [*found.gather.forward, *found.gather.backward, *found.reduce.fresh]
    spans = [(i.ranks - 1) * i.stride for i in near if isinstance(i, Collective)]
    assert spans == [3, 3, 3]
    far = [*found.gather.outer, *found.reduce.outer]
    sent = [(i.kind, i.ranks, i.stride) for i in far if isinstance(i, Collective)]
    assert sent == [(kind, 2, 4) for kind in ("all_gather", "reduce_scatter") for _ in range(2)]
    assert found.parameter_bytes > 2 * experts.whole + 4 * experts.shard


def test_hsdp_of_a_node_keeps_experts_of_two_nodes_whole() -> None:
    """Mixtral-8x7B on 2x8 H100, ep 8: 8 experts of 32 layers, 2 fp32 moments, over 8 ranks."""
    found = sw.simulate(
        "mixtral-8x7b", "2x8xH100", global_batch=64, seq_len=2048, ep=8, shard="hsdp"
    )
    experts = 8 * 32 * 3 * 4096 * 14336
    dense = 46_702_792_704 - experts
    moments = found.report.prediction.memory[0].by["optimizer"]
    assert moments == pytest.approx((experts + dense) / 8 * 8, rel=1e-3)
    assert moments - dense == pytest.approx(45.1e9, rel=1e-3)
    used = [i for i in step_work(found.plan, stack("shardwright"), 0) if isinstance(i, Collective)]
    assert all((i.ranks - 1) * i.stride < 8 for i in used if i.kind == "all_gather")
    assert {(i.ranks, i.stride) for i in used if i.kind == "all_reduce"} >= {(2, 8)}


def test_a_layer_without_experts_has_one_part() -> None:
    layer = block_of(Mlp(ffn=64))
    (part,) = param_groups(shape_of(layer, LayerStrategy(tp=2)))
    assert part.ranks.stride == 2
    assert part.vectors == 2 * layer.hidden


@pytest.mark.parametrize("name", ["shardwright", "megatron"])
def test_gradients_of_experts_are_summed_over_those_that_hold_them(name: str) -> None:
    """zero0 sums once over dp for dense parameters and over expert dp for experts."""
    layer = block_of(LARGE)
    found = unit(layer, LayerStrategy(ep=4), name)
    work = [item for item in found.reduce.fresh if isinstance(item, Collective)]
    size = 4
    dense, experts = param_groups(shape_of(layer, LayerStrategy(ep=4), name))
    assert [(c.kind, c.ranks, c.stride, c.payload_bytes) for c in work] == [
        ("all_reduce", 8, 1, dense.whole * size),
        ("all_reduce", 2, 4, experts.whole * size),
    ]
    alone = unit(layer, LayerStrategy(ep=8), name)
    assert [c.ranks for c in alone.reduce.fresh if isinstance(c, Collective)] == [8]


@pytest.mark.parametrize("level", ["zero1", "zero2", "zero3"])
def test_each_part_gathers_and_reduces_over_its_own_ranks(level: str) -> None:
    layer = block_of(LARGE)
    strategy = sharded(LayerStrategy(tp=2, sequence_parallel="megatron", ep=2), level)
    found = unit(layer, strategy)
    dense, experts = param_groups(shape_of(layer, strategy))
    gathers = [c for c in found.gather.forward if isinstance(c, Collective)]
    assert [(c.ranks, c.stride, c.payload_bytes) for c in gathers] == [
        (4, 2, 2 * dense.padded),
        (4, 2, 2 * experts.padded),
    ]
    reduces = [c for c in found.reduce.fresh if isinstance(c, Collective)]
    assert [(c.kind, c.ranks, c.payload_bytes) for c in reduces] == [
        ("reduce_scatter", 4, 4 * dense.padded),
        ("reduce_scatter", 4, 4 * experts.padded),
    ]
    assert found.whole_bytes == 2 * (dense.padded + experts.padded)
    assert found.parameter_bytes == 4 * (dense.shard + experts.shard)
    assert found.reduces_each_micro_batch == (level != "zero1")


def test_states_fall_with_expert_parallelism() -> None:
    """A rank keeps 1/ep of the experts: exactly in what it stores, and so does its peak fall."""
    rows = {ep: simulated(case_of(ep))[0].memory[0] for ep in (1, 2, 4, 8)}
    model = model_of(LARGE, hidden=512)
    experts = sum(
        spec.elements
        for layer in model.layers()
        for spec in layer_parameters(layer, SEQ_LEN)
        if spec.expert
    )
    for low, high in itertools.pairwise(rows):
        fewer = experts // low - experts // high
        stored = rows[low].by["optimizer"] - rows[high].by["optimizer"]
        assert stored == 8 * fewer
        assert rows[low].allocated_bytes > rows[high].allocated_bytes
        assert rows[low].by["parameters"] > rows[high].by["parameters"]


def test_the_step_sends_tokens_where_experts_are_and_says_what_that_costs() -> None:
    near, far = (simulated(case_of(ep)) for ep in (1, 4))
    none, some = breakdown(near[0]), breakdown(far[0])
    assert none["exposed_ep"] == 0.0
    assert some["exposed_ep"] > 0.0
    for found, terms in ((near[0], none), (far[0], some)):
        assert math.isclose(sum(terms.values()), found.step_time_s, rel_tol=1e-9)


def test_exposed_time_of_experts_grows_with_rows_and_distance() -> None:
    cheap, dear = (
        breakdown(simulated(case_of(8, moe=replace(LARGE, topk=k), seq_len=8192))[0])["exposed_ep"]
        for k in (1, 4)
    )
    assert dear > 2 * cheap
    near = breakdown(simulated(case_of(8, ranks=16, cluster="2x8xH100"))[0])["exposed_ep"]
    far = breakdown(simulated(case_of(16, ranks=16, cluster="2x8xH100"))[0])["exposed_ep"]
    assert far > near


def test_all_work_of_a_step_is_priced_and_counted() -> None:
    """The step's collectives: tokens a block and micro-batch, and one sum a unit and part."""
    case = case_of(4, microbatches=3)
    work = Counter(
        (item.kind, item.ranks, item.stride)
        for item in step_work(case.plan(), stack("shardwright"), 0)
        if isinstance(item, Collective)
    )
    blocks = 3
    assert work["all_to_all", 4, 1] == 5 * blocks * case.microbatches
    assert work["all_reduce", 2, 4] == blocks


def test_model_flops_do_not_depend_on_the_split() -> None:
    found = {
        ep: predict(case_of(ep).plan(), *simulated(case_of(ep)), MemoryRule()) for ep in (1, 8)
    }
    flops = {ep: p.flops_per_s_per_device * p.step_time_s for ep, p in found.items()}
    assert math.isclose(flops[1], flops[8], rel_tol=1e-12)
    done = {ep: p.hfu * p.step_time_s for ep, p in found.items()}
    assert math.isclose(done[1], done[8], rel_tol=1e-12)
    plan = case_of().plan()
    per_sample = model_flops_per_sample(plan.model, plan.workload)
    active = plan.model.active_param_count() - 2 * 128 * 512
    tokens = plan.workload.seq_len
    attention = 4 * 12 * tokens * tokens * 512
    norms = 9 * 512
    assert per_sample == 6 * (active - norms + 128 * 512) * tokens + attention


def test_communicators_are_the_groups_of_experts_too() -> None:
    strategy = LayerStrategy(tp=2, sequence_parallel="megatron", ep=2, etp=2)
    plan = ExpertCase(model=model_of(MOE), strategy=strategy, shard="zero1").plan()
    plain = stage_groups(plan.stage_strategies(0), RANKS)
    every = stage_groups(plan.stage_strategies(0), RANKS, plan.expert_strategies(0))
    holds_the_same = (2, 4)
    assert set(every) - set(plain) == {(2, 2), holds_the_same}
    assert (2, 1) in every
    assert communicators(plan)[0] == len(every) + 1


@pytest.mark.parametrize("shard", [*LEVELS, "hsdp:2", "2/4/8", "1/2/4", "2/2/4"])
def test_every_collective_of_a_step_has_its_group(shard: str) -> None:
    """What a plan's groups are counted from holds what its work uses; levels use all of it."""
    tried = 0
    for strategy in splits(block_of(MOE), RANKS):
        degrees = [int(word) for word in shard.removeprefix("hsdp:").split("/") if word.isdigit()]
        if any(strategy.state_ranks(RANKS) % degree for degree in degrees):
            continue
        tried += 1
        case = ExpertCase(model=model_of(MOE), strategy=strategy, shard=shard, microbatches=3)
        plan = case.plan()
        used = {
            (item.ranks, item.stride)
            for item in step_work(plan, stack("shardwright"), 0)
            if isinstance(item, Collective) and item.ranks > 1
        }
        groups = stage_groups(plan.stage_strategies(0), RANKS, plan.expert_strategies(0))
        assert used <= {*groups, (RANKS, 1)}, (strategy, shard)
        assert used == {*groups, (RANKS, 1)} or shard not in LEVELS
    assert tried


def test_experts_of_one_rank_each_need_no_sum_and_no_more_memory_for_it() -> None:
    case = case_of(8, shard="zero3")
    plan = case.plan()
    strategy = next(iter(plan.expert_strategies(0)))
    found = param_groups(shape_of(model_of(LARGE, hidden=512).layers()[2], strategy))[1]
    assert (found.degree, found.replicas.size, found.shared) == (1, 1, False)
    held, _ = simulated(case)
    whole, _ = simulated(case_of(1, shard="zero3"))
    assert held.memory[0].by["optimizer"] <= whole.memory[0].by["optimizer"] * 1.01


def test_expert_plans_simulate_under_every_level_and_stack() -> None:
    for strategy, level in itertools.product(splits(block_of(MOE), RANKS), LEVELS):
        case = ExpertCase(model=model_of(MOE), strategy=strategy, shard=level)
        found, _ = simulated(case)
        assert found.step_time_s > 0
        assert all(v >= 0 for row in found.memory for v in row.by.values())
        if level in ("zero0", "zero1"):
            plan = case.plan()
            used = stack("megatron")
            other = Simulator.for_plan(plan, Machine(plan.cluster), used).run(plan)
            assert other is not None
            assert other.memory[0].allocated_bytes > 0


def test_exchanges_share_the_level_of_sharding_traffic() -> None:
    """Hidden exchanges that leave a node delay gathers there; those inside one, which do not."""
    seconds = {}
    for ep, level in itertools.product((8, 16), ("zero3", "zero0")):
        asked = problem(
            "qwen3-30b-a3b", "4x8xH100", 128, 4096, stack="shardwright:expert_overlap=on"
        )
        plan, _ = uniform_plan(asked, UniformStrategy(ep=ep, shard=level, recompute="full"))
        simulator = Simulator.for_plan(plan, Machine(plan.cluster), asked.stack)
        found = simulator.run(plan)
        assert found is not None
        by_span, _ = simulate_events(simulator, plan)
        assert by_span.step_time_s == pytest.approx(found.step_time_s, rel=1e-9)
        slots = layer_slots(
            found.chunks[0][0], [5], PassKind(True, 0, True, True), simulator.pricer
        )
        seconds[ep, level] = slots[0].exchange_s
    assert min(seconds[16, level] for level in ("zero3", "zero0")) > 0
    assert seconds[8, "zero3"] == seconds[8, "zero0"] == 0
