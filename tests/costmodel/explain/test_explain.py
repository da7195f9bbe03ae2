"""What is said of a step adds up: breakdown, FLOPs, memory rows, timelines."""

from __future__ import annotations

import math

import pytest
from generators.samples import sample
from hypothesis import given, settings
from hypothesis import strategies as st

import shardwright as sw
from shardwright.costmodel.explain.breakdown import breakdown, predict, source_share
from shardwright.costmodel.kernel_latency.roofline import peak_flops_per_s
from shardwright.costmodel.lowering.model_flops import (
    masked_flops_per_sample,
    model_flops_per_sample,
)
from shardwright.costmodel.memory.feasibility import MemoryRule
from shardwright.costmodel.simulation.timeline import simulated_timeline
from shardwright.spec.model.feed_forward import Moe
from shardwright.spec.model.model_spec import BlockLayer, HeadLayer, ModelSpec
from shardwright.spec.report.report import BREAKDOWN_TERMS, MEMORY_TERMS
from shardwright.spec.report.timeline import from_perfetto

SEEDS = st.integers(0, 160)
COMPUTE_TERMS = ("matmul", "attention", "elementwise", "recompute", "optimizer")


def flops_by_hand(model: ModelSpec, seq_len: int) -> int:
    """Training FLOPs of one sample from the sizes: 6 a weight a token, 12·s·width for scores."""
    total = 0
    for layer in model.layers():
        if isinstance(layer, BlockLayer):
            a, hidden = layer.attention, layer.hidden
            weights = hidden * (a.query_dim + 2 * a.kv_dim) + a.query_dim * hidden
            mlp, products = layer.mlp, 3 if layer.mlp.gated else 2
            if isinstance(mlp, Moe):
                weights += hidden * (mlp.experts + products * (mlp.topk * mlp.ffn + mlp.shared_ffn))
            else:
                weights += hidden * mlp.ffn * products
            total += 6 * weights * seq_len + 12 * seq_len**2 * a.query_dim
        elif isinstance(layer, HeadLayer):
            total += 6 * layer.hidden * layer.vocab * seq_len
    return total


@given(SEEDS)
@settings(max_examples=100)
def test_the_breakdown_adds_up_to_the_step(seed: int) -> None:
    s = sample(seed)
    terms = breakdown(s.simulation)
    assert set(terms) == set(BREAKDOWN_TERMS)
    assert math.fsum(terms.values()) == pytest.approx(s.simulation.step_time_s, rel=1e-9)
    assert all(seconds >= -1e-12 * s.simulation.step_time_s for seconds in terms.values())
    assert abs(terms["unattributed"]) <= 0.01 * s.simulation.step_time_s


@given(SEEDS)
@settings(max_examples=60)
def test_terms_appear_only_with_their_cause(seed: int) -> None:
    s = sample(seed)
    terms = breakdown(s.simulation)
    strategies = s.plan.layer_strategies()
    if s.draft.pipeline.stages == 1:
        assert terms["exposed_pp"] == 0
    if all(x.recompute == "none" for x in strategies):
        assert terms["recompute"] == 0
    splits = any(x.cp > 1 or x.ulysses for x in strategies)
    assert terms["exposed_cp"] == 0 or splits
    assert terms["exposed_ep"] == 0 or any(x.ep * x.etp > 1 for x in strategies)
    if s.draft.pipeline.stages * s.draft.pipeline.width == 1:
        exposed = terms["exposed_tp"] + terms["exposed_dp"] + terms["exposed_pp"]
        assert exposed == pytest.approx(0, abs=1e-12 * s.simulation.step_time_s)
        assert terms["bubble"] == pytest.approx(0, abs=1e-9 * s.simulation.step_time_s)


@given(SEEDS)
@settings(max_examples=80)
def test_step_devices_peak_and_mfu_multiply_to_the_flops(seed: int) -> None:
    s = sample(seed)
    found = predict(s.plan, s.simulation, s.simulator, MemoryRule())
    workload = s.plan.workload
    devices = s.draft.pipeline.stages * s.draft.pipeline.width
    peak = peak_flops_per_s(s.simulator.pricer.machine.device, workload.dtype.param)
    by_hand = flops_by_hand(s.plan.model, workload.seq_len)
    assert model_flops_per_sample(s.plan.model, workload) == by_hand
    whole = found.step_time_s * devices * peak * found.mfu
    assert whole == pytest.approx(by_hand * workload.global_batch, rel=1e-9)
    assert found.flops_per_s_per_device == pytest.approx(found.mfu * peak, rel=1e-9)
    tokens = found.tokens_per_s_per_device * devices * found.step_time_s
    assert tokens == pytest.approx(workload.tokens_per_step, rel=1e-9)
    assert found.tokens_per_s == pytest.approx(found.tokens_per_s_per_device * devices, rel=1e-9)
    masked = masked_flops_per_sample(s.plan.model, workload)
    assert found.mfu_causal == pytest.approx(found.mfu * (1 - masked / by_hand), rel=1e-9)
    assert found.samples_per_s * found.step_time_s == pytest.approx(workload.global_batch, rel=1e-9)
    low_s, high_s = found.step_time_interval_s
    assert 0 < low_s < found.step_time_s < high_s


