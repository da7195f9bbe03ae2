"""Read DeepSpeed's JSON, alone or named by arguments of transformers' Trainer.

Names and defaults: deepspeed/runtime/config.py, deepspeed/runtime/zero/config.py (deepspeed.ai,
DeepSpeed Configuration JSON), and transformers' TrainingArguments.
"""

from __future__ import annotations

from typing import Any

from ....spec.errors import InputError
from ..file_keys import FileKeys
from ..framework import Reading
from ..framework_file import FrameworkFile, read_framework_file
from ..settings import Settings, said
from ..trainer_words import optimizer_word

Z = "zero_optimization."
MARKS = (
    "zero_optimization.stage",
    "train_micro_batch_size_per_gpu",
    "train_batch_size",
    "gradient_accumulation_steps",
    "bf16.enabled",
    "fp16.enabled",
)
UNSUPPORTED = {
    Z + "zero_quantized_weights": "weights gathered in their own format",
    Z + "zero_quantized_gradients": "gradients reduced in their own format",
    Z + "zeropp_loco_param": "gradients reduced in their own format",
    Z + "offload_param.nvme_path": "parameters in the host's memory",
    "compression_training": "weights as they are",
    "sparse_attention": "dense attention",
    "progressive_layer_drop.enabled": "all layers in each step",
    "sparse_gradients": "dense gradients",
    "expert_parallel.autoep_size": "experts as the model's code places them (--ep)",
}
"""Keys that change the price and that no plan here says, and what does."""
OPTIMIZERS = {
    "adam": "adamw",
    "adamw": "adamw",
    "fusedadam": "adamw",
    "deepspeedcpuadam": "adamw",
    "lion": "lion",
    "fusedlion": "lion",
    "muon": "muon",
    "sgd": "sgd",
}


def recognizes(file: FrameworkFile) -> bool:
    """True if the keys are DeepSpeed's, or Trainer's with a file of DeepSpeed's."""
    keys = file.keys
    if "per_device_train_batch_size" in keys and "finetuning_type" not in keys:
        return any(key == "deepspeed" or key.startswith("deepspeed.") for key in keys)
    is_own = sum(key in keys for key in MARKS) >= 2 or MARKS[0] in keys
    others = ("distributed_type", "base_model", "finetuning_type")
    return is_own and not any(key in keys for key in others)


def read(reading: Reading) -> Settings:
    """The run of a configuration.

    Raises:
        InputError: a value that cannot be read, or that changes the price and has no counterpart.
    """
    keys = reading.keys
    trainer = _trainer_settings(reading) if keys.has("per_device_train_batch_size") else {}
    return deepspeed_settings(keys, reading.devices, trainer)


def _trainer_settings(reading: Reading) -> dict[str, Any]:
    """Batch, formats and recomputation of Trainer's arguments, DeepSpeed's keys joined."""
    keys = reading.keys
    if isinstance(keys.document.get("deepspeed"), str):
        keys.has("deepspeed")
        named = reading.file.folder_file(str(keys.document["deepspeed"]))
        inner = read_framework_file(str(named)).keys
    else:
        inner = {
            key.removeprefix("deepspeed."): value
            for key, value in keys.document.items()
            if key.startswith("deepspeed.")
        }
    settings = trainer_arguments(keys)
    own = {key: value for key, value in inner.items() if value != "auto"}
    keys.document = {
        **{k: v for k, v in keys.document.items() if not k.startswith("deepspeed.")},
        **{key: value for key, value in own.items() if key not in keys.document},
    }
    return settings


def trainer_arguments(keys: FileKeys) -> dict[str, Any]:
    """What Trainer's arguments decide, in flags' words."""
    recompute = "full" if keys.flag_or("gradient_checkpointing") else "none"
    formats = [word for word in ("bf16", "fp16") if keys.flag_or(word)]
    return {
        "micro": keys.count("per_device_train_batch_size"),
        "accumulation": keys.count_or("gradient_accumulation_steps", 1),
        "recompute": recompute,
        "optimizer": optimizer_word(keys, "optim", "adamw_torch"),
        "dtype": formats[0] if formats else None,
    }


