"""Gates and balances in a spec: what contradicts is refused, what a configuration says is read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shardwright.api.frameworks.megatron.model_arguments import model_arguments
from shardwright.datasets.models.typed_model import model_from_keys
from shardwright.spec.codec import to_document
from shardwright.spec.errors import InputError
from shardwright.spec.huggingface.config import model_from_config
from shardwright.spec.model.experts import experts_of
from shardwright.spec.model.feed_forward import Balance, Moe, expert_capacity
from shardwright.spec.model.layers import BlockLayer
from shardwright.spec.model.mixers import Attention
from shardwright.spec.model.model_spec import ModelSpec
from shardwright.spec.rules.block_rules import block_problems
from shardwright.spec.rules.executable import unsupported_strategy
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.techniques.expert_pipelining import (
    NAME,
    ExpertPipelining,
    legality_violation,
)
from shardwright.spec.workload.workload import DtypeRecord, Workload

PLAIN: dict[str, Any] = {"experts": 8, "topk": 2, "ffn": 64}
AUXILIARY = Balance(aux_loss=0.01)


def block(**fields: Any) -> BlockLayer:
    attention = Attention(heads=4, kv_heads=4, head_dim=16)
    return BlockLayer(hidden=64, attention=attention, mlp=Moe(**(PLAIN | fields)))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"gate": "switch"}, "topk|2; needs 1 with the gate switch"),
        ({"gate": "gshard", "topk": 1}, "topk|1; needs 2 with the gate gshard"),
        ({"gate": "xmoe"}, "gate_width|left out; needs a width with the gate xmoe"),
        ({"gate_width": 8}, "gate_width|8; needs a width with the gate xmoe"),
        ({"slots": 2}, "slots|2; needs 1 but for the gate soft"),
        ({"gate": "soft", "topk": 1, "capacity_factor": 1.0}, "capacity_factor|1.0; needs none"),
        ({"gate": "switch", "topk": 1, "score": "sigmoid"}, "score|sigmoid; needs softmax"),
        ({"gate": "soft", "topk": 1, "balance": AUXILIARY}, "balance|given; needs none with"),
        ({"gate": "expert_choice", "balance": AUXILIARY}, "balance|given; needs none with"),
        ({"balance": Balance()}, "balance|all 0; needs an aux_loss"),
        ({"balance": Balance(jitter=1.5)}, "balance.jitter|1.5; needs below 1"),
        ({"balance": Balance(z_loss=1.0, per="sequence")}, "balance.per|sequence; needs group"),
        ({"capacity_order": "probability"}, "capacity_order|probability; needs position"),
    ],
)
def test_contradictions_are_refused_in_one_line(fields: dict[str, Any], words: str) -> None:
    (problem,) = block_problems(block(**fields))
    field, reason = words.split("|")
    assert problem.field == field
    assert problem.reason.startswith(reason)
    assert "\n" not in problem.reason


def test_each_gate_is_legal() -> None:
    for fields in (
        {"gate": "switch", "topk": 1, "balance": AUXILIARY},
        {"gate": "gshard", "capacity_factor": 1.25},
        {"gate": "xmoe", "gate_width": 8},
        {"gate": "soft", "topk": 1, "slots": 4},
        {"gate": "expert_choice", "capacity_factor": 1.0},
    ):
        assert list(block_problems(block(**fields))) == []


def test_every_expert_has_a_row() -> None:
    """However small the factor; and never more rows than tokens."""
    assert expert_capacity(Moe(**PLAIN, capacity_factor=1e-6), 64) == 1
    assert expert_capacity(Moe(**PLAIN, capacity_factor=1e6), 64) == 64
    assert expert_capacity(Moe(**PLAIN, capacity_factor=1.25), 64) == 20


def test_a_plain_mixture_is_written_as_before() -> None:
    assert to_document(Moe(**PLAIN)) == PLAIN | {"kind": "moe"}


def test_chunked_experts_refuse_what_is_filled_up_by_name() -> None:
    strategy = LayerStrategy(ep=2, techniques={NAME: ExpertPipelining(forward=2, backward=2)})
    dtype = DtypeRecord()
    for fields, name in (
        ({"gate": "soft", "topk": 1}, "the gate soft"),
        ({"gate": "expert_choice"}, "the gate expert_choice"),
        ({"capacity_factor": 1.0}, "a capacity factor"),
    ):
        reason = legality_violation(block(**fields), strategy, 4, dtype)
        assert reason is not None
        assert name in reason
    for fields in ({"gate": "switch", "topk": 1}, {"balance": AUXILIARY}, {"gate": "gshard"}):
        assert legality_violation(block(**fields), strategy, 4, dtype) is None


def config(kind: str, **fields: Any) -> dict[str, Any]:
    sizes = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 128}
    sizes["num_key_value_heads"] = 4
    return {"model_type": kind, **sizes, **fields}


def mixtures(document: dict[str, Any]) -> list[Moe]:
    model, _ = model_from_config(document, "small", "config.json")
    return [moe for layer in model.layers() if (moe := experts_of(layer)) is not None]


def test_an_auxiliary_loss_is_read_where_the_class_adds_it() -> None:
    """One loss of all layers' routers, over the layers with experts."""
    document = config("mixtral", router_aux_loss_coef=0.02)
    assert {moe.balance for moe in mixtures(document)} == {None}
    document["output_router_logits"] = True
    assert {moe.balance for moe in mixtures(document)} == {Balance(aux_loss=0.005)}
    del document["router_aux_loss_coef"]
    assert {moe.balance for moe in mixtures(document)} == {Balance(aux_loss=0.00025)}
    sparse = config("qwen3_moe", output_router_logits=True, router_aux_loss_coef=0.02,
                    decoder_sparse_step=2)  # fmt: skip
    assert [moe.balance for moe in mixtures(sparse)] == [Balance(aux_loss=0.01)] * 2