@given(SEEDS)
@settings(max_examples=80)
def test_hfu_counts_at_least_what_mfu_counts(seed: int) -> None:
    """Ranks that hold equal slices never do less than the model's own work together."""
    s = sample(seed)
    found = predict(s.plan, s.simulation, s.simulator, MemoryRule())
    assert found.hfu >= found.mfu * (1 - 1e-9)


@given(SEEDS)
@settings(max_examples=100)
def test_memory_terms_add_up_to_what_is_reserved(seed: int) -> None:
    s = sample(seed)
    assert [row.stage for row in s.simulation.memory] == list(range(s.draft.pipeline.stages))
    for row in s.simulation.memory:
        assert set(row.by) == set(MEMORY_TERMS)
        assert sum(row.by.values()) == row.reserved_bytes
        assert all(size >= 0 for size in row.by.values())
        assert row.allocated_bytes <= row.reserved_bytes
        assert row.capacity_bytes == s.space.cluster.groups[0].memory.hbm_bytes


@given(SEEDS)
@settings(max_examples=60)
def test_source_shares_add_up(seed: int) -> None:
    shares = source_share(sample(seed).simulation)
    assert sum(shares.values()) == pytest.approx(1)
    assert all(share >= 0 for share in shares.values())


@given(SEEDS)
@settings(max_examples=40)
def test_timelines_are_sound(seed: int) -> None:
    s = sample(seed)
    timeline = simulated_timeline(s.simulation, s.simulator)
    assert timeline.overlapping() == []
    assert all(span.start_s >= 0 and span.duration_s > 0 for span in timeline.spans)
    assert timeline.step_time_s == pytest.approx(s.simulation.step_time_s, rel=1e-9)


@given(SEEDS)
@settings(max_examples=40)
def test_the_critical_stage_shows_its_breakdown(seed: int) -> None:
    """Work by term on the compute stream; stretched where traffic beside it slows it down."""
    s = sample(seed)
    timeline = simulated_timeline(s.simulation, s.simulator)
    rank = s.simulation.critical.stage
    shown, told = timeline.term_seconds(rank), breakdown(s.simulation)
    told["optimizer"] -= s.simulation.norm_s  # on the wire
    stretches = s.simulator.pricer.hides_sharding
    for term in COMPUTE_TERMS:
        seconds = shown.get(term, 0.0)
        assert seconds >= told[term] * (1 - 1e-9)
        most = s.space.stack.overlap_slowdown if stretches else 1.0
        assert seconds <= told[term] * most * (1 + 1e-9) + 1e-15
    busy = {r: timeline.busy_s(r) for r in range(s.draft.pipeline.stages)}
    assert max(busy.values()) <= s.simulation.step_time_s * (1 + 1e-9)


@given(SEEDS)
@settings(max_examples=25)
def test_timelines_survive_the_trace_format(seed: int) -> None:
    s = sample(seed)
    timeline = simulated_timeline(s.simulation, s.simulator)
    read = from_perfetto(timeline.to_perfetto(), "trace")
    assert len(read.spans) == len(timeline.spans)
    assert read.step_time_s == pytest.approx(timeline.step_time_s, rel=1e-9)
    flows = [(f.source, f.target) for f in timeline.flows]
    for source, target in flows:
        assert timeline.spans[target].start_s >= timeline.spans[source].end_s - 1e-9


@pytest.mark.parametrize(
    ("cluster", "half_width"),
    [
        ("8xA100-80GB", 0.25),
        ("8xA800", 0.25),
        ("8xA40", 0.35),
        ("8xH20", 0.35),
        ("8xMI250", 0.55),
        ("8xMI250X", 0.55),
        ("1x8xA100-80GB+1x8xV100-32GB", 0.35),
    ],
)
def test_the_interval_widens_with_what_is_not_measured(cluster: str, half_width: float) -> None:
    found = sw.simulate("gpt2", cluster, global_batch=64, seq_len=512, dtype="fp16", pp=2)
    low_s, high_s = found.prediction.step_time_interval_s
    step_s = found.prediction.step_time_s
    assert (low_s, high_s) == pytest.approx(((1 - half_width) * step_s, (1 + half_width) * step_s))
