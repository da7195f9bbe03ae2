"""Read accelerate's YAML.

Names and defaults: accelerate src/accelerate/commands/launch.py, utils/dataclasses.py and
parallelism_config.py at 1.15.
"""

from __future__ import annotations

from typing import Any

from ....spec.errors import InputError
from ..deepspeed.read import deepspeed_settings
from ..file_keys import FileKeys
from ..framework import Reading
from ..framework_file import FrameworkFile, read_framework_file
from ..settings import Settings, said

F, D = "fsdp_config.", "deepspeed_config."
M = "parallelism_config.parallelism_config_"
KINDS = ("NO", "MULTI_GPU", "FSDP", "DEEPSPEED")
STRATEGIES = {
    "FULL_SHARD": "zero3",
    "SHARD_GRAD_OP": "zero2",
    "NO_SHARD": "zero0",
    "HYBRID_SHARD": "hsdp",
    "HYBRID_SHARD_ZERO2": "hsdp2",
    "1": "zero3",
    "2": "zero2",
    "3": "zero0",
    "4": "hsdp",
    "5": "hsdp2",
}
ZERO_KEYS = {
    "zero_stage": "zero_optimization.stage",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "offload_optimizer_device": "zero_optimization.offload_optimizer.device",
    "offload_param_device": "zero_optimization.offload_param.device",
}
UNSUPPORTED = {
    "fp8_config.backend": "products in mixed_precision",
    "dynamo_config.dynamo_backend": "eager modules, compiled with --compile",
    "megatron_lm_config": "FSDP or DeepSpeed",
    "use_cpu": "accelerators",
    M + "sp_size": "a ring, cp_size",
}


def recognizes(file: FrameworkFile) -> bool:
    """True if the keys are accelerate's."""
    keys = file.keys
    if "base_model" in keys:  # axolotl has sections of the same name
        return False
    return "distributed_type" in keys or any(key.startswith((F, D, M)) for key in keys)


def read(reading: Reading) -> Settings:
    """The run of a configuration.

    Raises:
        InputError: a value that cannot be read, that changes the price and has no counterpart, or
            processes that are not the cluster's devices.
    """
    keys = reading.keys
    harmless = {"dynamo_config.dynamo_backend": "NO", M + "sp_size": 1}
    given = keys.document
    keys.refuse({k: why for k, why in UNSUPPORTED.items() if given.get(k) != harmless.get(k, 0)})
    _check_processes(keys, reading.devices)
    kind = keys.word_or("distributed_type", "FSDP", KINDS)
    if kind == "DEEPSPEED":
        return _deepspeed(reading)
    tp, cp = (keys.count_or(f"{M}{axis}_size", 1) for axis in ("tp", "cp"))
    steps = keys.count_or("gradient_accumulation_steps", 1)
    sharding = _shard(keys, reading.devices // max(1, tp), kind, cp)
    return Settings(
        stack="accelerate",
        inputs=said(dtype=_dtype(keys)),
        strategy=said(
            tp=tp,
            cp=cp,
            sp="none",
            shard=sharding,
            recompute=_recompute(keys) if kind == "FSDP" else None,
            cpu_offload="all" if keys.flag_or(F + "fsdp_offload_params") else None,
            **({} if steps == 1 else _accumulated(keys, steps)),
        ),
    )


def _recompute(keys: FileKeys) -> str:
    return "full" if keys.flag_or(F + "fsdp_activation_checkpointing") else "none"


def _accumulated(keys: FileKeys, steps: int) -> dict[str, Any]:
    why = f"{steps} micro-batches a step: give --global-batch and --micro-batch that are so"
    keys.assume("gradient_accumulation_steps", steps, why)
    return {}


def _check_processes(keys: FileKeys, devices: int) -> None:
    processes = keys.count_if("num_processes")
    if processes is not None and processes != devices:
        given = f"{devices} devices"
        raise InputError("--cluster", given, f"{processes}: num_processes of {keys.where}")


def _deepspeed(reading: Reading) -> Settings:
    """Settings of DeepSpeed's keys, in the file or in one that it names."""
    keys = reading.keys
    named = keys.text_or(D + "deepspeed_config_file", "")
    if named:
        inner: dict[str, Any] = dict(read_framework_file(str(reading.file.folder_file(named))).keys)
        inner = {key: value for key, value in inner.items() if value != "auto"}
    else:
        inner = {
            name: keys.document[D + key] for key, name in ZERO_KEYS.items() if keys.has(D + key)
        }
    keys.has(D + "zero3_init_flag", D + "zero3_save_16bit_model", D + "gradient_clipping")
    outer = {"dtype": _dtype(keys), "recompute": None}
    within = FileKeys(inner, keys.where, keys.owner)
    return deepspeed_settings(within, reading.devices, outer)


def _dtype(keys: FileKeys) -> str | None:
    if not keys.has("mixed_precision"):
        return None
    words = {"no": "fp32", "bf16": "bf16", "fp16": "fp16", "fp8": "fp8"}
    if keys.document["mixed_precision"] is False:  # YAML's no
        return "fp32"
    return words[keys.word_or("mixed_precision", "no", tuple(words))]


def _shard(keys: FileKeys, ranks: int, kind: str, cp: int) -> str:
    """The sharding's word over so many ranks of the same weights."""
    if kind in ("NO", "MULTI_GPU"):
        return "zero0"
    replicate = keys.count_or(M + "dp_replicate_size", 1)
    sharded = keys.count_or(M + "dp_shard_size", 0)
    width = sharded * cp if sharded else ranks // replicate
    word = _strategy(keys)
    if word == "zero0" or width == 1:
        return "zero0"
    if word.startswith("hsdp") and replicate == 1:
        return "1/intra_node/intra_node" if word == "hsdp2" else "hsdp:intra_node"
    if replicate > 1:
        return f"1/{width}/{width}" if word == "zero2" else f"hsdp:{width}"
    return word


def _strategy(keys: FileKeys) -> str:
    if keys.count_or(F + "fsdp_version", 1) == 2 or keys.has(F + "fsdp_reshard_after_forward"):
        value = keys.document.get(F + "fsdp_reshard_after_forward", True)
        if isinstance(value, bool):
            return "zero3" if value else "zero2"
    name = keys.text_or(F + "fsdp_sharding_strategy", "FULL_SHARD").upper()
    if name not in STRATEGIES:
        raise keys.error(F + "fsdp_sharding_strategy", "one of " + ", ".join(list(STRATEGIES)[:5]))
    return STRATEGIES[name]
