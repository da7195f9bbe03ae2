"""Write a plan as Megatron-LM's arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ....datasets.catalogue.stack_settings import parse_stack
from ..exportable import ExportablePlan
from .launch import ARGUMENTS_FILE
from .layout import layout_text
from .model_arguments import model_arguments
from .read import OPTIMIZERS, RECIPES, SETTINGS


def write(plan: ExportablePlan) -> Mapping[str, str]:
    """One file of arguments, a flag a line.

    Raises:
        InputError: a model that no argument describes.
    """
    lines = [_line(name, value) for name, value in arguments_of(plan).items()]
    return {ARGUMENTS_FILE: "\n".join(filter(None, lines)) + "\n"}


def arguments_of(plan: ExportablePlan) -> dict[str, Any]:
    """The arguments by name; None and False are left out of a command line.

    Raises:
        InputError: a model that no argument describes.
    """
    return {**model_arguments(plan.model, plan.workload.seq_len), **run_arguments(plan)}


def run_arguments(plan: ExportablePlan) -> dict[str, Any]:
    """The arguments that do not describe the model."""
    return {**_parallelism(plan), **_training(plan), **_stack(plan)}


def _line(name: str, value: Any) -> str:
    flag = f"--{name.replace('_', '-')}"
    if value is True:
        return flag
    if value is None or value is False:
        return ""
    text = str(value)
    return f'{flag} "{text}"' if set(text) & set("|()[]* ") else f"{flag} {text}"


def _parallelism(plan: ExportablePlan) -> dict[str, Any]:
    strategy = plan.strategy
    arguments: dict[str, Any] = {
        "tensor_model_parallel_size": strategy.tp,
        "sequence_parallel": strategy.megatron_sp,
        "pipeline_model_parallel_size": plan.pp,
        "context_parallel_size": strategy.cp if strategy.cp > 1 else None,
        **_cut(plan),
        **_shard(plan),
        **_recompute(strategy.recompute),
    }
    if plan.has_experts:
        arguments |= {
            "expert_model_parallel_size": strategy.ep,
            "expert_tensor_parallel_size": strategy.etp,
        }
    return arguments


def _cut(plan: ExportablePlan) -> dict[str, Any]:
    """Arguments of the pipeline's chunks."""
    blocks, virtual = plan.chunk_blocks, plan.vpp if plan.vpp > 1 else None
    ends_joined = plan.chunk_sizes == _joined_ends(plan)
    if plan.is_even and ends_joined:
        return {"num_virtual_stages_per_pipeline_rank": virtual}
    inner = set(blocks[1:-1])
    if plan.vpp == 1 and ends_joined and len(inner) <= 1 and plan.pp > 1:
        return {
            "decoder_first_pipeline_num_layers": blocks[0],
            "decoder_last_pipeline_num_layers": blocks[-1],
        }
    return {"pipeline_model_parallel_layout": layout_text(list(plan.layers), plan.chunk_sizes)}


def _joined_ends(plan: ExportablePlan) -> tuple[int, ...]:
    """Layers of the chunks if other layers than blocks stay at the ends."""
    sizes = list(plan.chunk_blocks)
    sizes[0] += 1
    sizes[-1] += len(plan.layers) - len(plan.blocks) - 1
    return tuple(sizes)


def _shard(plan: ExportablePlan) -> dict[str, Any]:
    degree = plan.strategy.shard.optimizer
    if degree == 1:
        return {}
    instances = plan.replicas // degree
    return {
        "use_distributed_optimizer": True,
        "num_distributed_optimizer_instances": instances if instances > 1 else None,
    }


def _recompute(word: str) -> dict[str, Any]:
    if word == "full":
        return {
            "recompute_granularity": "full",
            "recompute_method": "uniform",
            "recompute_num_layers": 1,
        }
    return {"recompute_granularity": "selective"} if word == "selective" else {}


def _training(plan: ExportablePlan) -> dict[str, Any]:
    work, dtype = plan.workload, plan.workload.dtype
    recipes = {word: name for name, word in RECIPES.items()}
    names = {word: name for name, word in reversed(OPTIMIZERS.items())}
    plain = replace(dtype, gradient="fp32").shorthand
    arguments: dict[str, Any] = {
        "micro_batch_size": plan.micro_batch,
        "global_batch_size": work.global_batch,
        "seq_length": work.seq_len,
        "bf16": dtype.param == "bf16",
        "fp16": dtype.param == "fp16",
        "optimizer": names.get(work.optimizer),
        "grad_reduce_in_bf16": dtype.gradient == "bf16",
    }
    if plain in recipes:
        arguments |= {"fp8_format": "hybrid", "fp8_recipe": recipes[plain]}
    if plain == "nvfp4":
        arguments["fp4_format"] = "e2m1"
    return arguments


def _stack(plan: ExportablePlan) -> dict[str, Any]:
    """Switches of the stack's settings, and its attention."""
    base, settings = parse_stack(plan.stack.name, "--stack")
    backend = "flash" if plan.stack.attention == "flash" else "unfused"
    arguments: dict[str, Any] = {"attention_backend": backend}
    if base != "megatron":
        return arguments
    given = {f"{key}={value}" for key, value in settings.items()}
    arguments |= {name: True for name, text in SETTINGS.items() if text in given}
    if len(arguments) and arguments.pop("external_cuda_graph", None):
        arguments["enable_cuda_graph"] = True
    if "dropout=off" in given:
        arguments |= {"attention_dropout": 0.0, "hidden_dropout": 0.0}
    if "loss=fused" in given or "loss=chunked" in given:
        arguments["cross_entropy_loss_fusion"] = True
        impl = "linear" if "loss=chunked" in given else "native"
        arguments["cross_entropy_fusion_impl"] = impl
    if dispatcher := settings.get("dispatcher"):
        if dispatcher != "alltoall":
            arguments["moe_token_dispatcher_type"] = "flex"
            arguments["moe_flex_dispatcher_backend"] = dispatcher
    elif plan.has_experts:
        arguments["moe_token_dispatcher_type"] = "alltoall"
    return arguments
