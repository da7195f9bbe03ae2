"""What compiling blocks costs: less on the device, less on the host, and sums that hold."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from generators.plan_cases import Sizes
from kernel_doubles.compiled_layers import with_mode

from shardwright.api.planning.report import simulate_plan
from shardwright.api.planning.uniform_plan import UniformStrategy, uniform_plan
from shardwright.api.problem.resolve import Inputs, resolve
from shardwright.costmodel.lowering.layer_lowering import LoweredLayer, lower_layer
from shardwright.costmodel.lowering.layer_parts import LayerWorkCache
from shardwright.costmodel.lowering.plan_lowering import Lowering
from shardwright.costmodel.memory.feasibility import DEFAULT_RISK
from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.pricing.pricer import Pricer
from shardwright.costmodel.symbolic.layer_shape import LayerShape
from shardwright.costmodel.techniques.compile import (
    GRAPH_S,
    LAUNCH_S,
    PARTS,
    REGION_S,
    TECHNIQUE,
    fused_stack,
)
from shardwright.datasets.catalogue.stack import stack
from shardwright.planner.solve.problem import Problem
from shardwright.spec.cluster.stack_spec import StackSpec
from shardwright.spec.report.report import Prediction
from shardwright.spec.report.work_items import MATMULS, Kernel
from shardwright.spec.strategy import LayerStrategy

PLAIN = LayerStrategy()
EAGER = stack("shardwright", on_cores=True)
LARGE = Sizes(hidden=4096, heads=32, kv_heads=8, ffn=14336)
SMALL = Sizes(blocks=8, hidden=128, heads=4, kv_heads=4, ffn=256, vocab=512).model()
FAMILIES = {
    "llama": LARGE,
    "gpt2": replace(LARGE, gpt2=True),
    "qwen3": replace(LARGE, qk_norm=True),
}
STRATEGIES = {
    "alone": PLAIN,
    "full": replace(PLAIN, recompute="full"),
    "selective": replace(PLAIN, recompute="selective"),
    "tp": LayerStrategy(tp=2),
    "tp full": LayerStrategy(tp=2, sequence_parallel="megatron", recompute="full"),
}


def lowered(
    sizes: Sizes, strategy: LayerStrategy, software: StackSpec, dtype: str = "bf16"
) -> LoweredLayer:
    shape = LayerShape(
        strategy=strategy,
        before=None,
        batch=2,
        seq_len=2048,
        dtype=dtype,
        stack=fused_stack(software, strategy) if strategy.techniques else software,
        prices=(TECHNIQUE,) if strategy.techniques else (),
    )
    return lower_layer(sizes.model().layers()[1], shape)


def kernels(layer: LoweredLayer) -> list[Kernel]:
    return [*layer.forward.kernels(), *layer.backward.kernels()]


def pricer(software: StackSpec) -> Pricer:
    return Pricer(Machine(resolve(Inputs(model="gpt2", cluster="8xH100-80GB", global_batch=8,
                                         seq_len=64)).cluster), software)  # fmt: skip


@pytest.mark.parametrize("attention", ["flash", "unfused"])
@pytest.mark.parametrize("where", STRATEGIES)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_device_does_the_same_products_in_less_time(
    family: str, where: str, attention: str
) -> None:
    software = replace(EAGER, attention=attention)  # type: ignore[arg-type]
    eager, fused = (
        lowered(FAMILIES[family], with_mode(STRATEGIES[where], word), software)
        for word in ("none", "default")
    )
    prices = pricer(software)
    for way in ("forward", "backward"):
        before, after = getattr(eager, way), getattr(fused, way)
        assert after.collectives() == before.collectives()
        costs = [prices.layer_pass(each) for each in (before, after)]
        host = [cost.terms_s[-1] for cost in costs]
        assert costs[1].time_s - host[1] < costs[0].time_s - host[0]
        assert after.peak_bytes <= before.peak_bytes
    assert len(kernels(fused)) < len(kernels(eager))
    assert fused.forward.change_bytes == eager.forward.change_bytes
    before, after = (Counter(k for k in kernels(x) if k.op in MATMULS) for x in (eager, fused))
    assert before == after


def test_a_block_of_llama_is_35_kernels_instead_of_80() -> None:
    software = EAGER
    found = [len(kernels(lowered(LARGE, with_mode(PLAIN, w), software, "fp32")))
             for w in ("none", "default")]  # fmt: skip
    assert found == [80, 35]


def test_beside_fused_kernels_it_still_joins_sums_and_norms() -> None:
    """Fewer bytes than with the kernels that a device has anyway, though not in place."""
    moved = [
        sum(
            k.traffic_bytes
            for k in kernels(lowered(LARGE, with_mode(PLAIN, w), stack("shardwright")))
        )
        for w in ("none", "default")
    ]
    assert 0.8 * moved[0] < moved[1] < moved[0]


def test_who_launches_what() -> None:
    software = stack("shardwright")
    whole = lowered(LARGE, with_mode(PLAIN, "default"), software)
    count = len(whole.forward.kernels())
    assert whole.forward.host == (0, count, LAUNCH_S, REGION_S)
    parts = lowered(LARGE, with_mode(LayerStrategy(tp=2), "default"), software)
    products = sum(k.op in MATMULS for k in parts.forward.kernels())
    assert parts.forward.host == (
        products,
        len(parts.forward.kernels()) - products,
        LAUNCH_S,
        PARTS * REGION_S,
    )
    again = lowered(LARGE, with_mode(STRATEGIES["full"], "default"), software)
    assert again.backward.host is not None
    assert again.backward.host.once_s == 2 * REGION_S
    graph = lowered(LARGE, with_mode(PLAIN, "cuda_graph"), software)
    assert graph.forward.entries == whole.forward.entries
    assert graph.forward.host == graph.backward.host == (0, 0, 0.0, GRAPH_S)
    added = graph.accumulating_backward.host
    assert added == (9, 0, 0.0, GRAPH_S)  # a gradient of each weight
    assert lowered(LARGE, PLAIN, software).forward.host is None


def question(**more: object) -> Problem:
    asked = {"model": "gpt2", "cluster": "1xH100-80GB", "global_batch": 4, "seq_len": 256, **more}
    return resolve(Inputs(**asked))  # type: ignore[arg-type]


def simulated(found: Problem, **flags: object) -> Prediction:
    plan, notes = uniform_plan(found, UniformStrategy.from_flags(flags))
    report = simulate_plan(plan, found.stack, found.measured, notes, DEFAULT_RISK).report
    assert sum(report.prediction.breakdown_s.values()) == pytest.approx(
        report.prediction.step_time_s, rel=1e-12
    )
    return report.prediction


def test_graphs_leave_the_device_its_time_and_take_the_host_s() -> None:
    found = question(model=SMALL, dtype="fp32", seq_len=64)
    steps = {word: simulated(found, compile=word) for word in ("none", "default", "cuda_graph")}
    hosts = {word: step.breakdown_s["host"] for word, step in steps.items()}
    device = {word: step.step_time_s - hosts[word] for word, step in steps.items()}
    assert device["cuda_graph"] == pytest.approx(device["default"], rel=1e-12)
    assert device["default"] < device["none"]
    assert hosts["cuda_graph"] < hosts["default"] < hosts["none"]


def test_compiled_layers_of_a_large_model_take_less_time() -> None:
    found = question(model="llama-3-8b", cluster="8xH100-80GB", global_batch=8, seq_len=4096)
    for flags in ({}, {"tp": 2, "sp": "megatron"}, {"recompute": "full", "shard": "zero3"}):
        eager, fused = (simulated(found, compile=word, **flags) for word in ("none", "default"))
        assert fused.step_time_s < eager.step_time_s
        rows = zip(fused.memory, eager.memory, strict=True)
        assert all(row.allocated_bytes <= other.allocated_bytes for row, other in rows)


def test_tables_of_the_search_say_what_the_lowering_says() -> None:
    found = question(model="llama-3-8b", cluster="8xH100-80GB", global_batch=8, seq_len=4096)
    lowering = Lowering(found.model, found.workload, found.stack)
    for where in ("alone", "tp full"):
        strategy = with_mode(STRATEGIES[where], "default")
        work = LayerWorkCache(lowering).of(1, strategy, 2, 2, False)
        layer = lowering.layer(1, strategy, strategy, 2, 2)
        assert work.forward == (layer.forward,)
        assert work.backward(accumulates=True) == (layer.accumulating_backward,)
