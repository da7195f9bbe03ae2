"""Expert parallelism from the command line on: flags, plan, stage table, breakdown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardwright.api.planning.uniform_plan import UniformStrategy, uniform_plan
from shardwright.api.problem.resolve import Inputs, resolve
from shardwright.spec.model.experts import experts_of

Plan = Callable[..., Any]
DENSE_FIRST = {
    "model_type": "deepseek_v3", "vocab_size": 512, "hidden_size": 256, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 512,
    "moe_intermediate_size": 128, "n_routed_experts": 16, "num_experts_per_tok": 4,
    "n_shared_experts": 1, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 1,
    "kv_lora_rank": 64, "q_lora_rank": 96, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16,
    "v_head_dim": 32, "hidden_act": "silu", "num_nextn_predict_layers": 0,
    "tie_word_embeddings": False,
}  # fmt: skip


@pytest.fixture
def question(tmp_path: Path) -> tuple[str, ...]:
    """Flags of a small model whose first block has no experts, on two nodes."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(DENSE_FIRST))
    model = ("--model", str(path), "--cluster", "2x8xH100")
    return (*model, "--global-batch", "32", "--seq-len", "512")


def strategies(document: Any) -> dict[int, dict[str, Any]]:
    """The strategy of each layer of the plan in a document."""
    return {
        number: part["strategy"]
        for stage in document["plan"]["programs"][0]["stages"]
        for parts in stage["virtual_stages"]
        for part in parts
        for number in range(part["layers"][1], part["layers"][2] + 1)
    }


def test_ep_and_etp_reach_the_layers_that_have_experts(
    plan: Plan, question: tuple[str, ...]
) -> None:
    flags = ("--tp", "2", "--sp", "megatron", "--ep", "4", "--etp", "2", "--shard", "zero1")
    document = plan("simulate", *question, *flags, "--json", "-").document
    found = strategies(document)
    assert [found[i].get("ep", 1) for i in sorted(found)] == [1, 1, 4, 4, 4, 1]
    assert [found[i].get("etp", 1) for i in sorted(found)] == [1, 1, 2, 2, 2, 1]
    assert {strategy["tp"] for strategy in found.values()} == {2}
    assert document["prediction"]["breakdown_s"]["exposed_ep"] > 0
    assert {"--ep", "--etp"}.isdisjoint(note["path"] for note in document["assumptions"])


def test_the_stage_table_and_the_headline_name_the_degrees(
    plan: Plan, question: tuple[str, ...]
) -> None:
    shown = plan("simulate", *question, "--ep", "8").out
    assert "plan: tp 1, pp 1, dp 16, ep 8, zero0" in shown
    assert "1, ep 8" in shown
    assert "exposed ep" in shown
    plain = plan("simulate", *question).out
    assert "ep 1" not in plain
    assert "exposed ep" not in plain


def test_a_simulated_plan_can_be_read_and_explained(
    plan: Plan, question: tuple[str, ...], tmp_path: Path
) -> None:
    document = plan("simulate", *question, "--ep", "8", "--json", "-").document
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    again = plan("simulate", str(path), "--json", "-").document
    assert again["plan_hash"] == document["plan_hash"]
    assert again["prediction"] == document["prediction"]
    trace = tmp_path / "trace.json"
    assert plan("simulate", str(path), "--trace", str(trace)).code == 0
    assert '"communication ep"' in trace.read_text()
    assert "ep 8" in plan("explain", str(path)).out


def test_experts_beside_shared_tokens_need_their_own_split(question: tuple[str, ...]) -> None:
    """tp with one copy of the tokens: experts are split as the MLP is."""
    names = dict(zip(question[::2], question[1::2], strict=True))
    problem = resolve(
        Inputs(
            model=names["--model"],
            cluster=names["--cluster"],
            global_batch=int(names["--global-batch"]),
            seq_len=int(names["--seq-len"]),
        )
    )
    made, _ = uniform_plan(problem, UniformStrategy(tp=2, etp=2, pp=2))
    every = zip(made.model.layers(), made.layer_strategies(), strict=True)
    assert all((s.etp == 2) == (experts_of(layer) is not None) for layer, s in every)
