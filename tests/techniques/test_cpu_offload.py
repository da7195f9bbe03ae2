"""cpu_offload is held to what every technique is, and to the closed form of its card."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest
from generators.plan_cases import Case, Sizes, sharded
from generators.random_spaces import PLENTY_BYTES
from oracles.brute_force import Space
from published.planning import RULE, planned
from toys.technique_spaces import FEW, TWO, small_space, solved, with_host
from toys.technique_suite import Refused, TechniqueSuite

import shardwright as sw
from shardwright.api.problem.pins import resolve_pins
from shardwright.api.problem.resolve import Inputs, resolve
from shardwright.costmodel.explain.breakdown import breakdown
from shardwright.costmodel.lowering.plan_lowering import Lowering
from shardwright.costmodel.pricing import host_rates
from shardwright.costmodel.pricing.host_rates import LINK_SHARE, NODE_BYTES_PER_S
from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.simulation.event_simulation import simulate_events
from shardwright.costmodel.simulation.simulator import Simulation, Simulator
from shardwright.costmodel.symbolic.tier_bytes import total_bytes
from shardwright.datasets.catalogue.device import device
from shardwright.datasets.catalogue.stack import stack
from shardwright.planner.solve.options import SolveOptions
from shardwright.planner.solve.solution import Solution
from shardwright.planner.solve.solve import solve
from shardwright.planner.techniques import SHIPPED
from shardwright.spec.cluster.stack_spec import OverlapKinds, StackSpec
from shardwright.spec.errors import InfeasibleError, InputError
from shardwright.spec.plan.plan import Plan
from shardwright.spec.strategy import LayerStrategy, Sharding
from shardwright.spec.technique_values import technique_violation, with_value
from shardwright.spec.techniques.cpu_offload import TECHNIQUE, CpuOffload, stack_violation
from shardwright.spec.units import GIB
from shardwright.spec.workload.workload import DtypeRecord

NAME = "cpu_offload"
ALL = CpuOffload(parameters=True)
PINNED = ("pp=1", "tp=1", "schedule=1f1b")
SHORT_GIB = 3.3
"""Of a device's memory: too little for a question's model on two, however it is sharded."""
STACK = stack("shardwright")
HPZ = LayerStrategy(shard=Sharding.from_text("hpz:2", 4))


class TestCpuOffload(TechniqueSuite):
    known = SHIPPED
    name = NAME
    base, ranks = sharded("zero3", 2), 2
    asked = MappingProxyType({"host_gib": 1})
    pinned = ("pp=1", "tp=1", "recompute=none")
    refused = (
        Refused(word="all", because="freed after each use", ranks=2),
        Refused(word="all", because="as with zero3", strategy=sharded("zero2", 2), ranks=2),
        Refused(word="all", because="beside hpZ", strategy=HPZ, ranks=4),
    )

    def spaces(self) -> list[Space]:
        """Two devices, with room on the host for sharded states of both blocks, or whole of one."""
        words = ("none", "optimizer", "all")
        small = small_space(SHIPPED, self.name, words, *FEW, TWO)
        return [with_host(small, 10**7)]

    def test_memory_decides(self) -> None:
        """With room nothing is offloaded; with the least memory all blocks are."""
        (space,) = self.spaces()
        answer = solved(space)
        least = min(plan.reserved_bytes for plan in answer.plans)
        chosen = []
        for reserved in (PLENTY_BYTES, least):
            found = planned(space.with_memory(int(reserved * RULE.margin) + 1))
            assert found is not None
            assert found.stopped_by == "proof"
            strategies = found.outcomes[0].plan.layer_strategies()
            chosen.append([self.value.text_of(s) for s in strategies])
        assert chosen[0] == ["none"] * 4
        assert "none" not in chosen[1][1:3]


@pytest.mark.parametrize(("dtype", "param"), [("fp32", 4), ("bf16", 2)])
@pytest.mark.parametrize("value", [CpuOffload(), ALL])
@pytest.mark.parametrize(("level", "ranks"), [("zero3", 2), ("zero3", 4)])
def test_bytes_are_those_of_the_card(
    dtype: str, param: int, value: CpuOffload, level: str, ranks: int
) -> None:
    """The device loses n·s, with ``all`` n·b more; the host holds n·(s + 2b)."""
    plain = Case(name="", ranks=ranks, strategies=sharded(level, ranks), dtype=dtype)  # type: ignore[arg-type]
    plan = plain.plan()
    lowering = Lowering(plan.model, plan.workload, STACK)
    own = lowering.unit((1,), sharded(level, ranks), ranks)  # type: ignore[arg-type]
    other = lowering.unit((1,), with_value(sharded(level, ranks), NAME, value), ranks)  # type: ignore[arg-type]
    n = sum(part for part in (own.update.matrices, own.update.vectors))
    counts = own.optimizer_bytes - 8 * n
    assert 0 < counts < 100
    assert other.optimizer_bytes == 0
    assert own.parameter_bytes - other.parameter_bytes == (4 * n if value.parameters else 0)
    casts = [unit.gathers[0].cast_bytes for unit in (own, other)]
    assert casts[1] - casts[0] == (4 * n if value.parameters else 0)
    assert total_bytes(other.added_tier_bytes, "host") == n * (8 + 2 * 4) + counts
    assert (other.update.matrices, other.update.vectors, other.update.host_elements) == (0, 0, n)
    assert other.shard_gradient_bytes == own.shard_gradient_bytes
    assert own.whole_bytes == other.whole_bytes == n * ranks * param


def simulator(
    value: CpuOffload | None, micro_batch: int = 4, software: StackSpec = STACK, **given: object
) -> tuple[Simulator, Plan]:
    """Of a plan of two equal blocks on two A100 of a node, whose other layers have no states."""
    strategy = with_value(sharded("zero3", 2), NAME, value)
    case = Case(name="", ranks=2, strategies=strategy, micro_batch=micro_batch, **given)  # type: ignore[arg-type]
    found = resolve(Inputs(model="gpt2", cluster="1x2xA100-80GB", global_batch=8, seq_len=16))
    plan = case.plan()
    group = replace(found.cluster.groups[0], name="cpu")
    plan = replace(plan, cluster=replace(found.cluster, groups=(group,)))
    return Simulator.for_plan(plan, Machine(plan.cluster), software), plan


def simulated(
    value: CpuOffload | None, micro_batch: int = 4, software: StackSpec = STACK, **given: object
) -> Simulation:
    """A step of such a plan."""
    of_plan, plan = simulator(value, micro_batch, software, **given)
    result = of_plan.run(plan)
    assert result is not None
    return result


BIG = Sizes(blocks=2, hidden=1024, ffn=4096, vocab=64)


A100 = device("A100-SXM-80GB")


def serial(name: str) -> StackSpec:
    """A stack that overlaps nothing."""
    return replace(stack(name), overlaps=OverlapKinds())


def copy_s(n: int, size: int) -> float:
    """Seconds of n elements over the host link, which two devices of the node share."""
    return A100.kernel_launch_s + 2 * size * n / (A100.host_link_bytes_per_s * LINK_SHARE)


def test_copies_both_ways_at_once_cost_what_the_link_loses(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that loses half its rate: a step is longer, its events take as long as its passes."""
    sizes = Sizes(blocks=4, hidden=1024, ffn=4096, vocab=64)
    duplex = simulated(ALL, sizes=sizes)
    monkeypatch.setattr(host_rates, "FULL_DUPLEX", 2.0)
    halved = simulated(ALL, sizes=sizes)
    assert halved.step_time_s > duplex.step_time_s * 1.001
    assert breakdown(halved)[NAME] > breakdown(duplex)[NAME]
    found, _ = simulate_events(*simulator(ALL, sizes=sizes))
    assert found.step_time_s == pytest.approx(halved.step_time_s, rel=1e-9)


