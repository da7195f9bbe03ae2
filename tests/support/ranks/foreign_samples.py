"""The sample checkpoints that other frameworks wrote, and what each holds by our names."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from generators.family_cases import FamilyCase
from torch import Tensor

from shardwright.executor.huggingface.families import own_parameters
from shardwright.executor.stage.initial_weights import parameter_name
from shardwright.spec.huggingface.config import model_from_config
from shardwright.spec.model.model_spec import ModelSpec
from shardwright.spec.plan.plan import Plan

FOLDER = Path(__file__).resolve().parents[1] / "foreign_checkpoints"
SAMPLES = tuple(sorted(path.name for path in FOLDER.iterdir() if (path / ".metadata").exists()))
DONE, HEADS, KV_HEADS = 3, 4, 2
CONFIG = {
    "model_type": "llama",
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
STATES = ("", "exp_avg", "exp_avg_sq")
TRANSFORMERS = {
    "attention_norm": "input_layernorm",
    "query": "self_attn.q_proj",
    "key": "self_attn.k_proj",
    "value": "self_attn.v_proj",
    "output": "self_attn.o_proj",
    "mlp_norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}


def sample_model() -> ModelSpec:
    """The model of every sample."""
    return model_from_config(CONFIG, "sample", "sample")[0]


def sample_plan(**given: Any) -> Plan:
    """A plan of it, without clipping, as the samples were trained."""
    case = FamilyCase(name="sample", model=sample_model(), global_batch=4, **given)
    plan = case.plan()
    return replace(plan, workloads={"main": replace(plan.workload, gradient_clip_norm=None)})


def next_steps(name: str) -> dict[str, Any]:
    """Tokens and losses of the steps that the framework went on with."""
    document: dict[str, Any] = json.loads((FOLDER / name / "next_steps.json").read_text())
    return document


def expected(name: str) -> dict[str, Tensor]:
    """Weights and moments by our names of saved tensors, from torch's own load."""
    reader = dcp.FileSystemReader(FOLDER / name)
    rows = reader.read_metadata().state_dict_metadata
    state = {key: torch.empty(row.size) for key, row in rows.items() if hasattr(row, "size")}
    dcp.load(state, storage_reader=reader, no_dist=True)
    find = {"meg": _of_megatron, "tor": _of_torchtitan}.get(name[:3], _of_transformers)
    return {
        (f"optimizer.{key}.{ours}" if key else f"model.{ours}"): value
        for key in STATES
        for ours, value in _values(lambda slot, block, key=key: find(state, key, slot, block))
    }


def _values(find: Callable[[str, int | None], Tensor]) -> Iterator[tuple[str, Tensor]]:
    model = sample_model()
    for index in range(len(model.layers())):
        block = index - 1 if 0 < index < len(model.layers()) - 1 else None
        for spec in own_parameters(model, index, 16):
            value = find(spec.name.removesuffix(".weight"), block)
            yield parameter_name(index, spec), value.reshape(spec.shape)


def _of_transformers(state: dict[str, Tensor], key: str, slot: str, block: int | None) -> Tensor:
    ends = {"tokens": "model.embed_tokens", "norm": "model.norm", "projection": "lm_head"}
    name = ends[slot] if block is None else f"model.layers.{block}.{TRANSFORMERS[slot]}"
    return state[f"optim.state.{name}.weight.{key}" if key else f"model.{name}.weight"]


def _of_torchtitan(state: dict[str, Tensor], key: str, slot: str, block: int | None) -> Tensor:
    ends = {"tokens": "tok_embeddings", "norm": "norm", "projection": "lm_head"}
    names = {
        "attention_norm": "attention_norm",
        "query": "attention.qkv_linear.wq",
        "key": "attention.qkv_linear.wk",
        "value": "attention.qkv_linear.wv",
        "output": "attention.wo",
        "mlp_norm": "ffn_norm",
        "gate": "feed_forward.w1",
        "up": "feed_forward.w3",
        "down": "feed_forward.w2",
    }
    name = ends[slot] if block is None else f"layers.{block}.{names[slot]}"
    value = state[f"optimizer.state.{name}.weight.{key}" if key else f"{name}.weight"]
    if slot not in ("query", "key"):
        return value
    heads = HEADS if slot == "query" else KV_HEADS
    pairs = value.view(heads, -1, 2, value.shape[1])
    return pairs.transpose(1, 2).reshape(value.shape)


def _of_megatron(state: dict[str, Tensor], key: str, slot: str, block: int | None) -> Tensor:
    before = f"optimizer.state.{key}." if key else ""
    if block is None:
        ends = {
            "tokens": "embedding.word_embeddings",
            "norm": "decoder.final_layernorm",
            "projection": "output_layer",
        }
        return state[f"{before}{ends[slot]}.weight"]
    names = {
        "attention_norm": "self_attention.linear_qkv.layer_norm_weight",
        "mlp_norm": "mlp.linear_fc1.layer_norm_weight",
        "output": "self_attention.linear_proj.weight",
        "down": "mlp.linear_fc2.weight",
        **dict.fromkeys(("query", "key", "value"), "self_attention.linear_qkv.weight"),
        **dict.fromkeys(("gate", "up"), "mlp.linear_fc1.weight"),
    }
    value = state[f"{before}decoder.layers.{names[slot]}"][block]
    if slot in ("gate", "up"):
        return value.chunk(2)[("gate", "up").index(slot)]
    if slot in ("query", "key", "value"):
        per = HEADS // KV_HEADS
        groups = value.view(KV_HEADS, per + 2, -1, value.shape[1])
        first = {"query": slice(per), "key": slice(per, per + 1), "value": slice(per + 1, None)}
        return groups[:, first[slot]].reshape(-1, value.shape[1])
    return value
