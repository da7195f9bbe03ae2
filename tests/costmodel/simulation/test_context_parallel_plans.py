"""Whole plans with rings, Ulysses and both: every legal one is priced, and terms add up."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from generators.catalogue_problems import problem
from generators.plan_cases import Case, sharded
from generators.split_cases import (
    GQA,
    MHA,
    SEQ_LEN,
    SHARDWRIGHT,
    encoder_block,
    latent_block,
    lowered,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.api.planning.report import Simulated, simulate_plan
from shardwright.api.planning.uniform_plan import UniformStrategy, uniform_plan
from shardwright.api.views.report_text import shape_text
from shardwright.api.views.stage_table import stage_rows
from shardwright.costmodel.pricing.collectives import collective_seconds, message_seconds
from shardwright.costmodel.pricing.costs import TERMS
from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.pricing.pricer import Pricer
from shardwright.costmodel.sharding.param_groups import UnitShape
from shardwright.costmodel.sharding.state_layouts import lower_unit
from shardwright.costmodel.simulation.simulator import Simulator
from shardwright.costmodel.simulation.timeline import simulated_timeline
from shardwright.datasets.clusters.parse import parse_cluster
from shardwright.spec.errors import InputError
from shardwright.spec.model.layers import Layer
from shardwright.spec.parallel.rank_groups import (
    RankGroup,
    context_group,
    stage_groups,
    tensor_group,
)
from shardwright.spec.plan.plan import Plan, load_plan
from shardwright.spec.report.work_items import Collective, Kernel
from shardwright.spec.rules.layer_rules import layer_violation
from shardwright.spec.strategy import LayerStrategy, Sharding
from shardwright.spec.workload.workload import DtypeRecord

LAYERS: list[Layer] = [
    *GQA.model().layers()[::5],
    *MHA.model().layers()[1:2],
    latent_block(),
    encoder_block(),
]
POWERS = st.sampled_from([1, 2, 4, 8])
WILD = st.sampled_from([1, 2, 3, 5, 16])


@st.composite
def any_strategy(draw: st.DrawFn) -> tuple[LayerStrategy, int]:
    """A strategy, mostly of powers of two that nest but now and then not, and its stage's ranks."""
    degrees = st.one_of(POWERS, POWERS, POWERS, WILD)
    tp, cp, dp, first, second, third, fourth = (draw(degrees) for _ in range(7))
    nests = draw(st.integers(0, 4)) > 0
    outer = first * second * third if nests else third
    strategy = LayerStrategy(
        tp=tp,
        cp=cp,
        sequence_parallel=draw(st.sampled_from(["none", "megatron", "ulysses"])),
        recompute=draw(st.sampled_from(["none", "selective", "full"])),
        shard=Sharding(
            parameters=first,
            secondary_parameters=draw(st.sampled_from([1, 1, 1, fourth])),
            gradients=first * second if nests else second,
            optimizer=outer,
        ),
    )
    room = math.lcm(tp * cp * dp, outer * strategy.weight_split)
    return strategy, draw(st.sampled_from([room, room, tp * cp * dp, 12]))


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(LAYERS), any_strategy(), st.sampled_from([SEQ_LEN, 60, 96]))
def test_every_legal_strategy_lowers(
    layer: Layer, drawn: tuple[LayerStrategy, int], seq_len: int
) -> None:
    strategy, ranks = drawn
    reason = layer_violation(layer, strategy, ranks, ranks, seq_len)
    if reason is not None:
        assert reason
        return
    found = lowered(layer, replace(strategy, shard=Sharding()), seq_len=seq_len)
    assert found.forward.change_bytes + found.accumulating_backward.change_bytes == 0
    unit = lower_unit(
        UnitShape(
            layers=(layer,),
            strategy=strategy,
            stage_ranks=ranks,
            seq_len=seq_len,
            dtype=DtypeRecord.from_shorthand("bf16"),
            stack=SHARDWRIGHT,
        )
    )
    assert unit.parameter_bytes * strategy.shard.optimizer >= unit.local_elements * 4
    used = {
        (item.ranks, item.stride)
        for items in (
            unit.gather.forward,
            unit.gather.backward,
            unit.gather.outer,
            unit.reduce.fresh,
            unit.reduce.outer,
        )
        for item in items
        if isinstance(item, Collective)
    }
    groups = stage_groups([strategy], ranks)
    assert used <= {tuple(group) for group in groups}
    for group in groups:
        assert ranks % (group.size * group.stride) == 0
        assert tiles(group, ranks)


def tiles(group: RankGroup, ranks: int) -> bool:
    """True if a group's parts cover every rank once, in time linear in ranks."""
    seen: set[int] = set()
    for rank in range(ranks):
        if rank in seen:
            continue
        part = group.members(rank)
        if len({*part}) != group.size or seen & {*part} or group.members(part[-1]) != part:
            return False
        seen.update(part)
    return seen == {*range(ranks)}


