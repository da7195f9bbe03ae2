"""Low-rank adapters on real ranks: parity, work as lowered, bytes as predicted, PEFT loads them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from checks.live_bytes_check import check_live_bytes
from checks.lowering_check import check_lowering
from checks.run_checks import STEPS, check_run, run_verified
from generators.plan_cases import GPT2, QWEN3, Case, Sizes, sharded
from hf.hf_checkpoints import apart, case_for, library_logits, save_tiny, some_tokens
from kernel_doubles.compiled_layers import with_mode
from ranks.rank_pools import RankPool

from shardwright.executor.data.text import RandomBatches
from shardwright.executor.engine.optimizer_step import AdamWOptions
from shardwright.executor.huggingface.reader import HuggingFaceCheckpoint
from shardwright.executor.launch.pool import TRAIN_JOB
from shardwright.executor.reference.model import Reference
from shardwright.spec.errors import ShardwrightError
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.workload.learning_rate import LearningRate
from shardwright.spec.workload.training import Lora

FILLED_JOB = "ranks.weight_jobs:with_filled_adapters"
EVERYWHERE = ("query", "key", "value", "output", "gate", "up", "down")
LORA = Lora(rank=4, alpha=8.0, targets=EVERYWHERE)
FEW = Lora(rank=4, alpha=8.0, targets=("query", "value"))
TP2 = LayerStrategy(tp=2)
TP2_SP = LayerStrategy(tp=2, sequence_parallel="megatron")


def wide(sizes: Sizes) -> Sizes:
    """Large enough for the bytes of small kernels not to count."""
    return replace(sizes, hidden=64, ffn=160, vocab=512)


MIXED = (
    LayerStrategy(),
    TP2,
    sharded("zero3", 4, recompute="full"),
    TP2_SP,
    LayerStrategy(tp=2, shard=sharded("zero2", 2).shard),
    sharded("zero1", 4),
)
BUBBLE: dict[str, Any] = {"stages": 2, "micro_batch": 2, "kind": "zero_bubble"}
CASES = [
    Case(name="dp", adapters=LORA),
    Case(name="tp2", strategies=TP2, adapters=LORA),
    Case(name="tp2 few", strategies=TP2, adapters=FEW),
    Case(name="tp2 sp gpt2", sizes=GPT2, strategies=TP2_SP, adapters=LORA),
    Case(name="tp4", sizes=Sizes(kv_heads=4), strategies=LayerStrategy(tp=4), adapters=LORA),
    Case(name="full qwen3", sizes=QWEN3, strategies=LayerStrategy(recompute="full"), adapters=FEW),
    Case(name="selective", strategies=LayerStrategy(tp=2, recompute="selective"), adapters=LORA),
    *(Case(name=z, strategies=sharded(z, 4), adapters=LORA) for z in ("zero1", "zero2", "zero3")),
    Case(name="hsdp few", strategies=sharded("hsdp:2", 4), adapters=FEW),
    Case(name="tied zero3", sizes=GPT2, strategies=sharded("zero3", 4), adapters=LORA),
    Case(
        name="tp2 sp zero3",
        strategies=replace(TP2_SP, shard=sharded("zero3", 2).shard),
        adapters=LORA,
    ),
    Case(name="pp4 with ends alone", stages=4, micro_batch=1, boundaries=(1, 3, 5), adapters=LORA),
    Case(
        name="tied pp2 tp2 sp",
        sizes=GPT2,
        stages=2,
        micro_batch=2,
        strategies=TP2_SP,
        adapters=LORA,
    ),
    Case(
        name="interleaved zero2",
        stages=2,
        chunks=3,
        kind="interleaved",
        micro_batch=2,
        strategies=sharded("zero2", 2),
        adapters=LORA,
    ),
    Case(name="zero_bubble tp2 sp", strategies=TP2_SP, adapters=LORA, **BUBBLE),
    Case(name="zero_bubble zero3", strategies=sharded("zero3", 2), adapters=LORA, **BUBBLE),
    Case(
        name="zero_bubble with ends alone",
        stages=4,
        kind="zero_bubble",
        micro_batch=1,
        boundaries=(1, 3, 5),
        adapters=LORA,
    ),
    Case(
        name="tied zbv zero2",
        sizes=GPT2,
        chunks=2,
        strategies=sharded("zero2", 2, recompute="full"),
        adapters=LORA,
        **{**BUBBLE, "kind": "zbv"},
    ),
    Case(
        name="dualpipe bf16",
        chunks=2,
        dtype="bf16",
        global_batch=12,
        strategies=TP2,
        adapters=FEW,
        **{**BUBBLE, "kind": "dualpipe"},
    ),
    Case(name="mixed", sizes=Sizes(kv_heads=4), strategies=MIXED, adapters=LORA),
    Case(name="bf16", dtype="bf16", adapters=LORA),
    Case(name="bf16 gpt2 sp", dtype="bf16", sizes=GPT2, strategies=TP2_SP, adapters=LORA),
    Case(
        name="bf16 pp4", dtype="bf16", stages=4, micro_batch=1, boundaries=(1, 3, 5), adapters=LORA
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_adapters_train_as_in_one_process(four_ranks: RankPool, case: Case) -> None:
    for job in (TRAIN_JOB, FILLED_JOB):
        found = check_run(four_ranks, case.plan(), job)["verify"]
        assert "adapter" in found["worst_tensor"]  # nothing else has a gradient


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_the_work_is_the_lowered_work(four_ranks: RankPool, case: Case) -> None:
    check_lowering(four_ranks, replace(case, sizes=wide(case.sizes), seq_len=64))


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_live_bytes_are_the_predicted_ones(four_ranks: RankPool, case: Case) -> None:
    check_live_bytes(four_ranks, replace(case, sizes=wide(case.sizes), seq_len=128))


PLANS: dict[str, dict[str, Any]] = {
    "dp2 zero2": {"strategies": sharded("zero2", 2)},
    "tp2 sp": {"strategies": TP2_SP},
    "pp2": {"stages": 2, "micro_batch": 2},
}


# peft 0.21 reads a property of models that transformers 5.23 calls otherwise
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")
@pytest.mark.parametrize("kind", ["llama", "qwen3", "gpt2", "mixtral"])
def test_peft_loads_what_a_run_saved(two_ranks: RankPool, tmp_path: Path, kind: str) -> None:
    import transformers
    from peft import PeftModel

    folder, tokens = save_tiny(kind, tmp_path / kind), some_tokens(4)
    adapters = FEW if kind == "qwen3" else LORA
    alone = case_for(folder, "alone", 1, adapters=adapters).plan()
    batches = RandomBatches(alone.model.vocab, 16, 8, seed=0)
    values, cpu = HuggingFaceCheckpoint(folder, alone.model, 16), torch.device("cpu")
    fast = AdamWOptions(learning_rate=LearningRate(peak=1e-2))
    trained = Reference(alone, 0, cpu, batches, torch.float32, fast, weight_source=values)
    for _ in range(STEPS):
        trained.backward_step()
        trained.update()
    expected = trained.logits(tokens)
    assert apart(library_logits(folder, tokens), expected) > 1e-3
    for name, fields in PLANS.items():
        case, target = case_for(folder, name, 2, adapters=adapters, **fields), tmp_path / name
        settings = {
            "init_from": str(folder),
            "save_hf": str(target),
            "adamw": {"learning_rate": {"peak": 1e-2}},
        }
        run_verified(two_ranks, case.plan(), **settings)
        files = sorted(path.name for path in target.iterdir())
        assert files[:2] == ["adapter_config.json", "adapter_model.safetensors"]
        saved = json.loads((target / "adapter_config.json").read_text())
        assert saved["base_model_name_or_path"] == str(folder)
        base = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        with torch.no_grad():
            found = PeftModel.from_pretrained(base, target).eval()(tokens).logits
        assert apart(found, expected) <= 1e-4, name


@pytest.mark.parametrize(
    ("case", "settings", "message"),
    [
        (
            Case(name="bf16", adapters=LORA, dtype="bf16", strategies=sharded("zero3", 4)),
            {},
            "lora beside sharded bf16 weights",
        ),
        (
            Case(name="narrow base", adapters=replace(LORA, base_dtype="bf16")),
            {},
            "frozen weights in bf16",
        ),
        (
            Case(
                name="compiled",
                adapters=LORA,
                strategies=with_mode(LayerStrategy(), "default"),
            ),
            {},
            "compile beside lora",
        ),
        (
            Case(name="no base", adapters=LORA),
            {"save_hf": "/nowhere/adapters"},
            "adapters belong to a checkpoint",
        ),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_what_is_not_run_is_refused(
    four_ranks: RankPool, case: Case, settings: dict[str, Any], message: str
) -> None:
    payload = {"plan": case.plan().to_document(), "random_tokens": True, **settings}
    with pytest.raises(ShardwrightError, match=message) as info:
        four_ranks.run(TRAIN_JOB, payload)
    assert info.value.exit_code == 2
