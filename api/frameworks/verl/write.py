"""Write a plan as the actor's part of verl's YAML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from ....spec.model.model_spec import ModelSpec
from ....spec.workload.training import target_names
from ...problem.adapter_names import names_for, targets_called
from ..exportable import ExportablePlan
from ..megatron.write import run_arguments
from .launch import CONFIG_FILE, uses_megatron
from .normal import FIELDS
from .read import OPTIMIZERS

TRAINER = {True: "ppo_megatron_trainer", False: "ppo_trainer"}
ENGINE = {argument: field for field, argument in FIELDS.items()}
DDP = ("num_distributed_optimizer_instances", "overlap_grad_reduce", "overlap_param_gather")
ELSEWHERE = (
    "micro_batch_size", "global_batch_size", "seq_length", "bf16", "fp16", "optimizer",
    "attention_dropout", "hidden_dropout", "cross_entropy_loss_fusion",
    "cross_entropy_fusion_impl", "grad_reduce_in_bf16",
)  # fmt: skip
"""Arguments that other keys say, or the model's config.json."""
RENAMED = {
    "decoder_first_pipeline_num_layers": "num_layers_in_first_pipeline_stage",
    "decoder_last_pipeline_num_layers": "num_layers_in_last_pipeline_stage",
    "fp8_format": "fp8",
    "fp4_format": "fp4",
}
"""Megatron-LM's arguments, and fields of its TransformerConfig."""
HEAD = """\
# Overrides of verl's trainer. ppo_mini_batch_size counts prompts: divide it by rollout.n if that is
# not 1. The plan's samples have as many tokens as the longest prompt and answer together.
"""


def write(plan: ExportablePlan) -> Mapping[str, str]:
    """One YAML file of overrides."""
    megatron = uses_megatron(plan)
    tokens = plan.workload.seq_len
    document = {
        "defaults": [TRAINER[megatron], "_self_"],
        "actor_rollout_ref": {
            "actor": {**_batch(plan), **(_megatron(plan) if megatron else _fsdp(plan))},
            "model": _model(plan, megatron),
            "rollout": {"n": 1},
        },
        "data": {
            "max_prompt_length": tokens // 2,
            "max_response_length": tokens - tokens // 2,
        },
        "trainer": {"nnodes": plan.nodes, "n_gpus_per_node": plan.devices_per_node},
    }
    return {CONFIG_FILE: HEAD + yaml.safe_dump(document, sort_keys=False)}


def _batch(plan: ExportablePlan) -> dict[str, Any]:
    return {
        "ppo_mini_batch_size": plan.workload.global_batch,
        "ppo_micro_batch_size_per_gpu": plan.micro_batch,
        "use_dynamic_bsz": False,
    }


def _fsdp(plan: ExportablePlan) -> dict[str, Any]:
    dtype, shard = plan.workload.dtype, plan.strategy.shard
    names = {word: name for name, word in reversed(OPTIMIZERS.items())}
    optimizer = names.get(plan.workload.optimizer)
    sharded = shard.gradients
    return {
        "strategy": "fsdp2",
        **({"optim": {"optimizer": optimizer}} if optimizer else {}),
        "fsdp_config": {
            "strategy": "fsdp2",
            "fsdp_size": -1 if sharded == plan.devices else sharded,
            "reshard_after_forward": shard.parameters == sharded,
            "offload_policy": "cpu_offload" in plan.strategy.techniques,
            "ulysses_sequence_parallel_size": plan.strategy.tp,
            "model_dtype": "fp32",
            "mixed_precision": {
                "param_dtype": dtype.param,
                "reduce_dtype": dtype.communication,
                "buffer_dtype": "fp32",
            },
        },
    }


def _model(plan: ExportablePlan, megatron: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"use_fused_kernels": plan.stack.fusion.linear_cross_entropy}
    if not megatron:
        found["enable_gradient_checkpointing"] = plan.strategy.recompute == "full"
        found["use_remove_padding"] = True
    adapters = plan.workload.adapters
    if adapters is not None and not megatron:
        found |= {
            "lora_rank": adapters.rank,
            "lora_alpha": int(adapters.alpha) if adapters.alpha.is_integer() else adapters.alpha,
            "target_modules": _modules(plan.model, adapters.targets),
        }
    return found


def _modules(model: ModelSpec, targets: tuple[str, ...]) -> str | list[str]:
    """Adapters' layers by transformers' names of them."""
    known = target_names(model)
    if targets == known:
        return "all-linear"
    own = (name for name in names_for(model, known) if name.endswith("_proj"))
    return [name for name in own if set(targets_called(name, model, known)) <= set(targets)]


def _megatron(plan: ExportablePlan) -> dict[str, Any]:
    """The Megatron engine's fields, and overrides of its configurations."""
    arguments = {k: v for k, v in run_arguments(plan).items() if v is not None}
    engine: dict[str, Any] = {"dtype": "float16" if arguments.get("fp16") else "bfloat16"}
    ddp: dict[str, Any] = {"grad_reduce_in_fp32": not arguments.get("grad_reduce_in_bf16", False)}
    model: dict[str, Any] = {}
    for name, value in arguments.items():
        if name in ENGINE:
            engine[ENGINE[name]] = value
        elif name in DDP:
            ddp[name] = value
        elif name not in ELSEWHERE:
            model[RENAMED.get(name, name)] = value
    engine.setdefault("use_distributed_optimizer", False)
    engine |= {"override_ddp_config": ddp, "override_transformer_config": model}
    optimizer = arguments.get("optimizer")
    return {
        "strategy": "megatron",
        **({"optim": {"optimizer": optimizer}} if optimizer else {}),
        "megatron": engine,
    }
