"""Read Megatron-LM's arguments.

Names and defaults: Megatron-LM megatron/training/arguments.py,
megatron/core/model_parallel_config.py and megatron/core/transformer/transformer_config.py at core
0.14.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....spec.errors import InputError
from ..file_keys import FileKeys
from ..framework import Reading
from ..framework_file import FrameworkFile
from ..settings import Settings, said
from .layout import layout_chunks
from .model_keys import model_keys

MARKS = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "num_attention_heads")
ARGUMENTS = "MODEL_ARGS."
UNSUPPORTED = {
    "use_megatron_fsdp": "states as its distributed optimizer lays them out",
    "use_torch_fsdp2": "states as its distributed optimizer lays them out",
    "cpu_offloading": "activations on the device",
    "fine_grained_activation_offloading": "activations on the device",
    "hierarchical_context_parallel_sizes": "a ring of all ranks of cp",
    "perform_rl_step": "a step of plain training",
    "export_kd_teacher_load": "a step without a teacher",
    "optimizer_cpu_offload": "optimizer states on the device, as the stack megatron keeps them",
    "use_layer_wise_distributed_optimizer": "states as its distributed optimizer lays them out",
    "pipeline_model_parallel_split_rank": "a decoder alone",
    "overlap_p2p_communication_warmup_flush": "1F1B with and without virtual stages",
    "moe_pad_expert_input_to_capacity": "experts' rows as they come",
    "mtp_use_repeated_layer": "multi-token layers of their own",
    "exp_avg_sq_dtype": "moments in one format, main_grads_dtype",
}
"""Arguments that change the price and that no plan here says, and what does."""
SETTINGS = {
    "overlap_grad_reduce": "grad_overlap=on",
    "overlap_param_gather": "param_overlap=on",
    "tp_comm_overlap": "tp_overlap=on",
    "moe_router_fusion": "router=fused",
    "moe_permute_fusion": "permute=fused",
    "fp8_param_gather": "fp8_gather=on",
    "enable_cuda_graph": "cuda_graphs=on",
    "external_cuda_graph": "cuda_graphs=on",
    "overlap_moe_expert_parallel_comm": "expert_overlap=on",
}
"""Switches, and the settings of the stack that they are."""
RECIPES = {"delayed": "fp8-delayed", "tensorwise": "fp8", "blockwise": "fp8-block",
           "mxfp8": "mxfp8"}  # fmt: skip
OPTIMIZERS = {"adam": "adamw", "sgd": "sgd", "muon": "muon", "dist_muon": "muon", "lion": "lion"}


def recognizes(file: FrameworkFile) -> bool:
    """True if the keys are Megatron-LM's."""
    if any(key.startswith(("train.", "ddp.")) for key in file.keys):  # Megatron Bridge's sections
        return False
    keys = normal(file)
    sizes = ("num_layers", "hidden_size", "micro_batch_size", "global_batch_size", "seq_length")
    return any(mark in keys for mark in MARKS) and sum(key in keys for key in sizes) >= 2


def normal(file: FrameworkFile) -> Mapping[str, Any]:
    """Keys without sections and dashes; under MODEL_ARGS alone where there are any."""
    keys = file.keys
    if any(key.startswith(ARGUMENTS) for key in keys):
        keys = {key: value for key, value in keys.items() if key.startswith(ARGUMENTS)}
    short = {key: key.rpartition(".")[2].lstrip("-").replace("-", "_") for key in keys}
    return {short[key]: value for key, value in keys.items()}


