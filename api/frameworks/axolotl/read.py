"""Read axolotl's YAML.

Names and defaults: axolotl src/axolotl/utils/schemas/config.py at 0.13.
"""

from __future__ import annotations

from ..file_keys import FileKeys
from ..framework import Reading
from ..framework_file import FrameworkFile
from ..hub_names import hub_model
from ..named_deepspeed import named_deepspeed
from ..settings import Settings, said
from ..trainer_words import optimizer_word

UNSUPPORTED = {
    "relora": "adapters without restarts",
    "relora_steps": "adapters without restarts",
    "qat": "weights as they are",
    "gptq": "weights in 4 bits as nf4",
    "activation_offloading": "activations on the device",
    "unfrozen_parameters": "training of all layers, or of adapters",
    "rl": "supervised steps",
    "ebft": "supervised steps",
    "trl.use_vllm": "supervised steps",
    "lisa_n_layers": "training of all layers, or of adapters",
    "diffusion": "causal attention",
    "reward_model": "a head over the vocabulary",
    "process_reward_model": "a head over the vocabulary",
    "ring_attn_func": "the ring of context_parallel_size",
    "expert_parallel_size": "experts whole on each rank",
}


def recognizes(file: FrameworkFile) -> bool:
    """True if the keys are axolotl's."""
    return {"base_model", "micro_batch_size", "sequence_len"} <= set(file.keys)


def read(reading: Reading) -> Settings:
    """The run of a configuration.

    Raises:
        InputError: a value that cannot be read, or that changes the price and has no counterpart.
    """
    keys = reading.keys
    keys.refuse(UNSUPPORTED)
    tp, cp = keys.count_or("tensor_parallel_size", 1), keys.count_or("context_parallel_size", 1)
    micro = keys.count("micro_batch_size")
    steps = keys.count_or("gradient_accumulation_steps", 1)
    dp = max(1, reading.devices // max(1, tp * cp))
    inputs = said(
        global_batch=micro * steps * dp,
        seq_len=keys.count("sequence_len"),
        task="sft",
        dtype=_dtype(keys),
        optimizer=optimizer_word(keys, "optimizer", "adamw_torch_fused"),
        trainable=_trainable(keys),
    )
    recompute = "full" if keys.text_or("gradient_checkpointing", "False") != "False" else "none"
    if keys.has("deepspeed"):
        return named_deepspeed(reading, "deepspeed", inputs, recompute, micro)
    is_fsdp = bool(keys.has("fsdp", "fsdp_config.fsdp_version", "fsdp_version"))
    is_fsdp |= any(key.startswith("fsdp_config.") for key in keys.document)
    return Settings(
        stack="accelerate" if max(tp, cp) > 1 else "transformers",
        model=hub_model(keys, "base_model"),
        inputs=inputs,
        strategy=said(
            tp=tp,
            cp=cp,
            micro_batch=micro,
            shard=_shard(keys, reading.devices // max(1, tp)) if is_fsdp else "zero0",
            recompute="full" if _checkpoints(keys) else recompute,
            cpu_offload="all" if _offloads(keys) else None,
        ),
    )


def _checkpoints(keys: FileKeys) -> bool:
    names = ("fsdp_config.activation_checkpointing", "fsdp_config.fsdp_activation_checkpointing")
    return any(keys.flag_or(name) for name in names)


def _offloads(keys: FileKeys) -> bool:
    names = ("fsdp_config.offload_params", "fsdp_config.fsdp_offload_params")
    return any(keys.flag_or(name) for name in names)


def _shard(keys: FileKeys, ranks: int) -> str:
    names = ("fsdp_config.reshard_after_forward", "fsdp_config.fsdp_reshard_after_forward")
    keeps = any(keys.has(name) and keys.document[name] is False for name in names)
    sharded = keys.count_or("dp_shard_size", 0)
    if sharded > 1 and sharded < ranks:
        return f"hsdp:{sharded}"
    return "zero2" if keeps else "zero3"


def _dtype(keys: FileKeys) -> str | None:
    if keys.flag_or("fp8"):
        return "fp8"
    for word in ("bf16", "fp16"):
        if keys.text_or(word, "false").casefold() in ("true", "full"):
            return word
    return None


def _trainable(keys: FileKeys) -> str:
    kind = keys.text_or("adapter", "")
    if kind not in ("lora", "qlora"):
        if kind:
            raise keys.unsupported("adapter", "lora or qlora, or training of all weights")
        return "full"
    rank, alpha = keys.count_or("lora_r", 8), keys.count_or("lora_alpha", 16)
    words = [f"r={rank}", f"alpha={alpha}"]
    targets = keys.document.get("lora_target_modules")
    keys.has("lora_target_modules")
    if keys.flag_or("lora_target_linear") or targets == "all-linear":
        words.append("target_modules=all-linear")
    elif isinstance(targets, list):
        words.append("target_modules=" + ",".join(map(str, targets)))
    narrow = {"load_in_4bit": "nf4", "load_in_8bit": "int8"}
    words += [f"base_dtype={w}" for key, w in narrow.items() if keys.flag_or(key)][:1]
    return "lora:" + ",".join(words)
