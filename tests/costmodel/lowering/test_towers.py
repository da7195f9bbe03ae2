"""Models of several towers: what crosses stages, what is kept, what is summed."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
from generators.random_spaces import random_cluster, random_stack
from generators.tower_cases import WIDTH, encoder_decoder, images_in_text
from oracles.brute_force import Pipeline, Space, build, simulator_of

from shardwright.costmodel.lowering.chunk import StageChunk
from shardwright.costmodel.lowering.plan_lowering import Lowering
from shardwright.costmodel.lowering.stage_passes import PassKind
from shardwright.costmodel.lowering.step_work import step_end_work
from shardwright.costmodel.lowering.tied_embeddings import table_group, table_stages
from shardwright.costmodel.memory.pass_memory import ACTIVATIONS, PassMemoryModel
from shardwright.spec.model.model_spec import ModelSpec
from shardwright.spec.model.towers import layer_contexts, shared_tables
from shardwright.spec.parallel.rank_groups import RankGroup
from shardwright.spec.plan.plan import Plan
from shardwright.spec.report.work_items import Collective, Kernel
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.workload.workload import DtypeRecord, Workload

SEQ, BATCH = 128, 8
TEXT_BYTES = SEQ * WIDTH * 2
T5 = encoder_decoder(2, 3)
"""Layers: embedding, 2 encoder blocks, norm; embedding, 3 decoder blocks, head."""
IMAGES = images_in_text(2, 2)
"""Layers: patches, 2 blocks, projector; embedding, 2 blocks, head."""


def space_of(model: ModelSpec, devices: int) -> Space:
    source = random.Random(devices)
    cluster = random_cluster(source, devices)
    workload = Workload(global_batch=BATCH, seq_len=SEQ, dtype=DtypeRecord.from_shorthand("bf16"))
    chosen = replace(random_stack(source, cluster), attention="flash")
    return Space(model=model, cluster=cluster, workload=workload, stack=chosen)


def plan_of(
    model: ModelSpec,
    boundaries: tuple[int, ...],
    width: int = 1,
    strategy: LayerStrategy | None = None,
) -> tuple[Space, Plan]:
    """Stages between ``boundaries``, every layer with one strategy."""
    layers, stages = len(model.layers()), len(boundaries) + 1
    space = space_of(model, stages * width)
    pipeline = Pipeline(stages=stages, width=width, kind="1f1b", chunks=1, microbatches=4)
    chosen = (strategy or LayerStrategy(tp=width),) * layers
    return space, build(space, pipeline, (0, *boundaries, layers), chosen)


def chunks_of(space: Space, plan: Plan) -> list[StageChunk]:
    lowering = Lowering(plan.model, plan.workload, space.stack)
    return [lowering.stage(plan, s)[0] for s in range(len(plan.program.stages))]


def test_places_follow_the_towers() -> None:
    places = layer_contexts(IMAGES, SEQ)
    assert [p.tokens for p in places] == [64] * 4 + [SEQ] * 4
    assert [p.begins_tower for p in places] == [True, *[False] * 3, True, *[False] * 3]
    assert [len(p.sources) for p in places] == [0, 0, 0, 0, 1, 0, 0, 0]
    assert places[4].sources[0].tokens == 32
    assert places[4].read == places[4].sources
    decoder = layer_contexts(T5, SEQ)
    assert [len(p.sources) for p in decoder] == [0] * 4 + [1] * 4 + [0]
    assert [len(p.read) for p in decoder] == [0] * 5 + [1] * 3 + [0]


@pytest.mark.parametrize(("model", "crossing"), [
    (T5, [1, 1, 1, 1, 2, 2, 2, 1]),
    (IMAGES, [0.25, 0.25, 0.25, 0.25, 1, 1, 1]),
])  # fmt: skip
def test_what_crosses_a_cut_is_the_layer_before_and_what_later_layers_read(
    model: ModelSpec, crossing: list[float]
) -> None:
    """In text activations; image tokens are half as many and half as wide, then merged."""
    for cut, expected in enumerate(crossing, start=1):
        space, plan = plan_of(model, (cut,))
        first, second = chunks_of(space, plan)
        samples = BATCH // 4
        assert first.sends_bytes == second.receives_bytes == expected * TEXT_BYTES * samples


@pytest.mark.parametrize("model", [T5, IMAGES])
@pytest.mark.parametrize("tp", [1, 2])
def test_a_micro_batch_leaves_nothing_behind_on_any_stage(model: ModelSpec, tp: int) -> None:
    """Forward and backward of a middle micro-batch balance to the byte, however it is cut."""
    layers = len(model.layers())
    for boundaries in itertools.chain.from_iterable(
        itertools.combinations(range(1, layers), n) for n in (0, 1, 2)
    ):
        space, plan = plan_of(model, boundaries, tp)
        for chunk in chunks_of(space, plan):
            player = PassMemoryModel(space.stack, (chunk,), prefetch=False)
            ways = [
                player.effect_of(PassKind(way, 0, False, False)).change for way in (True, False)
            ]
            assert ways[0][ACTIVATIONS] >= 0
            assert ways[0][ACTIVATIONS] + ways[1][ACTIVATIONS] == 0, (boundaries, ways)


def test_a_stage_keeps_what_its_cross_attention_reads() -> None:
    """Handing the encoder's output on keeps nothing of it; reading it keeps it once."""
    kept = {}
    for name, boundaries in {"passes": (4, 5), "reads": (5, 6), "reads twice": (5, 7)}.items():
        space, plan = plan_of(T5, boundaries)
        chunk = chunks_of(space, plan)[1]
        player = PassMemoryModel(space.stack, (chunk,), prefetch=False)
        kept[name] = player.effect_of(PassKind(True, 0, False, False)).change[ACTIVATIONS]
    source = TEXT_BYTES * BATCH // 4
    assert kept["passes"] == 0, "an embedding keeps nothing either"
    alone = kept["reads twice"] - kept["reads"]
    assert kept["reads"] - alone == source


