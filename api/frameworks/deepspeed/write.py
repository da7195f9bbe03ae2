"""Write a plan as DeepSpeed's JSON and arguments of transformers' Trainer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....spec.codec import dump_pretty
from ..exportable import ExportablePlan
from .launch import ARGUMENTS_FILE, CONFIG_FILE

OPTIMIZERS = {"adamw": "AdamW", "lion": "Lion", "muon": "Muon", "sgd": "SGD"}
TRAINER_OPTIMIZERS = {
    "adamw": "adamw_torch",
    "adamw8bit": "adamw_bnb_8bit",
    "lion": "lion_32bit",
    "adafactor": "adafactor",
    "sgd": "sgd",
}


def write(plan: ExportablePlan) -> Mapping[str, str]:
    """DeepSpeed's file, and the arguments that name it and ask for recomputation."""
    return {
        CONFIG_FILE: dump_pretty(deepspeed_document(plan)),
        ARGUMENTS_FILE: dump_pretty(_arguments(plan)),
    }


def deepspeed_document(plan: ExportablePlan) -> dict[str, Any]:
    """DeepSpeed's configuration."""
    dtype = plan.workload.dtype
    document: dict[str, Any] = {
        "train_batch_size": plan.workload.global_batch,
        "train_micro_batch_size_per_gpu": plan.micro_batch,
        "gradient_accumulation_steps": plan.microbatches,
        "bf16": {"enabled": dtype.param == "bf16"},
        "fp16": {"enabled": dtype.param == "fp16"},
        "zero_optimization": _zero(plan),
    }
    if plan.workload.optimizer in OPTIMIZERS:
        document["optimizer"] = {"type": OPTIMIZERS[plan.workload.optimizer]}
    if plan.strategy.ulysses:
        document["sequence_parallel_size"] = plan.strategy.tp
    elif plan.strategy.tp > 1:
        document["tensor_parallel"] = {"autotp_size": plan.strategy.tp}
    return document


def _zero(plan: ExportablePlan) -> dict[str, Any]:
    level, _, degree = plan.shard.partition(":")
    zero: dict[str, Any] = {"stage": 3 if level == "hpz" else int(level[-1])}
    if level == "hpz":
        zero["zero_hpz_partition_size"] = int(degree)
    offload = plan.strategy.techniques.get("cpu_offload")
    if offload is not None:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
        if offload.parameters:
            zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    return zero


def _arguments(plan: ExportablePlan) -> dict[str, Any]:
    dtype = plan.workload.dtype
    arguments: dict[str, Any] = {
        "deepspeed": CONFIG_FILE,
        "per_device_train_batch_size": plan.micro_batch,
        "gradient_accumulation_steps": plan.microbatches,
        "gradient_checkpointing": plan.strategy.recompute == "full",
        "bf16": dtype.param == "bf16",
        "fp16": dtype.param == "fp16",
    }
    if plan.workload.optimizer in TRAINER_OPTIMIZERS:
        arguments["optim"] = TRAINER_OPTIMIZERS[plan.workload.optimizer]
    return arguments