def deepspeed_settings(keys: FileKeys, devices: int, outer: dict[str, Any]) -> Settings:
    """The run of DeepSpeed's keys.

    Args:
        keys: DeepSpeed's.
        devices: of the run.
        outer: what the arguments around them decide: micro, accumulation, recompute, optimizer,
            dtype.
    """
    keys.refuse(UNSUPPORTED)
    tp = keys.count_or("tensor_parallel.autotp_size", 1) or 1
    ulysses = keys.count_or("sequence_parallel_size", 1) or 1
    if tp > 1 and ulysses > 1:
        raise keys.unsupported("sequence_parallel_size", "1 beside autotp_size")
    replicas = max(1, devices // tp)
    micro, batch = _batch(keys, devices // max(tp, ulysses, 1), outer)
    return Settings(
        stack="deepspeed",
        inputs=said(
            global_batch=batch,
            dtype=_dtype(keys) or outer.get("dtype"),
            optimizer=_optimizer(keys) or outer.get("optimizer"),
            communication_dtype=_communication(keys),
        ),
        strategy=said(
            tp=max(tp, ulysses),
            sp="ulysses" if ulysses > 1 else "none",
            micro_batch=micro,
            shard=_shard(keys, replicas),
            recompute=outer.get("recompute"),
            cpu_offload=_offload(keys),
        ),
    )


def _batch(keys: FileKeys, dp: int, outer: dict[str, Any]) -> tuple[int | None, int | None]:
    """Samples of a micro-batch and of a step; any two of three keys decide the third."""
    micro = keys.count_if("train_micro_batch_size_per_gpu") or outer.get("micro")
    total = keys.count_if("train_batch_size")
    steps = keys.count_if("gradient_accumulation_steps") or outer.get("accumulation")
    if micro is not None and steps is None and total is not None:
        return micro, total
    if micro is not None:
        batch = micro * (steps or 1) * dp
        if total not in (None, batch):
            allowed = f"{micro} x {steps or 1} x {dp} data-parallel ranks = {batch}"
            raise keys.error("train_batch_size", allowed, batch)
        return micro, batch
    if total is not None and steps is not None:
        if total % (steps * dp):
            raise keys.error("train_batch_size", f"a multiple of {steps} x {dp} ranks")
        return total // (steps * dp), total
    return None, total


def _dtype(keys: FileKeys) -> str | None:
    for section, word in (("bf16", "bf16"), ("bfloat16", "bf16"), ("fp16", "fp16")):
        if keys.flag_or(f"{section}.enabled"):
            return word
    said_otherwise = keys.has("bf16.enabled", "fp16.enabled")
    return "fp32" if said_otherwise else None


def _communication(keys: FileKeys) -> str | None:
    words = ("fp32", "bf16", "fp16")
    key = "communication_data_type"
    return keys.word_or(key, "fp32", words) if keys.has(key) else None


def _optimizer(keys: FileKeys) -> str | None:
    if not keys.has("optimizer.type"):
        return None
    name = keys.text_or("optimizer.type", "").casefold()
    if name not in OPTIMIZERS:
        raise keys.error("optimizer.type", "Adam, AdamW, Lion, Muon or SGD")
    return OPTIMIZERS[name]


def _shard(keys: FileKeys, replicas: int) -> str:
    stage = keys.count_or(Z + "stage", 0)
    if stage > 3:
        raise keys.error(Z + "stage", "0, 1, 2 or 3", 3)
    pair = keys.count_or(Z + "zero_hpz_partition_size", 1)
    group = keys.count_or(Z + "mics_shard_size", 0)
    if stage == 3 and group > 1:
        return f"hsdp:{group}" if group < replicas else "zero3"
    if stage == 3 and 1 < pair < replicas:
        return f"hpz:{pair}"
    return f"zero{stage}" if replicas > 1 else "zero0"


def _offload(keys: FileKeys) -> str | None:
    devices = ("none", "cpu", "nvme")
    parameters = keys.word_or(Z + "offload_param.device", "none", devices)
    optimizer = keys.word_or(Z + "offload_optimizer.device", "none", devices)
    if keys.flag_or(Z + "cpu_offload"):  # the name of releases before 0.3.16
        optimizer = "cpu"
    for name, word in (("offload_param", parameters), ("offload_optimizer", optimizer)):
        if word == "nvme":
            raise keys.unsupported(f"{Z}{name}.device", "cpu or none")
    keys.has(Z + "offload_optimizer.ratio")
    if parameters == "cpu":
        if optimizer != "cpu":
            key = Z + "offload_param.device"
            allowed = "offload_optimizer.device cpu beside it"
            raise InputError(f"{keys.where}: {key}", "cpu", allowed)
        return "all"
    return "optimizer" if optimizer == "cpu" else None
