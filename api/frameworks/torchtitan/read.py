"""Read torchtitan's configuration.

Names and defaults: torchtitan/config/job_config.py at 0.2.2, and the command-line overrides of
later releases, whose sections are the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ....spec.errors import InputError
from ..file_keys import FileKeys
from ..framework import Reading
from ..framework_file import FrameworkFile
from ..settings import Settings, said
from .flavors import FLAVORS

P, T, AC = "parallelism.", "training.", "activation_checkpoint."
UNSUPPORTED = {
    P + "pipeline_parallel_schedule_csv": "a schedule with a name",
    P + "enable_compiled_autograd": "autograd as it is",
    AC + "per_op_sac_force_recompute_mm_shapes_by_fqns": "the operations that op keeps by itself",
    "quantize.linear.mx.filter_fqns": "all linear layers of blocks",
    "fault_tolerance.enable": "a run without replicas that may fail",
}
LENIENT: Mapping[str, tuple[list[str], ...]] = {
    AC + "per_op_sac_force_recompute_mm_shapes_by_fqns": (["moe.router.gate"], []),
    "quantize.linear.mx.filter_fqns": (["output"], []),
}
"""Values of those keys that change nothing."""
SCHEDULES = {
    "gpipe": "gpipe",
    "1f1b": "1f1b",
    "interleaved1f1b": "interleaved",
    "interleavedzerobubble": "zero_bubble",
    "zbvzerobubble": "zbv",
    "dualpipev": "dualpipe",
}
TWO_CHUNKS = ("interleaved", "zbv", "dualpipe")
OPTIMIZERS = {"adamw": "adamw", "adam": "adam"}
OLD_KEYS = {
    T + "batch_size": T + "local_batch_size",
    T + "compile": "compile.enable",
    T + "tensor_parallel_degree": P + "tensor_parallel_degree",
    T + "data_parallel_shard_degree": P + "data_parallel_shard_degree",
    T + "data_parallel_replicate_degree": P + "data_parallel_replicate_degree",
    "experimental.pipeline_parallel_degree": P + "pipeline_parallel_degree",
    "experimental.pipeline_parallel_schedule": P + "pipeline_parallel_schedule",
    "experimental.context_parallel_degree": P + "context_parallel_degree",
    "experimental.enable_async_tensor_parallel": P + "enable_async_tensor_parallel",
}
"""Keys of releases before 0.1, and those of today."""


def recognizes(file: FrameworkFile) -> bool:
    """True if the keys are torchtitan's."""
    keys = {OLD_KEYS.get(key, key) for key in file.keys}
    return any(key.startswith((P, AC)) for key in keys) or {
        T + "local_batch_size",
        "model.flavor",
    } <= set(keys)


