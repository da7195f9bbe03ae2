"""What the layers of a stage need by their tables is never above its simulated fullest moment."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from generators.random_plans import Draft, Drawer
from generators.random_spaces import PLENTY_BYTES
from generators.samples import random_problem
from generators.tower_cases import encoder_decoder, images_in_text
from oracles.brute_force import Space, simulator_of
from published.planning import parts_of

from shardwright.datasets.catalogue.stack import stack
from shardwright.planner.search.build import SingleGroupParts
from shardwright.planner.space.pipeline_shape import PipelineShape
from shardwright.planner.tables import pass_table
from shardwright.spec.choices import Optimizer
from shardwright.spec.model.layers import MultiTokenLayer
from shardwright.spec.model.mixers import LatentAttention
from shardwright.spec.model.model_spec import BlockLayer, LayerRun, ModelSpec
from shardwright.spec.schedules.stage_order import ALL_KINDS, SPLIT_KINDS
from shardwright.spec.workload.training import Lora
from shardwright.spec.workload.workload import DtypeRecord

PLANS = 6
LATENT = LatentAttention(heads=4, query_rank=48, kv_rank=32, nope_dim=32, rope_dim=16, value_dim=32)
STACKS = ("shardwright", "megatron", "megatron-deepspeed", "torchtitan", "deepspeed")
OPTIMIZERS: tuple[Optimizer, ...] = ("muon", "adamw8bit", "sgd")


def plain(space: Space, seed: int) -> Space:
    return space


def other_stack(space: Space, seed: int) -> Space:
    """Contiguous and partitioned states, gradients added within products, fewer overlaps."""
    used = replace(stack(STACKS[seed % len(STACKS)]), attention=space.stack.attention)
    return replace(space, stack=used)


def contiguous(space: Space, seed: int) -> Space:
    """With every schedule, which the stacks that have such states do not run."""
    return replace(space, stack=replace(stack("shardwright"), state_layout="contiguous"))


def adapted(space: Space, seed: int) -> Space:
    return replace(space, workload=replace(space.workload, trainable=Lora(rank=4)))


def few(space: Space, seed: int) -> Space:
    """One micro-batch, or two."""
    return replace(space, workload=replace(space.workload, global_batch=1 + seed % 2))


def states(space: Space, seed: int) -> Space:
    """Another optimizer, gradients in two bytes."""
    optimizer = OPTIMIZERS[seed % len(OPTIMIZERS)]
    dtype = DtypeRecord(gradient="bf16", communication="bf16")
    return replace(space, workload=replace(space.workload, optimizer=optimizer, dtype=dtype))


def towers(space: Space, seed: int) -> Space:
    """Cross-attention, one table for three ends; or images in a text, now and then frozen."""
    model = images_in_text(2, 2) if seed % 2 else encoder_decoder(2, 2, tied=seed % 4 == 0)
    frozen = (model.towers[0].name,) if seed % 3 == 0 else ()
    return replace(space, model=model, workload=replace(space.workload, frozen=frozen))


def further_tokens(space: Space, seed: int) -> Space:
    """A multi-token layer before the head, latent attention in every second model."""
    own, head = [r.layer for r in space.model.towers[0].layers][-2:]
    assert isinstance(own, BlockLayer)
    layer = MultiTokenLayer(hidden=own.hidden, vocab=head.vocab, block=own)  # type: ignore[union-attr]
    *runs, last = space.model.towers[0].layers
    found = with_runs(space.model, [*runs, LayerRun(layer=layer), last])
    if seed % 2:
        found = with_runs(found, [latent(run) for run in found.towers[0].layers])
    return replace(space, model=found)


def with_runs(model: ModelSpec, runs: list[LayerRun]) -> ModelSpec:
    tower = replace(model.towers[0], layers=tuple(runs))
    return replace(model, towers=(tower,), tie_embeddings=False)


def latent(run: LayerRun) -> LayerRun:
    if not isinstance(run.layer, BlockLayer):
        return run
    return replace(run, layer=replace(run.layer, attention=LATENT))


CHANGES: tuple[Callable[[Space, int], Space], ...] = (
    plain,
    other_stack,
    contiguous,
    adapted,
    few,
    states,
    towers,
    further_tokens,
)


@pytest.fixture(autouse=True)
def _whole_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables with every option, so that random plans find theirs."""
    monkeypatch.setattr(pass_table, "MAX_UNFILTERED", 10**9)


def stage_bytes(parts: SingleGroupParts, draft: Draft) -> Iterator[float]:
    """Bytes of each stage's layers at the moment that the planner weighs."""
    p = draft.pipeline
    shape = PipelineShape(p.stages, p.width, p.kind, p.chunks, p.microbatches)
    place = parts.bounds.relaxations.pipeline(shape)
    for stage in range(p.stages):
        total = 0.0
        for chunk, peak_in_flight in enumerate(shape.peak_in_flight(stage)):
            position = shape.position(stage, chunk)
            start, stop = draft.boundaries[position : position + 2]
            for layer in range(start, stop):
                table = place.tables[place.layer_classes[layer]]
                row = table.strategies.index(draft.strategies[layer])
                total += float(table.bytes_at(peak_in_flight, layer == stop - 1)[row])
        yield total


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_no_stage_needs_less_than_its_layers_hold(change: Callable[[Space, int], Space]) -> None:
    shares: list[float] = []
    layer_classes: Counter[str] = Counter()
    for seed in range(4):
        space = change(random_problem(seed + 40, 8), seed)
        parts, simulator = parts_of(space.with_memory(PLENTY_BYTES)), simulator_of(space)
        drawer = Drawer(space, random.Random(f"held {seed}"), ALL_KINDS)
        for _ in range(PLANS):
            draft = drawer.draft()
            simulation = simulator.run(draft.plan(space))
            assert simulation is not None
            layer_classes[draft.pipeline.kind] += 1
            for stage, need in enumerate(stage_bytes(parts, draft)):
                live = min(row.allocated_bytes for row in simulation.memory if row.stage == stage)
                assert need <= live, (space.model.name, stage, draft)
                shares.append(need / live)
    assert max(shares) > 0.9
    assert set(layer_classes) & set(SPLIT_KINDS) or change is other_stack or change is few