def read(reading: Reading) -> Settings:
    """The run of the arguments.

    Raises:
        InputError: a value that cannot be read, or that changes the price and has no counterpart.
    """
    keys = reading.keys
    keys.refuse(UNSUPPORTED)
    if keys.has("num_layers", "hidden_size"):
        model: dict[str, Any] | None = model_keys(keys)
    else:
        model = None
    tp = keys.count_or("tensor_model_parallel_size", 1)
    pp = keys.count_or("pipeline_model_parallel_size", 1)
    cp = keys.count_or("context_parallel_size", 1)
    _check_ring(keys, cp)
    dp = max(1, reading.devices // max(1, tp * pp * cp))
    keys.require(("micro_batch_size", "seq_length"))
    micro = keys.count("micro_batch_size")
    chunk_layers, cut = _cut(keys, pp)
    return Settings(
        stack=_stack(keys),
        model=model,
        inputs=said(
            global_batch=keys.count_or("global_batch_size", micro * dp, note=True),
            seq_len=keys.count("seq_length"),
            dtype=_dtype(keys),
            attention=_attention(keys),
            **_states(keys),
        ),
        strategy=said(
            tp=tp,
            pp=pp,
            cp=cp,
            micro_batch=micro,
            sp="megatron" if keys.flag_or("sequence_parallel") and tp > 1 else "none",
            shard=_shard(keys, dp * cp),
            recompute=_recompute(keys),
            **_expert_degrees(keys, model, tp),
            **_virtual_stages(keys, model, pp),
            **cut,
        ),
        chunk_layers=chunk_layers,
    )


def _expert_degrees(keys: FileKeys, model: dict[str, Any] | None, tp: int) -> dict[str, int]:
    """Degrees of experts; of a model that the file leaves out where they are above 1."""
    if model is not None and "experts" not in model:
        return {}
    ep = keys.count_or("expert_model_parallel_size", 1) or 1
    etp = keys.count_or("expert_tensor_parallel_size", tp) or tp
    return {} if model is None and ep == 1 else {"ep": ep, "etp": etp}


def _check_ring(keys: FileKeys, cp: int) -> None:
    kind = keys.text_or("cp_comm_type", "p2p")
    if cp > 1 and set(kind.split()) != {"p2p"}:
        raise keys.unsupported("cp_comm_type", "p2p, a ring")


def _stack(keys: FileKeys) -> str:
    settings = [text for key, text in SETTINGS.items() if keys.flag_or(key)]
    if keys.text_or("cuda_graph_impl", "none") not in ("none", "None"):
        settings.append("cuda_graphs=on")
    if keys.flag_or("cross_entropy_loss_fusion"):
        impl = keys.word_or("cross_entropy_fusion_impl", "native", ("native", "te", "linear"))
        settings.append("loss=chunked" if impl == "linear" else "loss=fused")
    words = ("allgather", "alltoall", "flex", "alltoall_seq")
    if keys.word_or("moe_token_dispatcher_type", "allgather", words) == "flex":
        backend = keys.word_or("moe_flex_dispatcher_backend", "deepep", ("deepep", "hybridep"))
        settings.append(f"dispatcher={backend}")
    dropped = [keys.number_or(f"{name}_dropout", 0.1) for name in ("attention", "hidden")]
    if not any(dropped):
        settings.append("dropout=off")
    unique = list(dict.fromkeys(settings))
    return "megatron" + (":" + ",".join(unique) if unique else "")


def _dtype(keys: FileKeys) -> str:
    if keys.has("fp4_format"):
        return "nvfp4"
    if keys.has("fp8_format", "fp8"):
        return RECIPES[keys.word_or("fp8_recipe", "delayed", tuple(RECIPES))]
    if keys.flag_or("bf16"):
        return "bf16"
    return "fp16" if keys.flag_or("fp16") else "fp32"


def _states(keys: FileKeys) -> dict[str, str]:
    """Formats of states, and the optimizer."""
    word = keys.text_or("optimizer", "adam")
    if word not in OPTIMIZERS:
        raise keys.error("optimizer", "one of " + ", ".join(OPTIMIZERS))
    states = {"optimizer": OPTIMIZERS[word]}
    formats = ("fp32", "bf16", "fp16")
    for key, name in (
        ("main_grads_dtype", "grad_dtype"),
        ("main_params_dtype", "master_dtype"),
        ("exp_avg_dtype", "moment_dtype"),
    ):
        if keys.has(key):
            states[name] = keys.word_or(key, "fp32", formats)
    if keys.flag_or("grad_reduce_in_bf16"):
        states["grad_dtype"] = "bf16"
    return states


def _attention(keys: FileKeys) -> str | None:
    words = ("auto", "flash", "fused", "unfused", "local")
    kind = keys.word_or("attention_backend", "auto", words)
    if kind in ("flash", "fused") or keys.flag_or("use_flash_attn"):
        return "flash"
    return "unfused" if kind in ("unfused", "local") else None


def _shard(keys: FileKeys, replicas: int) -> str:
    if not keys.flag_or("use_distributed_optimizer"):
        keys.has("num_distributed_optimizer_instances")
        return "zero0"
    instances = keys.count_or("num_distributed_optimizer_instances", 1)
    if instances <= 1:
        return "zero1"
    if replicas % instances:
        raise keys.error("num_distributed_optimizer_instances", f"a divisor of {replicas} replicas")
    return f"1/1/{replicas // instances}"


def _recompute(keys: FileKeys) -> str:
    kind = keys.word_or("recompute_granularity", "none", ("none", "selective", "full"))
    if keys.flag_or("recompute_activations"):
        kind = "selective"
    modules = keys.text_or("recompute_modules", "core_attn")
    if kind == "selective" and modules != "core_attn":
        raise keys.unsupported("recompute_modules", "core_attn, core attention alone")
    method = keys.word_or("recompute_method", "uniform", ("uniform", "block"))
    layers = keys.count_or("recompute_num_layers", 1)
    if kind == "full" and method == "block":
        raise keys.unsupported("recompute_method", "uniform, every layer")
    if kind == "full" and layers > 1:
        why = "kept are inputs of every layer, not of every n-th, as far as memory goes"
        keys.assume("recompute_num_layers", 1, why)
    return kind


def _virtual_stages(
    keys: FileKeys, model: Mapping[str, Any] | None, pp: int
) -> dict[str, int | str]:
    vpp = keys.count_if("num_virtual_stages_per_pipeline_rank")
    each = keys.count_if("num_layers_per_virtual_pipeline_stage")
    if each is not None and model is not None:
        layers = int(model["layers"])
        layers += keys.flag_or("account_for_embedding_in_pipeline_split")
        layers += keys.flag_or("account_for_loss_in_pipeline_split")
        if layers % (pp * each):
            allowed = f"a size that divides the {layers} layers over {pp} stages"
            raise keys.error("num_layers_per_virtual_pipeline_stage", allowed)
        vpp = layers // pp // each
    if keys.has("pipeline_model_parallel_layout"):
        chunks = len(layout_chunks(keys))
        vpp = chunks // pp if chunks % pp == 0 else vpp
    vpp = vpp or 1
    return {"vpp": vpp, "schedule": "interleaved" if vpp > 1 else "1f1b"}


def _cut(keys: FileKeys, pp: int) -> tuple[tuple[int, ...] | None, dict[str, int]]:
    """Layers of each chunk if a layout or the ends say them, and blocks of the end stages."""
    if keys.has("pipeline_model_parallel_layout"):
        return layout_chunks(keys), {}
    first = keys.count_if("decoder_first_pipeline_num_layers")
    last = keys.count_if("decoder_last_pipeline_num_layers")
    if first is not None or last is not None:
        return None, said(first_stage_layers=first, last_stage_layers=last)
    counted = [
        keys.flag_or(f"account_for_{end}_in_pipeline_split") for end in ("embedding", "loss")
    ]
    if not any(counted) or pp == 1:
        return None, {}
    layers = keys.count("num_layers") + sum(counted)
    vpp = int(_virtual_stages(keys, {"layers": keys.count("num_layers")}, pp)["vpp"])
    parts = pp * vpp
    if layers % parts:
        allowed = f"layers, counted so, that {parts} chunks share evenly"
        raise InputError(f"{keys.where}: num_layers", layers, allowed)
    sizes = [layers // parts] * parts
    sizes[0] += not counted[0]
    sizes[-1] += not counted[1]
    return tuple(sizes), {}
