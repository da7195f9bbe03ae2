"""Write a plan as torchtitan's TOML."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ....datasets.catalogue.stack_settings import parse_stack
from ....spec.model.layers import BlockLayer, EmbeddingLayer
from ..exportable import ExportablePlan
from .flavors import flavor_of, has_flavor
from .launch import CONFIG_FILE

SCHEDULES = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved": "Interleaved1F1B",
    "zero_bubble": "InterleavedZeroBubble",
    "zbv": "ZBVZeroBubble",
    "dualpipe": "DualPipeV",
}
OPTIMIZERS = {"adamw": "AdamW", "adam": "Adam"}


def write(plan: ExportablePlan) -> Mapping[str, str]:
    """One TOML file."""
    sections: dict[str, dict[str, Any]] = {
        "model": _model(plan),
        "optimizer": {"name": OPTIMIZERS.get(plan.workload.optimizer)},
        "training": _training(plan),
        "parallelism": _parallelism(plan),
        "activation_checkpoint": _recompute(plan.strategy.recompute),
        **_stack(plan),
    }
    text = "\n".join(_section(name, values) for name, values in sections.items() if values)
    return {CONFIG_FILE: text}


def _section(name: str, values: Mapping[str, Any]) -> str:
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items() if value is not None]
    return f"[{name}]\n" + "\n".join(lines) + "\n"


def _model(plan: ExportablePlan) -> dict[str, Any]:
    flavor = flavor_of(plan.model.name) if has_flavor(plan.model) else None
    narrow = plan.workload.dtype.matmul
    values: dict[str, Any] = {"name": flavor[0], "flavor": flavor[1]} if flavor else {}
    if narrow == "fp8_tensor":
        values["converters"] = ["quantize.linear.float8"]
    elif narrow == "mxfp8":
        values["converters"] = ["quantize.linear.mx"]
    return values


def _training(plan: ExportablePlan) -> dict[str, Any]:
    offload = plan.strategy.techniques.get("cpu_offload")
    local = plan.micro_batch * (plan.microbatches if plan.pp > 1 else 1)
    dtype = plan.workload.dtype
    return {
        "local_batch_size": local,
        "global_batch_size": plan.workload.global_batch,
        "seq_len": plan.workload.seq_len,
        "mixed_precision_param": "bfloat16" if dtype.param == "bf16" else "float32",
        "dtype": "bfloat16" if dtype.moments == "bf16" else None,
        "enable_cpu_offload": True if offload is not None else None,
    }


def _parallelism(plan: ExportablePlan) -> dict[str, Any]:
    strategy, degree = plan.strategy, plan.strategy.shard.parameters
    sharded = strategy.shard.gradients
    replicate = plan.replicas // sharded
    values: dict[str, Any] = {
        "data_parallel_replicate_degree": replicate,
        "data_parallel_shard_degree": max(1, sharded // strategy.cp),
        "fsdp_reshard_after_forward": "always" if degree > 1 else "never",
        "tensor_parallel_degree": strategy.tp,
        "context_parallel_degree": strategy.cp,
        "pipeline_parallel_degree": plan.pp,
    }
    if "tp_overlap=on" in plan.stack.name:
        values["enable_async_tensor_parallel"] = True
    if plan.has_experts:
        values["expert_parallel_degree"] = strategy.ep
        values["expert_tensor_parallel_degree"] = strategy.etp
    if plan.pp > 1:
        values |= {
            "pipeline_parallel_schedule": SCHEDULES[plan.kind],
            "pipeline_parallel_microbatch_size": plan.micro_batch,
            "module_fqns_per_model_part": _module_names(plan),
        }
    return values


def _module_names(plan: ExportablePlan) -> list[list[str]]:
    """Modules of each chunk in torchtitan's names."""
    names: list[list[str]] = []
    block = 0
    for layer in plan.layers:
        if isinstance(layer, EmbeddingLayer):
            names.append(["tok_embeddings"])
        elif isinstance(layer, BlockLayer):
            names.append([f"layers.{block}"])
            block += 1
        else:
            names.append(["norm", "output"])
    parts, start = [], 0
    for size in plan.chunk_sizes:
        parts.append([name for group in names[start : start + size] for name in group])
        start += size
    return parts


def _recompute(word: str) -> dict[str, Any]:
    if word == "selective-ops":
        return {"mode": "selective", "selective_ac_option": "op"}
    return {"mode": word}


def _stack(plan: ExportablePlan) -> dict[str, dict[str, Any]]:
    base, settings = parse_stack(plan.stack.name, "--stack")
    sections: dict[str, dict[str, Any]] = {"compile": {"enable": plan.stack.compile}}
    if base == "torchtitan" and settings.get("fp8_gather") == "on":
        sections["quantize.linear.float8"] = {"enable_fsdp_float8_all_gather": True}
    return sections