def test_ring_and_tensor_groups_tile_what_works_on_a_sample() -> None:
    strategy = LayerStrategy(tp=4, cp=2, sequence_parallel="ulysses")
    for rank in range(16):
        ring, inner = context_group(strategy), tensor_group(strategy)
        together = {r for member in ring.members(rank) for r in inner.members(member)}
        assert together == {*range(rank // 8 * 8, rank // 8 * 8 + 8)}


def simulated(model: str, cluster: str, seq_len: int, **flags: object) -> Simulated:
    attention = flags.pop("attention", "flash")
    asked = problem(model, cluster, 32, seq_len, attention=attention)
    plan, notes = uniform_plan(asked, UniformStrategy(**flags))  # type: ignore[arg-type]
    return simulate_plan(plan, asked.stack, asked.measured, notes)


RUNS = {
    "ring": {"cp": 8, "shard": "zero3"},
    "ulysses": {"tp": 8, "sp": "ulysses", "shard": "zero3"},
    "both": {"tp": 4, "sp": "ulysses", "cp": 2, "shard": "zero3"},
    "beside tensor parallelism": {"tp": 4, "sp": "megatron", "cp": 2, "pp": 2, "shard": "zero1"},
}


@pytest.mark.parametrize("name", RUNS)
def test_terms_add_up_and_the_exchange_has_its_own(name: str) -> None:
    found = simulated("llama-3-8b", "2x8xH100", 16384, **RUNS[name])
    prediction = found.report.prediction
    assert sum(prediction.breakdown_s.values()) == pytest.approx(prediction.step_time_s)
    assert prediction.breakdown_s["exposed_cp"] > 0
    assert prediction.breakdown_s["unattributed"] <= 0.01 * prediction.step_time_s
    timeline = simulated_timeline(found.simulation, found.simulator)
    assert any(span.stream.name == "cp" for span in timeline.spans)


def test_a_split_sequence_needs_less_memory_for_activations() -> None:
    def activations(**flags: object) -> int:
        found = simulated("llama-3-8b", "2x8xH100", 16384, shard="zero3", **flags)
        return found.report.prediction.memory[0].by["activations"]

    whole = activations()
    for degree in (2, 4, 8):
        assert activations(cp=degree) == pytest.approx(whole / degree, rel=0.05)
        ulysses = activations(tp=degree, sp="ulysses")
        assert ulysses == pytest.approx(whole / degree, rel=0.08)


def test_states_of_a_ring_are_as_small_as_those_of_plain_data_parallelism() -> None:
    plain = simulated("llama-3-8b", "2x8xH100", 16384, shard="zero3")
    ring = simulated("llama-3-8b", "2x8xH100", 16384, shard="zero3", cp=8)
    for term in ("parameters", "optimizer"):
        assert (
            plain.report.prediction.memory[0].by[term] == ring.report.prediction.memory[0].by[term]
        )


def test_a_ring_shows_more_where_links_are_slow_or_attention_is_short() -> None:
    def shown(cluster: str, seq_len: int, cp: int) -> float:
        prediction = simulated("llama-3-8b", cluster, seq_len, cp=cp, shard="zero3")
        found = prediction.report.prediction
        return found.breakdown_s["exposed_cp"] / found.step_time_s

    assert shown("2x8xH100", 8192, 16) > 2 * shown("2x8xH100", 8192, 8)
    assert shown("2x8xH100", 8192, 16) > 2 * shown("2x8xH100", 65536, 16)
    assert shown("2x8xH100@8x100G-RoCE", 16384, 16) > shown("2x8xH100@8x400G-IB", 16384, 16)


def test_what_the_ring_hides_is_what_the_stack_says() -> None:
    machine = Machine(parse_cluster("1x8xH100").cluster)
    layer, strategy = GQA.model().layers()[1], LayerStrategy(cp=8)
    serial = replace(SHARDWRIGHT, overlaps=replace(SHARDWRIGHT.overlaps, cp=False))
    found = lowered(layer, strategy).forward
    in_line = Pricer(machine, serial).layer_pass(lowered(layer, strategy, used=serial).forward)
    hidden = Pricer(machine, SHARDWRIGHT).layer_pass(found)
    steps = [c for c in found.collectives() if c.kind == "send_recv"]
    whole_s = sum(collective_seconds(c, machine) for c in steps)
    number = TERMS.index("exposed_cp")
    assert in_line.terms_s[number] == pytest.approx(whole_s)
    assert 0 < hidden.terms_s[number] < whole_s
    assert hidden.terms_s[:number] == in_line.terms_s[:number]


@pytest.mark.parametrize("cluster", ["1x8xH100", "8x1xA100-80GB", "8xT4"])
@pytest.mark.parametrize("cp", [2, 8])
def test_each_step_shows_what_outlasts_its_attention(cluster: str, cp: int) -> None:
    """Without mutual slowing, per step max(message, attention) - attention; the last hop whole."""
    machine = Machine(parse_cluster(cluster).cluster)
    pricer = Pricer(machine, replace(SHARDWRIGHT, overlap_slowdown=1.0))
    found = lowered(MHA.model().layers()[1], LayerStrategy(cp=cp), batch=64)
    for way in (found.forward, found.backward):
        expected_s = 0.0
        for number, entry in enumerate(way.entries):
            if isinstance(entry.work, Kernel):
                continue
            message_s, beside_s = pricer.collective(entry.work).time_s, 0.0
            if entry.overlap is not None and entry.overlap.kernels:
                following = way.entries[number + 1].work
                assert isinstance(following, Kernel)
                beside_s = pricer.kernel(following).time_s
            expected_s += max(0.0, message_s - beside_s)
        shown_s = pricer.layer_pass(way).terms_s[TERMS.index("exposed_cp")]
        assert shown_s == pytest.approx(expected_s)
    last = [e for e in found.backward.entries if isinstance(e.work, Collective)][-1]
    assert last.overlap is not None
    assert last.overlap.kernels == 0


def test_an_exchange_leaves_a_node_over_each_devices_own_share() -> None:
    machine = Machine(parse_cluster("2x8xH100@8x400G-IB").cluster)
    size = 2**28
    inside, across = (
        collective_seconds(Collective("all_to_all", ranks, 1, size, "bf16"), machine)
        for ranks in (8, 16)
    )
    share = machine.levels[1].bandwidth_bytes_per_s / machine.levels[1].oversubscription
    assert across > size / 2 / share > inside
    ring = collective_seconds(Collective("send_recv", 16, 1, size, "bf16"), machine)
    assert ring == message_seconds(size, machine.levels[1])
    inner = collective_seconds(Collective("send_recv", 8, 1, size, "bf16"), machine)
    assert inner == message_seconds(size, machine.levels[0])


def mixed() -> Plan:
    """A plan whose layers split samples, sequences, heads and weights by turns."""
    ring = sharded("zero3", 8, cp=4)
    strategies = [
        sharded("zero1", 8, cp=2),
        ring,
        replace(ring, recompute="selective"),
        sharded("zero2", 8, tp=8, sequence_parallel="ulysses"),
        sharded("zero1", 4, tp=2, cp=2, sequence_parallel="megatron"),
        sharded("zero1", 4, tp=2),
    ]
    return Case(
        name="mixed",
        sizes=MHA,
        ranks=8,
        strategies=strategies,
        seq_len=SEQ_LEN,
        micro_batch=8,
        global_batch=16,
    ).plan()


def test_layers_of_one_stage_may_split_the_sequence_differently() -> None:
    plan = mixed()
    simulator = Simulator.for_plan(plan, Machine(plan.cluster), SHARDWRIGHT)
    simulation = simulator.run(plan)
    assert simulation is not None
    chunk = simulation.chunks[0][0]
    for before, after in zip(chunk.layers, chunk.layers[1:], strict=False):
        assert before.lowered.output_bytes == after.lowered.input_bytes
    alone = [g for g in stage_groups(list(plan.layer_strategies()), 8) if g.size == 8]
    assert alone


def test_plans_say_rings_in_their_json_and_only_there() -> None:
    plan = mixed()
    text = json.dumps(plan.to_document())
    assert load_plan(text, "plan") == plan
    assert '"cp": 4' in text
    dense = Case(name="dense", seq_len=SEQ_LEN).plan()
    written = json.dumps(dense.to_document())
    assert '"cp"' not in written.replace('["dp", "cp", "tp"]', "")
    assert "secondary" not in written


def test_a_plan_is_shown_with_its_ring() -> None:
    both = simulated("llama-3-8b", "2x8xH100", 16384, **RUNS["both"])
    assert shape_text(both.report.plan).startswith("tp 4 ulysses, pp 1, cp 2, dp 2, zero3")
    rows = stage_rows(both.report.plan, both.report.prediction)
    assert {row.tp for row in rows} == {"4 ulysses x cp 2"}
    assert {row.shard for row in rows} == {"zero3"}
    plain = simulated("llama-3-8b", "2x8xH100", 4096, tp=2)
    assert "cp" not in shape_text(plain.report.plan)


def test_dp_is_what_the_other_degrees_leave() -> None:
    found = simulated("llama-3-8b", "2x8xH100", 16384, tp=2, cp=2, pp=2)
    assert [n.value for n in found.report.assumptions if n.path == "--dp"] == [2]
    with pytest.raises(InputError, match="tp x pp x cp x dp"):
        simulated("llama-3-8b", "2x8xH100", 16384, tp=2, cp=2, pp=2, dp=4)