def host_elements(run: Simulation) -> int:
    """Weights of a block that the host updates."""
    unit = run.chunks[0][0].layers[1].unit
    assert unit is not None
    return unit.update.host_elements


def passes_s(run: Simulation) -> float:
    """The technique's seconds in passes."""
    return breakdown(run)[NAME] - run.stages[0].update_technique_s[NAME]


@pytest.mark.parametrize("micro_batches", [1, 2, 4])
@pytest.mark.parametrize("value", [CpuOffload(), ALL])
def test_seconds_are_those_of_the_card(value: CpuOffload, micro_batches: int) -> None:
    """Down, over H, and up, block by block; with ``all`` up u times, before each gather in line."""
    run = simulated(value, 8 // micro_batches, serial("shardwright"), sizes=BIG)
    n = host_elements(run)
    once_s, host_s = copy_s(n, 4), n * (28 + 8) / (NODE_BYTES_PER_S / 2)
    assert host_s > once_s
    chain_s = once_s + 2 * host_s + (0 if value.parameters else once_s)
    assert run.stages[0].update_s == pytest.approx(chain_s, rel=1e-9)
    uses = 2 * micro_batches if value.parameters else 0
    assert passes_s(run) == pytest.approx(2 * uses * once_s, rel=1e-9)


@pytest.mark.parametrize("value", [CpuOffload(), ALL])
def test_only_what_does_not_hide_shows_and_under_its_name(value: CpuOffload) -> None:
    """Beside long layers, one copy of each pass, whose embedding and head are short, and a last."""
    steady = replace(STACK, overlap_slowdown=1.0)
    sizes = {"sizes": BIG, "seq_len": 4096}
    plain, run = (simulated(v, 4, steady, **sizes) for v in (None, value))
    n = host_elements(run)
    once_s, host_s = copy_s(n, 4), n * (28 + 8) / (NODE_BYTES_PER_S / 2)
    chain_s = 2 * host_s + (0 if value.parameters else once_s)
    assert run.stages[0].update_s == pytest.approx(chain_s, rel=1e-9)
    uses = 2 * 2 if value.parameters else 0
    assert passes_s(run) <= (uses + 1) * once_s
    line = simulated(value, 4, serial("shardwright"), **sizes)
    assert passes_s(line) == pytest.approx(2 * uses * once_s, rel=1e-9)
    terms, usual = breakdown(run), breakdown(plain)
    for name in {*usual} - {"optimizer"}:
        assert terms[name] == pytest.approx(usual[name], rel=1e-9, abs=1e-12)


def test_copies_of_a_70b_hide_but_for_a_third() -> None:
    """In line they were 66.8 s of a step of 413."""
    terms = [
        sw.simulate(
            "llama-2-70b", "1x8xA100-80GB", global_batch=256, seq_len=4096, host_gib=128, tp=2,
            sp="megatron", shard="zero3", recompute="full", micro_batch=2, cpu_offload="all",
            stack=name,
        ).report.prediction.breakdown_s[NAME]
        for name in ("shardwright", "shardwright:param_overlap=off,grad_overlap=off")
    ]  # fmt: skip
    assert terms[0] <= 0.35 * terms[1]


def test_device_memory_falls_by_what_moves_and_the_host_is_counted() -> None:
    plain, offloaded = simulated(None, sizes=BIG), simulated(CpuOffload(), sizes=BIG)
    own, other = plain.memory[0], offloaded.memory[0]
    unit = plain.chunks[0][0].layers[1].unit
    assert unit is not None
    assert own.by["optimizer"] - other.by["optimizer"] == 2 * unit.optimizer_bytes
    assert own.allocated_bytes - other.allocated_bytes == 2 * unit.optimizer_bytes
    assert [row.tier for row in offloaded.memory] == ["hbm", "host"]
    held = {term: size for term, size in offloaded.memory[1].by.items() if size}
    weights = 2 * 4 * (unit.update.matrices + unit.update.vectors)
    states = 2 * unit.optimizer_bytes
    assert held == {"parameters": weights, "gradients": weights, "optimizer": states}


def question(**asked: object) -> Inputs:
    """A model of 0.4 B weights on two devices."""
    usual = {"model": "gpt2-medium", "cluster": "1x2xA100-80GB", "global_batch": 2, "seq_len": 256}
    return Inputs(**{**usual, "dtype": "fp32", **asked})  # type: ignore[arg-type]


def answer(*pins: str, **asked: object) -> Solution:
    """The answer of a search in a part of the space."""
    problem = resolve(question(**asked))
    return solve(problem, SolveOptions(pins=resolve_pins((*PINNED, *pins), problem)))


def words_of(solution: Solution) -> list[str]:
    return [TECHNIQUE.text_of(strategy) for strategy in solution.plan.layer_strategies()]


def test_a_search_takes_it_where_memory_is_short_and_only_there() -> None:
    assert set(words_of(answer(host_gib=8))) == {"none"}
    with pytest.raises(InfeasibleError, match="hbm of stage 0"):
        answer(memory_gib=SHORT_GIB)
    short = answer(memory_gib=SHORT_GIB, host_gib=8)
    assert short.prediction.feasible
    assert set(words_of(short)) - {"none"}
    assert short.search is not None
    assert set(short.search.space[NAME]) == {"none", "optimizer", "all"}
    assert {row.tier for row in short.prediction.memory} == {"hbm", "host"}
    assert short.prediction.breakdown_s[NAME] > 0


def test_without_granted_memory_nothing_is_tried() -> None:
    solution = answer()
    assert solution.search.space[NAME] == ["none"]
    why = {entry["what"]: entry["why"] for entry in solution.search.left_out}
    assert "--host-gib" in why["cpu_offload optimizer and all"]


def test_pins_say_it_of_some_layers() -> None:
    solution = answer("cpu_offload@1-3=optimizer", "cpu_offload@4-24=none", host_gib=8)
    assert words_of(solution) == ["none", *["optimizer"] * 3, *["none"] * 22]


def test_hosts_grant_no_more_than_they_have() -> None:
    with pytest.raises(InputError, match="--host-gib: got 1900; allowed: at most 1024: a HGX-A100"):
        resolve(question(host_gib=1900))
    for wrong in (0, -1):
        with pytest.raises(InputError, match="--host-gib: got"):
            resolve(question(host_gib=wrong))
    memory = resolve(question(host_gib=1.5)).cluster.groups[0].memory
    assert memory.host_bytes == 1.5 * GIB


def test_values_that_move_nothing_or_half_are_refused() -> None:
    layer = Case(name="").plan().model.layers()[1]
    for value, because in (
        (CpuOffload(optimizer=False), "of nothing"),
        (CpuOffload(optimizer=False, parameters=True), "parameters without the optimizer"),
    ):
        strategy = with_value(sharded("zero3", 2), NAME, value)
        reason = technique_violation(layer, strategy, 2, DtypeRecord())
        assert reason is not None
        assert because in reason


def test_other_layouts_and_optimizers_are_refused() -> None:
    strategy = with_value(LayerStrategy(), NAME, CpuOffload())
    megatron: StackSpec = stack("megatron")
    assert "as the stack megatron lays them out" in str(stack_violation(strategy, megatron))
    for name in ("shardwright", "deepspeed", "transformers"):
        assert stack_violation(strategy, stack(name)) is None
    assert set(words_of(answer(host_gib=8, optimizer="muon"))) == {"none"}
    with pytest.raises(InputError, match="optimizers that work element by element"):
        answer("cpu_offload=optimizer", host_gib=8, optimizer="muon")


@pytest.mark.parametrize("value", [CpuOffload(), ALL])
def test_deepspeed_keeps_16_or_18_bytes_of_a_weight_on_the_host(value: CpuOffload) -> None:
    """Masters and moments, fp32 gradients, with ``all`` 16-bit parameters; no gradient stays."""
    plan = Case(name="", ranks=4, strategies=sharded("zero3", 4), dtype="bf16").plan()
    lowering = Lowering(plan.model, plan.workload, stack("deepspeed"))
    own = lowering.unit((1,), sharded("zero3", 4), 4)
    other = lowering.unit((1,), with_value(sharded("zero3", 4), NAME, value), 4)
    n = own.update.matrices + own.update.vectors
    held = {state.term: state.size_bytes for state in other.added_tier_bytes}
    counts = held["optimizer"] - 12 * n
    assert 0 < counts < 100
    assert held["gradients"] == 4 * n
    assert held.get("parameters", 0) == (2 * n if value.parameters else 0)
    assert own.parameter_bytes - other.parameter_bytes == held.get("parameters", 0)
    assert (own.shard_gradient_bytes > 0, other.shard_gradient_bytes) == (True, 0)
    assert other.optimizer_bytes == 0


@pytest.mark.parametrize("micro_batches", [1, 2, 4])
def test_deepspeed_sends_gradients_down_after_every_micro_batch(micro_batches: int) -> None:
    """Down each time, up again from the second on, in 16 bits; parameters up before each gather."""
    run = simulated(ALL, 8 // micro_batches, serial("deepspeed"), sizes=BIG, dtype="bf16")
    n = host_elements(run)
    copies = micro_batches + (micro_batches - 1) + 2 * micro_batches
    assert passes_s(run) == pytest.approx(2 * copies * copy_s(n, 2), rel=1e-9)
    host_s = 2 * n * (28 + 8 + 6) / (NODE_BYTES_PER_S / 2)
    assert run.stages[0].update_s == pytest.approx(host_s, rel=1e-9)
    hidden = simulated(ALL, 8 // micro_batches, stack("deepspeed"), sizes=BIG, dtype="bf16")
    assert passes_s(hidden) < passes_s(run)


def test_a_72b_offloaded_whole_runs_on_eight_devices() -> None:
    """It ran with ZeRO-3 on 8 A100-80GB, micro-batch 4 x 2560, on a node of more than 800 GB."""
    found = sw.simulate(
        "qwen2.5-72b", "8xA100-80GB", stack="deepspeed", shard="zero3", cpu_offload="all",
        micro_batch=4, global_batch=32, seq_len=2560, recompute="full", host_gib=256,
    )  # fmt: skip
    prediction = found.report.prediction
    assert prediction.feasible
    device_row, host = prediction.memory
    assert (device_row.tier, host.tier) == ("hbm", "host")
    blocks = 72_706_203_648 - 2 * 152064 * 8192 - 8192
    assert host.by["parameters"] * 8 == pytest.approx(2 * blocks, rel=1e-3)
    assert host.by["gradients"] * 8 == pytest.approx(4 * blocks, rel=1e-3)
    assert host.by["optimizer"] * 8 == pytest.approx(12 * blocks, rel=1e-3)
    assert host.by["workspace"] == 0
    assert host.allocated_bytes * 8 > 800e9
    assert device_row.by["gradients"] < 2e9
