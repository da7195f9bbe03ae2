"""Checkpoints of the transformers library start runs under any plan, and runs end in them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from checks.run_checks import STEPS, check_run
from generators.plan_cases import GPT2, LLAMA, Case, Sizes, sharded
from hf.hf_checkpoints import (
    DENSE,
    OF_EXPERTS,
    apart,
    case_for,
    library_logits,
    model_in,
    save_tiny,
    some_tokens,
)
from ranks.rank_pools import RankPool

from shardwright.executor.data.text import RandomBatches
from shardwright.executor.engine.optimizer_step import AdamWOptions
from shardwright.executor.huggingface.reader import HuggingFaceCheckpoint
from shardwright.executor.launch.pool import TRAIN_JOB
from shardwright.executor.reference.model import Reference
from shardwright.spec.errors import ShardwrightError
from shardwright.spec.strategy import LayerStrategy

CLOSE = 1e-5
TP2 = LayerStrategy(tp=2)
ETP2 = LayerStrategy(etp=2)
TP2_SP = LayerStrategy(tp=2, sequence_parallel="megatron")


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("checkpoints")
    return {kind: save_tiny(kind, root / kind) for kind in (*DENSE, *OF_EXPERTS)}


def split(kind: str) -> dict[str, tuple[LayerStrategy, ...]]:
    """How layers are cut over two ranks: blocks, and ends that have no experts."""
    found = {"tp2": TP2, "tp2 sp": TP2_SP, "zero3": sharded("zero3", 2)}
    if kind in OF_EXPERTS:
        found = {"ep2": LayerStrategy(ep=2), "tp2 sp ep2": replace(TP2_SP, ep=2), "etp2": ETP2}
    ends = {name: replace(how, ep=1, etp=1) for name, how in found.items()}
    return {name: (ends[name], *[how] * 3, ends[name]) for name, how in found.items()}


def reference(case: Case, folder: Path) -> Reference:
    plan = case.plan()
    batches = RandomBatches(plan.model.vocab, case.seq_len, case.global_batch, seed=0)
    values = HuggingFaceCheckpoint(folder, plan.model, case.seq_len)
    cpu = torch.device("cpu")
    return Reference(plan, 0, cpu, batches, torch.float32, AdamWOptions(), weight_source=values)


def joined(parts: list[dict[str, Any]], samples: int) -> torch.Tensor:
    """All samples' logits from the ranks' parts, each checked to be equal where they meet."""
    found: dict[int, torch.Tensor] = {}
    for part in parts:
        for offset, row in enumerate(torch.tensor(part["logits"])):
            number = part["first"] + offset
            assert number not in found or apart(row, found[number]) <= CLOSE
            found[number] = row
    return torch.stack([found[number] for number in range(samples)])


@pytest.mark.parametrize("kind", [*DENSE, *OF_EXPERTS])
def test_a_checkpoint_gives_the_librarys_logits(
    one_rank: RankPool, two_ranks: RankPool, checkpoints: dict[str, Path], kind: str
) -> None:
    folder, tokens = checkpoints[kind], some_tokens(4)
    expected = library_logits(folder, tokens)
    alone = case_for(folder, "alone", 1)
    assert apart(reference(alone, folder).logits(tokens), expected) <= CLOSE
    cases = [case_for(folder, name, 2, strategies=how) for name, how in split(kind).items()]
    for pool, case in ((one_rank, alone), *((two_ranks, case) for case in cases)):
        payload = {
            "plan": case.plan().to_document(),
            "init_from": str(folder),
            "tokens": tokens.tolist(),
        }
        found = joined(pool.run("ranks.weight_jobs:logits", payload), len(tokens))
        assert apart(found, expected) <= CLOSE, case.name


@pytest.mark.parametrize("kind", [*DENSE, *OF_EXPERTS])
def test_three_plans_train_it_and_the_library_loads_what_they_saved(
    two_ranks: RankPool, checkpoints: dict[str, Path], kind: str, tmp_path: Path
) -> None:
    folder, tokens = checkpoints[kind], some_tokens(4)
    trained = reference(case_for(folder, "alone", 1), folder)
    before = trained.logits(tokens)
    for _ in range(STEPS):
        trained.backward_step()
        trained.update()
    expected = trained.logits(tokens)
    assert apart(before, expected) > 100 * CLOSE
    plans: dict[str, dict[str, Any]] = {
        "dp2 zero1": {"strategies": sharded("zero1", 2)},
        "split": {"strategies": next(iter(split(kind).values()))},
        "pp2": {"stages": 2, "micro_batch": 2},
    }
    for name, fields in plans.items():
        case, target = case_for(folder, name, 2, **fields), tmp_path / name
        check_run(two_ranks, case.plan(), init_from=str(folder), save_hf=str(target))
        logits = library_logits(target, tokens)
        assert apart(reference(case_for(target, name, 2), target).logits(tokens), logits) <= CLOSE
        # Adam divides by the root of tiny squares, so the rounding of a sum grows in an update
        assert apart(logits, expected) <= 10 * CLOSE
        assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_logits_between_steps_change_nothing(
    two_ranks: RankPool, checkpoints: dict[str, Path]
) -> None:
    """Parameters gathered to make them must not outlive the update."""
    folder, tokens = checkpoints["llama"], some_tokens(4)
    case = case_for(folder, "zero2", 2, strategies=sharded("zero2", 2))
    trained = reference(case, folder)
    for _ in range(2):
        trained.backward_step()
        trained.update()
    payload = {
        "plan": case.plan().to_document(),
        "init_from": str(folder),
        "tokens": tokens.tolist(),
        "steps": 2,
    }
    found = joined(two_ranks.run("ranks.weight_jobs:logits", payload), len(tokens))
    assert apart(found, trained.logits(tokens)) <= 10 * CLOSE


def test_a_model_from_no_checkpoint_is_saved_as_one(two_ranks: RankPool, tmp_path: Path) -> None:
    case = replace(Case(name="own", stages=2, micro_batch=2), ranks=2)
    payload = {
        "plan": case.plan().to_document(),
        "steps": 1,
        "random_tokens": True,
        "follow_bytes": False,
        "save_hf": str(tmp_path / "own"),
    }
    two_ranks.run(TRAIN_JOB, payload)
    tokens = some_tokens(2)
    again = case_for(tmp_path / "own", "again", 2)
    assert model_in(tmp_path / "own") == replace(case.plan().model, name="tiny")
    found = reference(again, tmp_path / "own").logits(tokens)
    assert apart(found, library_logits(tmp_path / "own", tokens)) <= CLOSE


@pytest.mark.parametrize("sizes", [LLAMA, GPT2], ids=["llama", "gpt2"])
def test_a_saved_folder_generates_text(two_ranks: RankPool, tmp_path: Path, sizes: Sizes) -> None:
    """With the tokenizer that was trained on the text, and as anybody loads it."""
    from tokenizers import Tokenizer
    from transformers import AutoModelForCausalLM, AutoTokenizer

    (tmp_path / "text.txt").write_text("all of this was said before, and before that too\n" * 300)
    target = tmp_path / "own"
    sizes = replace(sizes, vocab=320)
    case = Case(name="text", sizes=sizes, ranks=2, strategies=sharded("zero2", 2), seq_len=32)
    payload = {
        "plan": case.plan().to_document(),
        "steps": 60,
        "data": str(tmp_path / "text.txt"),
        "follow_bytes": False,
        "adamw": {"learning_rate": {"peak": 1e-2}},
        "save_hf": str(target),
    }
    two_ranks.run(TRAIN_JOB, payload)
    tokenizer = AutoTokenizer.from_pretrained(target)
    model = AutoModelForCausalLM.from_pretrained(target)
    said = "all of this was"
    ours = Tokenizer.from_file(str(target / "tokenizer.json"))
    assert tokenizer(said)["input_ids"] == ours.encode(said).ids
    assert (tokenizer.eos_token, tokenizer.model_max_length) == ("<|endoftext|>", 32)
    made = model.generate(**tokenizer(said, return_tensors="pt"), max_new_tokens=8, do_sample=False)
    text = tokenizer.decode(made[0])
    assert text.startswith(said + " said before"), text


def test_another_models_checkpoint_is_refused_in_one_line(
    two_ranks: RankPool, checkpoints: dict[str, Path]
) -> None:
    case = case_for(checkpoints["llama"], "tp2", 2, strategies=TP2)
    payload = {"plan": case.plan().to_document(), "init_from": str(checkpoints["qwen3"])}
    with pytest.raises(ShardwrightError, match=r"layers\[1\]\.attention\.head_dim: got 16") as info:
        two_ranks.run(TRAIN_JOB, payload)
    assert info.value.exit_code == 2
