"""Load of experts: words, traces, the fullest rank, and what is refused."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from itertools import pairwise

import pytest
from generators.expert_cases import PLAIN, model_of
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.spec.codec import from_json, to_document
from shardwright.spec.errors import InputError
from shardwright.spec.inputs.routing_trace import HEADER, RoutingRow, read_trace, trace_text
from shardwright.spec.model.feed_forward import Moe
from shardwright.spec.workload.expert_load import (
    PowerLoad,
    fullest_over_mean,
    layer_buckets,
    load_violation,
    power_shares,
    typed_load,
)
from shardwright.spec.workload.workload import Workload

MODEL = model_of(Moe(**PLAIN), blocks=3)
LAYERS, EXPERTS = (2, 3), 8


def trace(steps: int = 20, layers: tuple[int, ...] = LAYERS, experts: int = EXPERTS) -> str:
    source = random.Random(0)
    return trace_text(
        RoutingRow(step, layer, expert, source.randint(1, 100))
        for step in range(1, steps + 1)
        for layer in layers
        for expert in range(experts)
    )


def test_an_even_load_is_absent() -> None:
    assert typed_load("even", "--expert-load") is None
    assert typed_load("power:0", "--expert-load") is None
    plain = Workload(global_batch=8, seq_len=32)
    assert "expert_load" not in to_document(plain)
    assert layer_buckets(MODEL, None) == (None,) * 5


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 64), st.floats(0.01, 8), st.integers(1, 8))
def test_shares_of_a_power_fall_add_up_and_leave_a_token_its_choices(
    experts: int, exponent: float, topk: int
) -> None:
    topk = min(topk, experts)
    shares = power_shares(experts, exponent, topk)
    assert sum(shares) == pytest.approx(1)
    assert all(a >= b - 1e-12 for a, b in pairwise(shares))
    assert shares[0] <= 1 / topk + 1e-12


def test_the_fullest_rank_holds_experts_in_a_row() -> None:
    shares = (0.1, 0.4, 0.3, 0.2)
    assert fullest_over_mean(shares, 4) == pytest.approx(1.6)
    assert fullest_over_mean(shares, 2) == pytest.approx(1.0)


def test_a_trace_comes_back_with_its_median_and_late_steps() -> None:
    load = read_trace(trace(), "t.csv")
    assert load.steps == 20
    assert [entry.layer for entry in load.layers] == list(LAYERS)
    assert load_violation(MODEL, load) is None
    for entry in load.layers:
        assert max(entry.p95) >= max(entry.median)
        assert sum(entry.median) == pytest.approx(1, abs=1e-6)
    workload = Workload(global_batch=8, seq_len=32, expert_load=load)
    assert from_json(Workload, json.dumps(to_document(workload)), "w") == workload


def test_memory_takes_the_late_steps_and_time_the_middle_one() -> None:
    tokens = [[10, 10], [12, 8], [18, 2]]  # steps of two experts, the last one late
    rows = (RoutingRow(s, 2, e, n) for s, counts in enumerate(tokens) for e, n in enumerate(counts))
    moe = Moe(experts=2, topk=1, ffn=8)
    load = read_trace(trace_text(rows), "t.csv")
    bucket = layer_buckets(model_of(moe, blocks=2), load)[2]
    assert bucket is not None
    assert dict(bucket.rows)[2] == pytest.approx(1.2, rel=0.023)
    assert dict(bucket.memory_rows)[2] == pytest.approx(1.8, rel=0.023)


def test_a_capacity_factor_fills_every_buffer_alike() -> None:
    capped = model_of(replace(Moe(**PLAIN), capacity_factor=1.0))
    assert set(layer_buckets(capped, PowerLoad(exponent=1.0))) == {None}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the header"),
        ("step,layer,expert\n", "the header"),
        (f"{HEADER}\n", "at least one step"),
        (f"{HEADER}\n1,2,0\n", "four numbers"),
        (f"{HEADER}\n1,2,0,-3\n", "line 2: tokens: got -3"),
        (f"{HEADER}\n1,2,0,1.5\n", "line 2: tokens: got 1.5"),
        (f"{HEADER}\n1,2,0,4\n1,2,0,4\n", "line 3"),
        (f"{HEADER}\n2,2,0,4\n1,2,0,4\n", "in order of step"),
        (f"{HEADER}\n1,2,1,4\n", "from 0 on"),
        (f"{HEADER}\n1,2,0,4\n1,2,1,4\n2,2,0,4\n", "step 2: got 1 experts"),
        (f"{HEADER}\n1,2,0,0\n1,2,1,0\n", "no tokens"),
    ],
)
def test_a_bad_trace_is_refused_in_a_line(text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        read_trace(text, "t.csv")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_load_of_another_model_is_refused() -> None:
    fewer = read_trace(trace(layers=(2,)), "t.csv")
    assert "model has experts in 2 layers (2 to 3)" in (load_violation(MODEL, fewer) or "")
    other = read_trace(trace(experts=4), "t.csv")
    assert "4 experts in layer 2, which has 8" in (load_violation(MODEL, other) or "")
    dense = model_of(Moe(**PLAIN), blocks=2, dense=2)
    assert "has none" in (load_violation(dense, PowerLoad(exponent=1.0)) or "")