def read(reading: Reading) -> Settings:
    """The run of a configuration.

    Raises:
        InputError: a value that cannot be read, or that changes the price and has no counterpart.
    """
    keys = reading.keys
    _renamed(keys)
    _refuse(keys)
    tp = keys.count_or(P + "tensor_parallel_degree", 1)
    pp = keys.count_or(P + "pipeline_parallel_degree", 1)
    cp = keys.count_or(P + "context_parallel_degree", 1)
    replicate, sharded = _data_parallel(keys, reading.devices, tp * pp * cp)
    dp = replicate * sharded
    local = keys.count_or(T + "local_batch_size", 8, note=True)
    micro = keys.count_or(P + "pipeline_parallel_microbatch_size", 1) if pp > 1 else local
    batch = keys.document[T + "global_batch_size"] if keys.has(T + "global_batch_size") else -1
    kind, vpp, chunk_layers = _pipeline(keys, pp)
    if pp > 1 and batch not in (-1, local * dp):
        why = "the pipeline is filled once a step, not once for each local batch"
        keys.assume(T + "local_batch_size", batch // dp, why)
    return Settings(
        stack=_stack(keys),
        model=_model(keys),
        inputs=said(
            global_batch=local * dp if batch == -1 else keys.count(T + "global_batch_size"),
            seq_len=keys.count_or(T + "seq_len", 2048, note=True),
            dtype=_dtype(keys),
            optimizer=_optimizer(keys),
            **_full_bf16(keys),
        ),
        strategy=said(
            tp=tp,
            pp=pp,
            cp=cp,
            vpp=vpp,
            schedule=kind,
            micro_batch=micro,
            sp="megatron" if tp > 1 else "none",
            shard=_shard(keys, replicate, sharded * cp, pp),
            recompute=_recompute(keys),
            ep=keys.count_or(P + "expert_parallel_degree", 1) if _says_experts(keys) else None,
            etp=keys.count_or(P + "expert_tensor_parallel_degree", 1)
            if _says_experts(keys)
            else None,
            cpu_offload=_offload(keys),
        ),
        chunk_layers=chunk_layers,
    )


def _renamed(keys: FileKeys) -> None:
    for old, new in OLD_KEYS.items():
        if old in keys.document and new not in keys.document:
            keys.document = {new if k == old else k: v for k, v in keys.document.items()}


def _refuse(keys: FileKeys) -> None:
    harmless = {k for k, values in LENIENT.items() if keys.document.get(k) in values}
    if not any("mx" in name for name in _converters(keys)):
        harmless.add("quantize.linear.mx.filter_fqns")
    for key in harmless:
        keys.has(key)
    keys.refuse({key: why for key, why in UNSUPPORTED.items() if key not in harmless})


def _says_experts(keys: FileKeys) -> bool:
    degrees = (P + "expert_parallel_degree", P + "expert_tensor_parallel_degree")
    return any(keys.has(key) and keys.document[key] != 1 for key in degrees)


def _data_parallel(keys: FileKeys, devices: int, others: int) -> tuple[int, int]:
    """Replicas and sharding ranks."""
    replicate = keys.count_or(P + "data_parallel_replicate_degree", 1)
    key = P + "data_parallel_shard_degree"
    if keys.has(key) and keys.document[key] != -1:
        return replicate, keys.count(key)
    rest = devices / (others * replicate)
    if rest != math.floor(rest) or rest < 1:
        allowed = f"degrees whose product divides the {devices} devices"
        raise InputError(f"{keys.where}: parallelism", f"{others * replicate}", allowed)
    return replicate, int(rest)


def _pipeline(keys: FileKeys, pp: int) -> tuple[str, int, tuple[int, ...] | None]:
    """Schedule, chunks of a stage, and layers of each chunk if they are listed."""
    listed = keys.document.get(P + "module_fqns_per_model_part")
    keys.has(P + "module_fqns_per_model_part")
    name = keys.text_or(P + "pipeline_parallel_schedule", "1F1B")
    if pp == 1:
        return "1f1b", 1, None
    if name.casefold() not in SCHEDULES:
        known = "GPipe, 1F1B, Interleaved1F1B, InterleavedZeroBubble, ZBVZeroBubble, DualPipeV"
        raise keys.error(P + "pipeline_parallel_schedule", f"one of {known}")
    kind = SCHEDULES[name.casefold()]
    if listed:
        sizes = _listed_sizes(keys, listed)
        return kind, max(1, len(sizes) // pp), sizes
    each = keys.count_if(P + "pipeline_parallel_layers_per_stage")
    _refuse_ends(keys)
    vpp = 2 if kind in TWO_CHUNKS else 1
    if each is not None:
        raise keys.unsupported(
            P + "pipeline_parallel_layers_per_stage", "module_fqns_per_model_part, a list of layers"
        )
    return kind, vpp, ()


def _refuse_ends(keys: FileKeys) -> None:
    for end in ("first", "last"):
        key = f"{P}pipeline_parallel_{end}_stage_less_layers"
        if keys.count_or(key, 1) != 1:
            raise keys.unsupported(key, "1, embedding and head counted as a layer each")


def _listed_sizes(keys: FileKeys, listed: Any) -> tuple[int, ...]:
    """Layers of each listed chunk; the final norm is no layer of its own."""
    if not isinstance(listed, list) or not all(isinstance(part, list) for part in listed):
        raise keys.error(P + "module_fqns_per_model_part", "a list of lists of module names")
    return tuple(sum(str(name) != "norm" for name in part) for part in listed)


def _shard(keys: FileKeys, replicate: int, sharded: int, pp: int) -> str:
    policies = ("default", "always", "never")
    policy = keys.word_or(P + "fsdp_reshard_after_forward", "default", policies)
    keeps = policy == "never" or (policy == "default" and pp > 1)
    if sharded == 1:
        return "zero0"
    if replicate > 1:
        return f"1/{sharded}/{sharded}" if keeps else f"hsdp:{sharded}"
    return "zero2" if keeps else "zero3"


def _recompute(keys: FileKeys) -> str:
    words = ("none", "selective", "full", "memory_budget")
    mode = keys.word_or(AC + "mode", "selective", words)
    option = keys.text_or(AC + "selective_ac_option", "2")
    if mode == "memory_budget":
        raise keys.unsupported(AC + "mode", "none, selective with op, or full")
    if mode != "selective":
        return mode
    if option != "op" and option != "1":
        raise keys.unsupported(AC + "selective_ac_option", "op: not every n-th layer")
    return "selective-ops" if option == "op" else "full"


def _stack(keys: FileKeys) -> str:
    settings = []
    components = keys.document.get("compile.components", ["model", "loss"])
    keys.has("compile.components")
    if not keys.flag_or("compile.enable") or "model" not in components:
        settings.append("compile=off")
    if keys.flag_or(P + "enable_async_tensor_parallel"):
        settings.append("tp_overlap=on")
    if keys.flag_or("quantize.linear.float8.enable_fsdp_float8_all_gather"):
        settings.append("fp8_gather=on")
    return "torchtitan" + (":" + ",".join(settings) if settings else "")


def _model(keys: FileKeys) -> str | None:
    name = keys.text_or("model.name", "")
    flavor = keys.text_or("model.flavor", "")
    preset = FLAVORS.get((name, flavor))
    if preset is not None:
        keys.assume("model", preset, f"the preset of {name} {flavor}")
    return preset


def _dtype(keys: FileKeys) -> str:
    keys.has("quantize.linear.float8.recipe_name")
    names = _converters(keys)
    if any("mx" in name for name in names):
        return "mxfp8"
    if any("float8" in name for name in names):
        return "fp8"
    words = {"bfloat16": "bf16", "float32": "fp32"}
    return words[keys.word_or(T + "mixed_precision_param", "bfloat16", tuple(words))]


def _converters(keys: FileKeys) -> list[str]:
    """Converters of the model's modules, by name."""
    keys.has("model.converters")
    names = keys.document.get("model.converters") or []
    return [str(name) for name in names] if isinstance(names, list) else [str(names)]


def _full_bf16(keys: FileKeys) -> dict[str, str]:
    """States of a training that is all in bf16."""
    if keys.word_or(T + "dtype", "float32", ("bfloat16", "float32")) == "float32":
        return {}
    return {"grad_dtype": "bf16", "master_dtype": "none", "moment_dtype": "bf16"}


def _optimizer(keys: FileKeys) -> str:
    name = keys.text_or("optimizer.name", "AdamW")
    if name.casefold() not in OPTIMIZERS:
        raise keys.error("optimizer.name", "AdamW or Adam")
    return OPTIMIZERS[name.casefold()]


def _offload(keys: FileKeys) -> str | None:
    return "all" if keys.flag_or(T + "enable_cpu_offload") else None
