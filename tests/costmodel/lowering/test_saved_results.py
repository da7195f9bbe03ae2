"""Recomputation by operation: what a block keeps, what runs again, and where it is legal."""

from __future__ import annotations

import json

import pytest

import shardwright as sw
from shardwright.costmodel.layers.core_attention import ATTENDED, CORE_ATTENTION
from shardwright.costmodel.lowering.layer_lowering import LoweredLayer, lower_layer
from shardwright.costmodel.symbolic.layer_shape import LayerShape
from shardwright.datasets.catalogue.stack import stack
from shardwright.datasets.models.load import presets
from shardwright.spec.errors import InputError
from shardwright.spec.recomputation import block_of, kept_results, result_names
from shardwright.spec.strategy import LayerStrategy

LLAMA = next(layer for layer in presets()["llama-3-8b"].model.kinds() if block_of(layer))
TOKENS = 8192
NAMED = "ops:save=input,query,value,attention,gate,down"
DEEPSEEK_16B = {
    "layers": 27, "hidden": 2048, "ffn": 10944, "heads": 16, "vocab": 102400, "experts": 64,
    "topk": 6, "expert_ffn": 1408, "shared_experts": 2, "dense_layers": 1, "kv_rank": 512,
    "nope_dim": 128, "rope_dim": 64, "value_dim": 128,
}  # fmt: skip


def lowered(recompute: str, name: str = "torchtitan", tp: int = 1) -> LoweredLayer:
    sp = "megatron" if tp > 1 else "none"
    strategy = LayerStrategy(recompute=recompute, tp=tp, sequence_parallel=sp)  # type: ignore[arg-type]
    return lower_layer(LLAMA, LayerShape(strategy, None, 1, TOKENS, "bf16", stack(name)))


def kept_bytes(layer: LoweredLayer) -> int:
    """Kept from forward to backward, input included."""
    return layer.forward.change_bytes - layer.output_bytes + layer.input_bytes


@pytest.mark.parametrize("name", ["torchtitan", "shardwright"])
@pytest.mark.parametrize("recompute", ["selective-ops", NAMED])
def test_llama_keeps_63_5_kilobytes_a_token_and_layer(name: str, recompute: str) -> None:
    """Input, attention's output, wq, wv, w1 and w2 in bf16, and 4 bytes a head of logarithms."""
    hidden, key_width, ffn, heads = 4096, 1024, 14336, 32
    per_token = 2 * (4 * hidden + key_width + ffn) + 4 * heads
    assert per_token == pytest.approx(63.5e3, rel=0.002)
    assert kept_bytes(lowered(recompute, name)) == per_token * TOKENS
    assert kept_bytes(lowered("none", name)) > 2 * per_token * TOKENS


def test_kept_products_and_attention_do_not_run_again() -> None:
    again = [e.work for e in lowered(NAMED).backward.entries if e.recomputed]
    products = [work.shape[2] for work in again if work.op == "matmul"]  # type: ignore[union-attr]
    assert products == [1024, 4096, 14336]  # wk, wo, w3
    assert not any("flash" in getattr(work, "op", "") for work in again)
    flops = {r: lowered(r).backward.recomputed_flops for r in ("none", NAMED, "full")}
    assert flops["none"] == 0 < flops[NAMED] < flops["full"] / 3


def test_sums_over_tensor_parallel_ranks_are_kept() -> None:
    block = block_of(LLAMA)
    assert block is not None
    assert "output" in kept_results(block, "selective-ops", sums=True)
    assert "output" not in kept_results(block, "selective-ops", sums=False)
    again = [e for e in lowered("selective-ops", tp=2).backward.entries if e.recomputed]
    assert not any(getattr(e.work, "kind", "") == "reduce_scatter" for e in again)


def test_every_kept_name_is_a_result_of_the_lowering() -> None:
    offered = dict(lowered("none").result_bytes)
    block = block_of(LLAMA)
    assert block is not None
    assert set(result_names(block)) - {"input"} == set(offered) - {ATTENDED, CORE_ATTENTION}
    assert offered["gate"] == 2 * 14336 * TOKENS


def test_keeping_more_takes_more_memory_and_less_time() -> None:
    names = ["input", "attention", "query", "gate", "down"]
    steps = [lowered("ops:save=" + ",".join(names[:n])) for n in range(1, len(names) + 1)]
    kept, again = [kept_bytes(s) for s in steps], [s.backward.recomputed_flops for s in steps]
    assert kept == sorted(set(kept))
    assert again == sorted(set(again), reverse=True)
    assert kept[0] == kept_bytes(lowered("full"))


def test_experts_of_16_billion_ran_in_73_3_gib() -> None:
    """DeepSeek 16B on 8 H100, ep 8, micro-batch 4 x 4096: torchtitan, without torch.compile."""
    work = {"global_batch": 32, "seq_len": 4096, "micro_batch": 4, "ep": 8, "shard": "zero3"}
    found = {
        how: sw.simulate(
            DEEPSEEK_16B, "8xH100", stack="torchtitan:compile=off", recompute=how, **work
        )  # type: ignore[arg-type]
        for how in ("none", "selective-ops")
    }
    peaks = {how: made.report.prediction.memory[0] for how, made in found.items()}
    assert peaks["none"].reserved_bytes > 100 * 2**30
    fullest = peaks["selective-ops"]
    assert fullest.reserved_bytes == pytest.approx(73.3 * 2**30, rel=0.08)
    assert fullest.reserved_bytes < fullest.capacity_bytes


def test_only_stacks_that_keep_results_take_it() -> None:
    work = {"global_batch": 8, "seq_len": 2048}
    for recompute in ("selective-ops", "ops:save=attention"):
        with pytest.raises(InputError, match="megatron recomputes"):
            sw.simulate("llama-3-8b", "8xH100", stack="megatron", recompute=recompute, **work)
    with pytest.raises(InputError, match=r"recompute: got wqq.*nearest: wq"):
        sw.simulate("llama-3-8b", "8xH100", recompute="ops:save=wqq", **work)


def test_names_of_other_code_become_the_models_own() -> None:
    work = {"global_batch": 8, "seq_len": 2048}
    plans = [
        sw.simulate("llama-3-8b", "8xH100", recompute=f"ops:save={names}", **work).plan
        for names in ("w2,wv,attention,wq,input,w1", "input,query,value,attention,gate,down")
    ]
    assert plans[0] == plans[1]
    assert plans[0].layer_strategies()[1].recompute == NAMED


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("ops:save=input,foo", "names foo, which no block"),
        ("ops:save=down,gate", "is written ops:save=input,gate,down"),
    ],
)
def test_a_written_plan_names_the_models_own_results(typed: str, words: str) -> None:
    """A name that no block has would keep nothing, and say so nowhere."""
    plan = sw.simulate("llama-3-8b", "8xH100", recompute=NAMED, global_batch=8, seq_len=2048).plan
    document = json.loads(json.dumps(plan.to_document()).replace(NAMED, typed))
    with pytest.raises(InputError, match=words):
        sw.explain(document)
