"""Write a plan as accelerate's YAML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from ..exportable import ExportablePlan
from .launch import CONFIG_FILE


def write(plan: ExportablePlan) -> Mapping[str, str]:
    """One YAML file."""
    strategy, sharded = plan.strategy, plan.strategy.shard.gradients
    dtype, is_mesh = plan.workload.dtype, sharded > 1 or plan.strategy.width > 1
    document: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "FSDP" if is_mesh else "MULTI_GPU",
        "mixed_precision": "fp8" if dtype.matmul else _precision(dtype.param),
        "num_machines": plan.nodes,
        "num_processes": plan.devices,
    }
    if is_mesh:
        document["fsdp_config"] = {
            "fsdp_version": 2,
            "fsdp_reshard_after_forward": strategy.shard.parameters > 1,
            "fsdp_activation_checkpointing": strategy.recompute == "full",
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_offload_params": "cpu_offload" in strategy.techniques,
        }
        document["parallelism_config"] = {
            "parallelism_config_dp_replicate_size": plan.replicas // sharded,
            "parallelism_config_dp_shard_size": max(1, sharded // strategy.cp),
            "parallelism_config_tp_size": strategy.tp,
            "parallelism_config_cp_size": strategy.cp,
        }
    return {CONFIG_FILE: yaml.safe_dump(document, sort_keys=False)}


def _precision(param: str) -> str:
    return "no" if param == "fp32" else param
