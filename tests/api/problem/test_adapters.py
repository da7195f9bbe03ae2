"""Adapters in our words and in PEFT's."""

from __future__ import annotations

import pytest

from shardwright.api.problem.adapter_names import ENDINGS, names_for, targets_called
from shardwright.api.problem.adapters import adapters_note, adapters_text
from shardwright.api.problem.workload import trainable_of
from shardwright.datasets.models.load import load_model, presets
from shardwright.spec.errors import InputError
from shardwright.spec.workload.training import target_names

LLAMA_LINEAR = "query,key,value,output,gate,up,down"


def _text(model: str, trainable: str) -> str:
    adapters, frozen = trainable_of(trainable, load_model(model)[0])
    assert adapters is not None
    assert frozen == ()
    return adapters_text(adapters)


@pytest.mark.parametrize(
    ("trainable", "text"),
    [
        ("lora:r=16", "lora:rank=16,alpha=32,targets=query,value"),
        ("lora:rank=8,alpha=16", "lora:rank=8,alpha=16,targets=query,value"),
        ("lora:r=8,lora_alpha=16", "lora:rank=8,alpha=16,targets=query,value"),
        (
            "lora:r=64,lora_alpha=16,target_modules=q_proj,v_proj",
            "lora:rank=64,alpha=16,targets=query,value",
        ),
        ("lora:r=16,target_modules=all-linear", f"lora:rank=16,alpha=32,targets={LLAMA_LINEAR}"),
        ("lora:r=16,targets=all", f"lora:rank=16,alpha=32,targets={LLAMA_LINEAR}"),
        (
            "lora:r=16,target_modules=q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj",
            f"lora:rank=16,alpha=32,targets={LLAMA_LINEAR}",
        ),
        (
            "lora:r=8,target_modules=['q_proj', 'mlp.down_proj'],lora_dropout=0.0,bias=none",
            "lora:rank=8,alpha=16,targets=query,down",
        ),
        (
            "lora:r=16,target_modules=all-linear,base_dtype=nf4",
            f"lora:rank=16,alpha=32,targets={LLAMA_LINEAR},base_dtype=nf4",
        ),
        ("lora:targets=query,q_proj", "lora:rank=16,alpha=32,targets=query"),
    ],
)
def test_peft_s_words_are_ours(trainable: str, text: str) -> None:
    assert _text("llama-3-8b", trainable) == text
    assert _text("llama-3-8b", text) == text


@pytest.mark.parametrize(
    ("model", "name", "targets"),
    [
        ("gpt2", "c_attn", "query,key,value"),
        ("gpt2", "c_proj", "output,down"),
        ("gpt2", "attn.c_proj", "output"),
        ("gpt2", "mlp.c_proj", "down"),
        ("gpt2", "c_fc", "up"),
        ("llama-3-8b", "w1", "gate"),
        ("llama-3-8b", "output_proj", "output"),
        ("llama-3-8b", "qkv_proj", "query,key,value"),
        ("llama-3-8b", "gate_up_proj", "gate,up"),
        ("mixtral-8x7b", "all-linear", "query,key,value,output"),
        ("deepseek-v3", "q_a_proj", "query_down"),
        ("deepseek-v3", "kv_a_proj_with_mqa", "kv_down"),
        ("deepseek-v3", "gate_proj", "gate,shared_gate"),
        ("deepseek-v3", "shared_experts.gate_proj", "shared_gate"),
        ("qwen3-next-80b-a3b", "gate_proj", "shared_gate"),
        ("qwen3-next-80b-a3b", "in_proj_qkvz", "mixed,gate"),
        ("nemotron-h-8b", "in_proj", "gate,mixed,step"),
        ("t5-large", "q", "query,cross_query"),
        ("t5-large", "EncDecAttention.q", "cross_query"),
        ("t5-large", "wo", "down"),
        ("bert-large", "dense", "output,up,down"),
        ("bert-large", "query", "query"),
    ],
)
def test_names_of_modules_in_families(model: str, name: str, targets: str) -> None:
    assert _text(model, f"lora:r=4,target_modules={name}").endswith(f"targets={targets}")


@pytest.mark.parametrize("name", presets())
def test_every_linear_layer_has_a_name_of_peft_s(name: str) -> None:
    model = presets()[name].model
    targets = target_names(model)
    reached = {slot for word in ENDINGS for slot in targets_called(word, model, targets)}
    assert set(targets) - reached <= {"output_gate", "latent_down", "latent_up"}
    assert all(targets_called(word, model, targets) for word in names_for(model, targets))


@pytest.mark.parametrize(
    ("model", "trainable", "says", "near"),
    [
        ("llama-3-8b", "lora:target_modules=q_porj", "targets=q_porj", "q_proj"),
        ("gpt2", "lora:target_modules=gate_proj", "targets=gate_proj", "out_proj"),
        ("gpt2", "lora:target_modules=gate_up_proj", "targets=gate_up_proj", ""),
        ("gpt2", "lora:target_modules=lm_head", "targets=lm_head", ""),
        ("llama-3-8b", "lora:lora_dropout=0.05", "lora_dropout=0.05", "lora_dropout=0"),
        ("llama-3-8b", "lora:bias=all", "bias=all", "bias=none"),
        ("llama-3-8b", "lora:r=8,rank=8", "rank once", ""),
        ("llama-3-8b", "lora:rr=8", "rank (r), alpha (lora_alpha)", "r"),
        ("llama-3-8b", "lora:r=8.5", "rank=8.5", "16"),
        ("llama-3-8b", "lora:16", "lora:16", "lora:rank=16"),
        ("llama-3-8b", "qlora", "qlora", "lora:base_dtype=nf4"),
    ],
)
def test_mistakes_are_one_line(model: str, trainable: str, says: str, near: str) -> None:
    with pytest.raises(InputError) as caught:
        trainable_of(trainable, load_model(model)[0])
    line = str(caught.value)
    assert says in line
    assert "\n" not in line
    assert near in str(caught.value.nearest or "")


def _why(model: str, trainable: str) -> str:
    spec = load_model(model)[0]
    adapters, _ = trainable_of(trainable, spec)
    assert adapters is not None
    return adapters_note(adapters, trainable, spec).why


def test_what_a_name_means_is_told() -> None:
    assert _why("llama-3-8b", "lora:r=16,target_modules=o_proj").endswith("; o_proj is output")
    assert "where PEFT has one for all" in _why("gpt2", "lora:target_modules=c_attn")
    assert "but experts and routers" in _why("mixtral-8x7b", "lora:targets=all-linear")
    assert " is " not in _why("llama-3-8b", "lora:targets=query,value")
