"""Write a plan as overrides of a recipe of Megatron Bridge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from ....spec.errors import InputError
from ..exportable import ExportablePlan
from ..megatron.write import arguments_of
from .launch import CONFIG_FILE
from .read import RENAMED

SECTIONS = {
    "train": ("micro_batch_size", "global_batch_size"),
    "ddp": (
        "use_distributed_optimizer",
        "num_distributed_optimizer_instances",
        "overlap_grad_reduce",
        "overlap_param_gather",
    ),
    "optimizer": ("optimizer",),
    "comm_overlap": ("tp_comm_overlap",),
    "mixed_precision": ("bf16", "fp16", "fp8_format", "fp8_recipe", "fp4_format",
                        "fp8_param_gather"),
}  # fmt: skip
SECTION = {name: section for section, names in SECTIONS.items() for name in names}
FIELDS = {argument: field for field, argument in RENAMED.items()}
SWITCHES = ("group_query_attention", "max_position_embeddings", "grad_reduce_in_bf16")
"""Arguments that are said by other fields."""


def write(plan: ExportablePlan) -> Mapping[str, str]:
    """One YAML file of fields by section.

    Raises:
        InputError: a model that no field describes.
    """
    arguments = {k: v for k, v in arguments_of(plan).items() if v is not None}
    if arguments.pop("squared_relu", False):
        allowed = "an activation that a recipe's file can say: swiglu or gelu"
        raise InputError("model", f"{plan.model.name} with squared ReLU", allowed)
    document: dict[str, dict[str, Any]] = {"model": _model(arguments)}
    for name, value in arguments.items():
        section = SECTION.get(name, "model")
        if name not in SWITCHES:
            document.setdefault(section, {})[FIELDS.get(name, name)] = value
    precision = document.setdefault("mixed_precision", {})
    precision["grad_reduce_in_fp32"] = not arguments.get("grad_reduce_in_bf16", False)
    document["dataset"] = {"sequence_length": plan.workload.seq_len}
    return {CONFIG_FILE: yaml.safe_dump(document, sort_keys=False)}


def _model(arguments: dict[str, Any]) -> dict[str, Any]:
    """Fields of the model whose sense or name differs; they are taken out of the arguments."""
    plain, fused = (
        arguments.pop(name, False) for name in ("disable_bias_linear", "cross_entropy_loss_fusion")
    )
    untied, gated = (
        arguments.pop(name, False) for name in ("untie_embeddings_and_output_weights", "swiglu")
    )
    arguments.pop("seq_length")
    return {
        "seq_length": arguments["max_position_embeddings"],
        "add_bias_linear": not plain,
        "share_embeddings_and_output_weights": not untied,
        "gated_linear_unit": gated,
        "cross_entropy_loss_fusion": fused,
        "vocab_size": arguments.pop("padded_vocab_size"),
        "layernorm_epsilon": arguments.pop("norm_epsilon"),
    }