def test_every_stage_with_a_shared_table_joins_its_sum() -> None:
    assert shared_tables(T5) == (0, 4, 8)
    assert shared_tables(encoder_decoder(1, 1, tied=False)) == ()
    for boundaries, stages, group in (
        ((), (0,), None),
        ((4,), (0, 1), RankGroup(2, 1)),
        ((2, 4, 7), (0, 2, 3), RankGroup(3, 1)),
        ((1, 2, 3), (0, 3), RankGroup(2, 3)),
    ):
        space, plan = plan_of(T5, boundaries)
        assert table_stages(plan) == stages
        if group is None:
            continue
        assert table_group(plan, stages) == group
        lowering = Lowering(plan.model, plan.workload, space.stack)
        ends = [
            step_end_work(plan, space.stack, s, lowering.stage(plan, s))
            for s in range(len(plan.program.stages))
        ]
        assert [bool(end.tied_reduction) for end in ends] == [s in stages for s in range(len(ends))]


@pytest.mark.parametrize("model", [T5, IMAGES])
@pytest.mark.parametrize("way", ["none", "megatron"])
def test_every_cut_is_legal_and_simulated(model: ModelSpec, way: str) -> None:
    layers = len(model.layers())
    for cut in range(1, layers):
        strategy = LayerStrategy(tp=2, sequence_parallel=way)  # type: ignore[arg-type]
        space, plan = plan_of(model, (cut,), 2, strategy)
        assert plan.check() == []
        simulation = simulator_of(space).run(plan)
        assert simulation is not None
        assert simulation.step_time_s > 0
        assert all(row.allocated_bytes > 0 for row in simulation.memory)


def test_layers_out_of_order_are_named() -> None:
    _, plan = plan_of(T5, (4,))
    program = plan.program
    swapped = replace(program, stages=(
        replace(program.stages[0], virtual_stages=program.stages[1].virtual_stages),
        replace(program.stages[1], virtual_stages=program.stages[0].virtual_stages),
    ))  # fmt: skip
    found = [str(v) for v in replace(plan, programs=(swapped,)).check()]
    assert any("every layer exactly once, in order" in reason for reason in found)


def test_layouts_that_change_move_the_other_towers_output_too() -> None:
    """A seam between decoder blocks moves what the later ones read."""
    space = space_of(T5, 2)
    wide, narrow = LayerStrategy(tp=2), LayerStrategy()
    strategies = tuple(wide if i < 6 else narrow for i in range(9))
    lowering = Lowering(T5, space.workload, space.stack)
    layers = tuple(enumerate(strategies))
    seam = lowering.chunk(layers, None, 2, 4).layers[6].lowered
    plain = lowering.chunk(tuple((i, narrow) for i in range(9)), None, 2, 4).layers[6].lowered
    extra = len(seam.forward.entries) - len(plain.forward.entries)
    assert extra == 2, "one cut of the activations, one of the encoder's output"


def test_a_table_that_three_layers_share_is_held_and_updated_once() -> None:
    """Both embeddings and the head in one chunk: as many elements as the model has."""
    space, plan = plan_of(T5, ())
    (chunk,) = chunks_of(space, plan)
    units = [entry.unit for entry in chunk.layers if entry.unit is not None]
    assert sum(unit.local_elements for unit in units) == T5.param_count()
    shares = [unit.update for unit in units]
    assert sum(share.matrices + share.vectors for share in shares) == T5.param_count()


def test_copies_of_a_table_in_a_v_are_added_and_summed() -> None:
    """The V begins and ends on stage 0; the decoder's embedding is at its turn, on stage 1."""
    space = space_of(T5, 2)
    pipeline = Pipeline(stages=2, width=1, kind="zbv", chunks=2, microbatches=4)
    plan = build(space, pipeline, (0, 2, 4, 6, 9), (LayerStrategy(),) * 9)
    assert table_stages(plan) == (0, 1)
    lowering = Lowering(plan.model, plan.workload, space.stack)
    first, turn = (step_end_work(plan, space.stack, s, lowering.stage(plan, s)) for s in (0, 1))
    added, *summed, copied = first.tied_reduction
    assert [item.op for item in (added, copied) if isinstance(item, Kernel)] == ["add", "copy"]
    assert tuple(summed) == turn.tied_reduction
    assert [item.kind for item in turn.tied_reduction if isinstance(item, Collective)] == [
        "all_reduce"
    ]