def test_jitter_and_raw_weights_are_read() -> None:
    found = {moe.balance for moe in mixtures(config("mixtral", router_jitter_noise=0.1))}
    assert found == {Balance(jitter=0.1, jitters="input")}
    raw = {moe.normalizes for moe in mixtures(config("qwen2_moe", norm_topk_prob=False))}
    assert raw == {False}
    assert mixtures(config("qwen3_moe", norm_topk_prob=True))[0].normalizes


def small(**fields: Any) -> ModelSpec:
    sizes = {"layers": 2, "hidden": 64, "heads": 4, "vocab": 128, "experts": 8, "topk": 1}
    return model_from_keys(sizes | {"expert_ffn": 32} | fields, "small", "--model")[0]


def test_typed_models_say_gate_capacity_and_balance() -> None:
    model = small(gate="switch", capacity_factor=1.25, aux_loss=0.01, router_jitter=0.1)
    moe = experts_of(model.layers()[1])
    assert moe == Moe(experts=8, topk=1, ffn=32, gate="switch", capacity_factor=1.25,
                      balance=Balance(aux_loss=0.01, jitter=0.1))  # fmt: skip
    raw = experts_of(small(topk=2, normalize_weights=False).layers()[1])
    assert raw is not None
    assert not raw.normalizes


def test_what_needs_whole_sequences_is_not_run_on_parts_of_them() -> None:
    strategy = LayerStrategy(tp=2, sequence_parallel="megatron")
    workload = Workload(global_batch=8, seq_len=16)
    model = small(gate="soft", slots=2)
    reason = unsupported_strategy(model, strategy, workload)
    assert reason is not None
    assert reason.startswith("SoftMoE where ranks split a sequence")
    assert (
        unsupported_strategy(model, replace(strategy, sequence_parallel="none"), workload) is None
    )


def test_megatron_is_told_no_gate_that_its_arguments_lack() -> None:
    """Nor a balance, which nothing writes yet: never a model that trains otherwise."""
    for fields, words in (
        ({"gate": "switch"}, "with the gate switch"),
        ({"aux_loss": 0.01}, "with a balance of experts"),
        ({"topk": 2, "normalize_weights": False}, "raw weights"),
    ):
        with pytest.raises(InputError, match=words):
            model_arguments(small(**fields), 16)
    assert model_arguments(small(topk=2), 16)["num_experts"] == 8
