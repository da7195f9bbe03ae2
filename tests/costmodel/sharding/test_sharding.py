"""Sharding: the parts make the whole, levels order memory, traffic is what the papers count."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from generators.plan_cases import GPT2, LLAMA, QWEN3, Case, Sizes
from oracles.brute_force import every_sharding

from shardwright.costmodel.lowering.layer_lowering import LayerShape, lower_layer
from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.sharding.fsdp_unit import FsdpUnit
from shardwright.costmodel.sharding.param_groups import UnitShape
from shardwright.costmodel.sharding.state_layouts import lower_unit
from shardwright.costmodel.simulation.simulator import Simulation, Simulator
from shardwright.datasets.catalogue.stack import stack
from shardwright.datasets.models.load import load_model
from shardwright.spec.cluster.stack_spec import StackSpec
from shardwright.spec.model.layer_parameters import layer_parameters, split_range
from shardwright.spec.model.model_spec import EmbeddingLayer, HeadLayer, Layer, ModelSpec
from shardwright.spec.plan.plan import Plan
from shardwright.spec.report.work_items import Collective
from shardwright.spec.strategy import LayerStrategy, Sharding
from shardwright.spec.workload.number_formats import DTYPE_BYTES
from shardwright.spec.workload.workload import DtypeRecord

SHARDWRIGHT, MEGATRON = stack("shardwright"), stack("megatron")
BF16, FP32 = DtypeRecord.from_shorthand("bf16"), DtypeRecord.from_shorthand("fp32")
SEQ_LEN = 16
ODD = Sizes(hidden=36, heads=6, kv_heads=6, ffn=50, vocab=101)
MODELS = ("gpt2", "gpt2-xl", "llama-3-8b", "qwen3-8b")


def unit(
    layer: Layer, strategy: LayerStrategy, ranks: int, dtype: DtypeRecord, used: StackSpec
) -> FsdpUnit:
    return lower_unit(
        UnitShape(
            layers=(layer,),
            strategy=strategy,
            stage_ranks=ranks,
            seq_len=SEQ_LEN,
            dtype=dtype,
            stack=used,
        )
    )


def rank_elements(layer: Layer, strategy: LayerStrategy, tp_rank: int) -> list[tuple[int, int]]:
    """(rows, elements a row) of every parameter on one tensor-parallel rank."""
    return [
        (local[0], math.prod(local[1:]))
        for spec in layer_parameters(layer, SEQ_LEN)
        for local in [spec.local_shape(strategy.tp, tp_rank)]
    ]


@pytest.mark.parametrize("sizes", [LLAMA, QWEN3, GPT2, ODD])
@pytest.mark.parametrize("tp", [1, 2])
def test_parts_of_all_ranks_make_the_whole(sizes: Sizes, tp: int) -> None:
    """Tensor-parallel parts and shards of dimension 0 partition every parameter."""
    for layer in dict.fromkeys(sizes.model().layers()):
        for spec in layer_parameters(layer, SEQ_LEN):
            parts = [spec.local_shape(tp, rank) for rank in range(tp)]
            whole = sum(math.prod(p) for p in parts) // (1 if spec.split_dim is not None else tp)
            assert whole == spec.elements
            for part, degree in itertools.product(parts, (1, 2, 3, 4, 8)):
                rows = [stop - start for start, stop in _shards(part[0], degree)]
                assert sum(rows) == part[0]
                assert max(rows) == -(-part[0] // degree)


def _shards(rows: int, degree: int) -> list[tuple[int, int]]:
    return [split_range(rows, degree, index) for index in range(degree)]


@pytest.mark.parametrize("sizes", [LLAMA, GPT2, ODD])
@pytest.mark.parametrize("dtype", [BF16, FP32])
@pytest.mark.parametrize(("tp", "degree"), [(1, 1), (1, 2), (1, 3), (2, 4), (2, 1)])
def test_a_rank_stores_its_padded_shard(
    sizes: Sizes, dtype: DtypeRecord, tp: int, degree: int
) -> None:
    ranks = tp * max(degree, 2)
    strategy = LayerStrategy(tp=tp, shard=Sharding(optimizer=degree))
    for layer in dict.fromkeys(sizes.model().layers()):
        found = unit(layer, strategy, ranks, dtype, SHARDWRIGHT)
        parts = rank_elements(layer, strategy, 0)
        shard = sum(-(-rows // degree) * width for rows, width in parts)
        padding = sum((-rows % degree) * width for rows, width in parts)
        assert found.parameter_bytes == shard * DTYPE_BYTES[dtype.master]
        assert found.local_elements == sum(rows * width for rows, width in parts)
        assert shard * degree == found.local_elements + padding
        moments = 2 * shard * DTYPE_BYTES[dtype.moments]
        assert found.optimizer_bytes - moments == 4 * len(parts)
        assert found.update.matrices + found.update.vectors == shard
        assert found.whole_bytes == shard * degree * DTYPE_BYTES[dtype.param]


@pytest.mark.parametrize("name", MODELS)
def test_stored_parameters_are_the_models_parameter_count(name: str) -> None:
    """Units of all layers, on all ranks of a tensor-parallel and sharded group."""
    model, _ = load_model(name)
    for tp, degree in ((1, 1), (2, 4), (4, 2)):
        strategy = LayerStrategy(tp=tp, shard=Sharding(optimizer=degree))
        total = 0
        for layer in model.layers():
            for rank, spec in itertools.product(range(tp), layer_parameters(layer, SEQ_LEN)):
                shared = spec.split_dim is None and rank > 0
                local = spec.local_shape(tp, rank)
                rows = sum(stop - start for start, stop in _shards(local[0], degree))
                total += 0 if shared else rows * math.prod(local[1:])
            found = unit(layer, strategy, tp * degree, BF16, SHARDWRIGHT)
            assert found.parameter_bytes * degree * tp >= 4 * _elements(layer)
        assert total - tied_elements(model) == model.param_count(SEQ_LEN)


def _elements(layer: Layer) -> int:
    return sum(spec.elements for spec in layer_parameters(layer, SEQ_LEN))


def tied_elements(model: ModelSpec) -> int:
    heads = [x for x in model.layers() if isinstance(x, HeadLayer)]
    return sum(x.vocab * x.hidden for x in heads) if model.tie_embeddings else 0


def test_param_count_is_the_sum_of_the_parameter_table() -> None:
    for sizes in (LLAMA, QWEN3, GPT2, ODD):
        model = sizes.model()
        whole = sum(_elements(layer) for layer in model.layers())
        assert model.param_count(SEQ_LEN) == whole - tied_elements(model)
        tied = replace(model, tie_embeddings=True)
        assert tied.param_count(SEQ_LEN) == whole - sizes.vocab * sizes.hidden


def test_tied_ends_of_one_stage_hold_the_table_once() -> None:
    model = GPT2.model()
    embedding, head = model.layers()[0], model.layers()[-1]
    assert isinstance(embedding, EmbeddingLayer)
    shape = UnitShape(
        layers=(embedding, head),
        strategy=LayerStrategy(),
        stage_ranks=2,
        seq_len=SEQ_LEN,
        dtype=FP32,
        stack=SHARDWRIGHT,
    )
    alone = [unit(x, LayerStrategy(), 2, FP32, SHARDWRIGHT) for x in (embedding, head)]
    table = GPT2.vocab * GPT2.hidden
    both = lower_unit(shape).local_elements
    assert both == sum(x.local_elements for x in alone) - table


def payload(items: tuple[object, ...], kind: str) -> int:
    return sum(i.payload_bytes for i in items if isinstance(i, Collective) and i.kind == kind)


@pytest.mark.parametrize("used", [SHARDWRIGHT, MEGATRON])
def test_traffic_of_each_level(used: StackSpec) -> None:
    """Rajbhandari et al., 2020, section 7: gather, reduce-scatter, all-reduce of whole units."""
    layer = Sizes(hidden=64, heads=4, kv_heads=4, ffn=128).model().layers()[1]
    for sharding in every_sharding(8):
        if used is MEGATRON and sharding.gradients > 1:
            continue
        found = unit(layer, LayerStrategy(shard=sharding), 8, BF16, used)
        whole, degree = found.local_elements, sharding.optimizer
        scattered = payload(found.reduce.fresh, "reduce_scatter")
        gathered = payload((*found.gather.forward, *found.post_update), "all_gather")
        assert gathered == (2 * whole if degree > 1 else 0)
        assert scattered == (4 * whole if degree > 1 else 0)
        assert payload(found.reduce.fresh, "all_reduce") == (
            4 * whole // degree if degree < 8 else 0
        )


def simulate(plan: Plan, used: StackSpec) -> Simulation:
    simulation = Simulator.for_plan(plan, Machine(plan.cluster), used).run(plan)
    assert simulation is not None
    return simulation


def peak(plan: Plan, used: StackSpec = SHARDWRIGHT) -> int:
    return max(row.reserved_bytes for row in simulate(plan, used).memory)


@pytest.mark.parametrize("batches", [2, 4])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_higher_levels_reserve_less(batches: int, dtype: str) -> None:
    """With several micro-batches; whole states shrink from zero0 to zero3."""
    sizes = Sizes(blocks=6, hidden=512, heads=8, kv_heads=8, ffn=1024, vocab=512)
    peaks = []
    for level in ("zero0", "zero1", "zero2", "zero3"):
        strategy = LayerStrategy(shard=Sharding.from_text(level, 4))
        case = Case(
            name=level,
            sizes=sizes,
            strategies=strategy,
            dtype=dtype,
            global_batch=4 * batches,
            micro_batch=4,
        )
        peaks.append(peak(case.plan()))
    assert peaks == sorted(peaks, reverse=True)
    assert len(set(peaks)) == 4


def test_a_larger_hsdp_degree_reserves_less() -> None:
    sizes = Sizes(blocks=6, hidden=512, heads=8, kv_heads=8, ffn=1024, vocab=512)
    peaks = [
        peak(
            Case(
                name=f"hsdp:{degree}",
                sizes=sizes,
                ranks=8,
                strategies=LayerStrategy(shard=Sharding.from_text(f"hsdp:{degree}", 8)),
                micro_batch=8,
            ).plan()
        )
        for degree in (1, 2, 4, 8)
    ]
    assert peaks == sorted(set(peaks), reverse=True)


@pytest.mark.parametrize("flash", [True, False])
@pytest.mark.parametrize("used", [SHARDWRIGHT, MEGATRON])
def test_more_recomputation_reserves_less_and_takes_longer(flash: bool, used: StackSpec) -> None:
    """With enough blocks that saved activations are the peak."""
    chosen = replace(used, attention="flash" if flash else "unfused")
    found = [
        simulate(
            Case(
                name=recompute,
                sizes=Sizes(blocks=12, hidden=64),
                ranks=1,
                strategies=LayerStrategy(recompute=recompute),  # type: ignore[arg-type]
                seq_len=256,
            ).plan(),
            chosen,
        )
        for recompute in ("none", "selective", "full")
    ]
    peaks = [s.memory[0].allocated_bytes for s in found]
    assert peaks == sorted(set(peaks), reverse=True)
    times = [s.step_time_s for s in found]
    assert times == sorted(set(times))


def test_the_first_stage_holds_most_micro_batches() -> None:
    plan = Case(
        name="1f1b", sizes=Sizes(blocks=14), ranks=4, stages=4, global_batch=16, micro_batch=1
    ).plan()
    activations = [row.by["activations"] for row in simulate(plan, SHARDWRIGHT).memory]
    assert activations[1] > activations[2]
    gpipe = replace(
        plan,
        programs=(replace(plan.program, schedule=replace(plan.program.schedule, kind="gpipe")),),
    )
    all_held = [row.by["activations"] for row in simulate(gpipe, SHARDWRIGHT).memory]
    assert all(g > o for g, o in zip(all_held, activations, strict=True))


def test_a_published_memory_figure() -> None:
    """Korthikanti et al., 2022, equation 2: s·b·h·(10 + 24/t + 5·a·s/(h·t)) bytes a layer.

    Unfused attention, tensor parallelism, no sequence parallelism, no recomputation. Without
    dropout its masks (2 of the 10, 1 of the 5) and the dropped probabilities (2 of the 5) are
    not there.
    """
    heads, hidden, seq, batch = 16, 2048, 1024, 2
    block = (
        Sizes(gpt2=True, hidden=hidden, heads=heads, kv_heads=heads, ffn=4 * hidden)
        .model()
        .layers()[1]
    )
    for drops, outside, inside in ((True, 10, 5), (False, 8, 2)):
        used = replace(MEGATRON, attention="unfused", dropout=drops)
        for tp in (1, 2, 4, 8):
            shape = LayerShape(LayerStrategy(tp=tp), None, batch, seq, "fp16", used)
            lowered = lower_layer(block, shape)
            kept = lowered.forward.change_bytes - lowered.output_bytes + lowered.input_bytes
            scores = inside * heads * seq / (hidden * tp)
            paper = seq * batch * hidden * (outside + 24 / tp + scores)
            assert kept == pytest.approx(paper, rel=0.001), (drops, tp)
