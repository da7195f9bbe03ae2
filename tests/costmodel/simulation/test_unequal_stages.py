"""Stages of unequal width and device, and device groups that share a stage."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from generators.heterogeneous_plans import asked, mixed_plan, run, strategy
from published.wrong_pricers import Free

from shardwright.costmodel.explain.breakdown import breakdown
from shardwright.costmodel.lowering.chunk import StageChunk
from shardwright.costmodel.lowering.plan_lowering import Lowering
from shardwright.costmodel.lowering.stage_passes import PassKind
from shardwright.costmodel.pricing.link_span import LinkSpan
from shardwright.costmodel.simulation import rank_class
from shardwright.costmodel.simulation.event_simulation import simulate_events
from shardwright.costmodel.simulation.pass_time import PASS_TERMS, PassTime
from shardwright.costmodel.simulation.simulator import Simulator
from shardwright.costmodel.simulation.stage_messages import (
    BoundaryStage,
    repartition_s,
    same_partition_s,
)
from shardwright.costmodel.simulation.timeline import simulated_timeline
from shardwright.datasets.clusters.parse import parse_cluster
from shardwright.spec.errors import InputError
from shardwright.spec.plan.plan import LayerPlan, Stage, StageDevices
from shardwright.spec.plan.stage_messages import activation_blocks, messages
from shardwright.spec.strategy import LayerStrategy

IB = "@8x400G-IB"
TWO = f"1x4xA100-80GB{IB}+1x4xH100-80GB{IB}"
LLAMA = "llama-2-7b"


class _Fixed(Simulator):
    """Passes take what ``seconds`` says of a stage, forward and backward; all else is free."""

    seconds: tuple[tuple[float, float], ...] = ()

    def pass_time(
        self, chunk: StageChunk, kind: PassKind, group: str, link_span: LinkSpan
    ) -> PassTime:
        own = self.seconds[0 if chunk.layers[0].index == 0 else 1][0 if kind.forward else 1]
        return PassTime(own, [own, *[0.0] * (len(PASS_TERMS) - 1)], 0.0, 0.0)


@pytest.mark.parametrize(
    ("seconds", "step_s"),
    [
        # F0 F1 B0 F2 B1 F3 B2 B3 without a break: the other stage is always done in time.
        (((2.0, 3.0), (1.0, 1.0)), 20.0),
        # A second passes before the slow stage begins and after it ends.
        (((1.0, 1.0), (2.0, 3.0)), 22.0),
    ],
)
def test_two_unequal_stages_by_hand(
    seconds: tuple[tuple[float, float], ...], step_s: float
) -> None:
    question = asked("1x4xH100-80GB", LLAMA)
    stages = [[("main", 0, 1)], [("main", 2, 2)]]
    plan = mixed_plan(question, stages, [0, 4, 34], [strategy(), strategy(ranks=2)], 4)
    assert not plan.check()
    chosen = replace(question.stack, step_s=0.0, launch_s=0.0)
    pricer = Free(question.machine, chosen)
    simulator = _Fixed(Lowering(plan.model, plan.workload, chosen), pricer)
    simulator.seconds = seconds
    simulation = simulator.run(plan)
    assert simulation is not None
    assert simulation.step_time_s == pytest.approx(step_s, rel=1e-12)
    assert sum(breakdown(simulation).values()) == pytest.approx(simulation.step_time_s)


@pytest.mark.parametrize(("level", "tp", "sp"), [
    ("zero0", 1, "none"), ("zero1", 1, "none"), ("zero3", 1, "none"), ("zero2", 2, "megatron"),
])  # fmt: skip
@pytest.mark.parametrize("overlap", ["none", "dp+tp"])
def test_two_equal_groups_in_one_stage_are_one_group(
    level: str, tp: int, sp: str, overlap: str
) -> None:
    shared = asked(f"1x4xH100{IB}+1x4xH100{IB}", LLAMA, overlap=overlap)
    one = asked(f"2x4xH100{IB}", LLAMA, overlap=overlap)
    own = strategy(level, 8 // tp, tp=tp, sequence_parallel=sp)
    names = [group.name for group in shared.cluster.groups]
    halves = [[(name, 0, 4) for name in names]]
    joined = run(shared, mixed_plan(shared, halves, [0, 34], [own], 2))
    whole = run(one, mixed_plan(one, [[("main", 0, 8)]], [0, 34], [own], 2))
    assert joined.step_time_s == whole.step_time_s
    assert breakdown(joined) == breakdown(whole)
    assert [row.by for row in joined.memory] == [whole.memory[0].by] * 2


def test_a_shared_stage_waits_for_its_slowest_group() -> None:
    question = asked(TWO, LLAMA)
    own = strategy("zero1", 8)
    seconds, reserved = [], []
    for share in (0.25, 0.5, 0.75):
        parts = [[("a100", 0, 4, share), ("h100", 0, 4, 1 - share)]]
        simulation = run(question, mixed_plan(question, parts, [0, 34], [own], 1))
        seconds.append(simulation.step_time_s)
        reserved.append([row.reserved_bytes for row in simulation.memory])
    assert seconds[0] < seconds[1] < seconds[2]
    slow, fast = zip(*reserved, strict=True)
    assert slow[0] < slow[1] < slow[2]
    assert fast[0] > fast[1] > fast[2]


def test_device_groups_may_recompute_each_in_their_own_way() -> None:
    question = asked(TWO, LLAMA)
    own = strategy("zero1", 8)
    parts = [[("a100", 0, 4), ("h100", 0, 4)]]
    plain = run(question, mixed_plan(question, parts, [0, 34], [own], 1))
    plan = mixed_plan(question, parts, [0, 34], [own], 1)
    ends = [plan.program.stages[0].virtual_stages[0][0].layers[0]]
    layers = [
        LayerPlan(layers=(ends[0], 0, 0), strategy=own),
        LayerPlan(
            layers=(ends[0], 1, 32),
            strategy=own,
            by_device_group={"h100": replace(own, recompute="full")},
        ),
        LayerPlan(layers=(ends[0], 33, 33), strategy=own),
    ]
    stage = replace(plan.program.stages[0], virtual_stages=(tuple(layers),))
    program = replace(plan.program, stages=(stage,))
    lean = run(question, replace(plan, programs=(program,)))
    assert lean.memory[0] == plain.memory[0]
    assert lean.memory[1].reserved_bytes < plain.memory[1].reserved_bytes
    assert lean.step_time_s >= plain.step_time_s


def _sides(source: random.Random) -> tuple[Stage, LayerStrategy]:
    tp, cp = source.choice([(1, 1), (2, 1), (4, 1), (1, 2), (2, 2)])
    parallel = source.choice(["none", "megatron", "ulysses"]) if tp > 1 else "none"
    split = LayerStrategy(tp=tp, cp=cp, sequence_parallel=parallel)  # type: ignore[arg-type]
    width = split.width
    if source.random() < 0.5:
        held = (
            StageDevices(device_group="a", first_rank=0, count=width * source.choice([1, 2, 3])),
        )
    else:
        share = source.choice([0.25, 0.5, 0.75])
        held = (
            StageDevices(device_group="a", first_rank=0, count=width, batch_share=share),
            StageDevices(device_group="b", first_rank=0, count=2 * width, batch_share=1 - share),
        )
    return Stage(devices=held, virtual_stages=()), split


@pytest.mark.parametrize("seed", range(60))
def test_a_boundary_takes_as_long_as_its_busiest_rank(seed: int) -> None:
    """Against every single message, as the executor sends them."""
    source = random.Random(f"boundary {seed}")
    samples, tokens, row_bytes = 24, 48, 8
    (stage, split), (other, into) = _sides(source), _sides(source)

    def seconds(size: int, place: StageDevices, peer: StageDevices) -> float:
        crosses = place.device_group != peer.device_group
        return 1e-3 + size * (3e-6 if crosses else 1e-6)

    whole = samples * tokens * row_bytes
    found = repartition_s(
        whole,
        BoundaryStage.of(stage, split, samples),
        BoundaryStage.of(other, into, samples),
        seconds,
    )
    loads: dict[tuple[str, int], float] = {}
    for message in messages(
        activation_blocks(stage, split, samples, tokens),
        activation_blocks(other, into, samples, tokens),
    ):
        places = _part(stage, message.source), _part(other, message.target)
        took = seconds(message.block.rows * row_bytes, *places)
        for end in (("out", message.source), ("in", message.target)):
            loads[end] = loads.get(end, 0.0) + took
    assert found == pytest.approx(max(loads.values()))


def _part(stage: Stage, rank: int) -> StageDevices:
    for part in stage.devices:
        if rank < part.count:
            return part
        rank -= part.count
    raise AssertionError(rank)


def test_stages_that_cut_alike_send_rank_to_rank() -> None:
    held = (
        StageDevices(device_group="a", first_rank=0, count=2, batch_share=0.25),
        StageDevices(device_group="b", first_rank=0, count=2, batch_share=0.75),
    )
    side = BoundaryStage.of(Stage(devices=held, virtual_stages=()), LayerStrategy(), 8)
    sizes = []
    assert (
        same_partition_s(100, side, side, lambda size, *_: sizes.append(size) or float(size))
        == 300.0
    )
    assert sizes == [100, 300]


SLOWER = ("A100-80GB", "L40S", "RTX-3090")


@pytest.mark.parametrize("slower", SLOWER)
@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.25, 0.75), (0.75, 0.25)])
def test_a_slower_group_never_makes_a_shared_stage_faster(
    slower: str, shares: tuple[float, float]
) -> None:
    seconds = []
    for first in ("H100-80GB", slower):
        question = asked(f"1x4x{first}@1x100G-IB+1x4xH100-80GB@1x100G-IB", LLAMA)
        names = [group.name for group in question.cluster.groups]
        parts = [[(name, 0, 4, share) for name, share in zip(names, shares, strict=True)]]
        plan = mixed_plan(question, parts, [0, 34], [strategy("zero1", 8)], 1)
        seconds.append(run(question, plan).step_time_s)
    assert seconds[1] >= seconds[0]


def test_a_slower_link_between_groups_never_makes_a_plan_faster() -> None:
    plans = (
        (
            [[("a100", 0, 2)], [("h100", 0, 4)]],
            [0, 8, 34],
            [strategy(), strategy("zero1", 2, tp=2)],
            2,
        ),
        ([[("a100", 0, 4, 0.25), ("h100", 0, 4, 0.75)]], [0, 34], [strategy("zero3", 8)], 1),
    )
    for stages, boundaries, own, batches in plans:
        seconds = []
        for link in ("8x400G-IB", "1x100G-ETH", "1x10G-ETH"):
            question = asked(f"1x4xA100-80GB+1x4xH100-80GB+@{link}", LLAMA)
            simulation = run(question, mixed_plan(question, stages, boundaries, own, batches))
            seconds.append(simulation.step_time_s)
        assert seconds[0] < seconds[1] < seconds[2]


def test_a_stage_that_lies_askew_in_its_nodes_is_never_priced_as_nearer() -> None:
    question = asked("2x4xH100@1x100G-ETH", LLAMA)
    seconds = {}
    for first in (0, 1, 4):
        stages = [[("main", first, 4)]]
        plan = mixed_plan(question, stages, [0, 34], [strategy("zero1", 4)], 2)
        seconds[first] = run(question, plan).step_time_s
    assert seconds[0] == seconds[4] < seconds[1]


def test_spans_and_timelines_of_unequal_stages() -> None:
    question = asked(TWO, LLAMA)
    stages = [
        [("a100", 0, 2, 0.25), ("h100", 0, 2, 0.75)],
        [("a100", 2, 2, 0.25), ("h100", 2, 2, 0.75)],
    ]
    plan = mixed_plan(question, stages, [0, 17, 34], [strategy("zero1", 4)] * 2, 2)
    simulator = Simulator.for_plan(plan, question.machine, question.stack)
    simulation, _ = simulate_events(simulator, plan)
    assert simulation.step_time_s == pytest.approx(run(question, plan).step_time_s, rel=1e-9)
    timeline = simulated_timeline(simulation, simulator)
    assert {span.stream.rank for span in timeline.spans} == {0, 1}


def test_too_many_classes_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_class, "MAX_CLASSES", 1)
    question = asked(TWO, LLAMA)
    parts = [[("a100", 0, 4), ("h100", 0, 4)]]
    plan = mixed_plan(question, parts, [0, 34], [strategy("zero1", 8)], 1)
    with pytest.raises(InputError, match="2 classes of ranks"):
        run(question, plan)


def test_clusters_in_these_tests_have_the_names_that_plans_use() -> None:
    assert [g.name for g in parse_cluster(TWO).cluster.groups] == ["a100", "h100"]
