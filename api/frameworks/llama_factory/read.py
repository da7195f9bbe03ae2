"""Read LLaMA-Factory's YAML.

Names and defaults: LLaMA-Factory src/llamafactory/hparams and transformers' TrainingArguments.
"""

from __future__ import annotations

from ..file_keys import FileKeys
from ..framework import Reading
from ..framework_file import FrameworkFile
from ..hub_names import hub_model
from ..named_deepspeed import named_deepspeed
from ..settings import Settings, said
from ..trainer_words import optimizer_word

STAGES = ("pt", "sft", "rm", "ppo", "dpo", "kto")
UNSUPPORTED = {
    "use_galore": "states of all weights",
    "use_apollo": "states of all weights",
    "use_badam": "training of all layers at once",
    "use_adam_mini": "moments of each weight",
    "use_llama_pro": "training of all layers, or of adapters",
    "use_muon": "optim",
    "mixture_of_depths": "all layers for each token",
    "use_kt": "experts on the device",
    "use_asft_loss": "a step without a reference model",
    "use_eaft_loss": "the usual loss",
}


def recognizes(file: FrameworkFile) -> bool:
    """True if the keys are LLaMA-Factory's."""
    return "model_name_or_path" in file.keys and "finetuning_type" in file.keys


def read(reading: Reading) -> Settings:
    """The run of a configuration.

    Raises:
        InputError: a value that cannot be read, or that changes the price and has no counterpart.
    """
    keys = reading.keys
    keys.refuse(UNSUPPORTED)
    if keys.word_or("stage", "sft", STAGES) not in ("pt", "sft"):
        raise keys.unsupported("stage", "pt or sft")
    micro = keys.count_or("per_device_train_batch_size", 8, note=True)
    steps = keys.count_or("gradient_accumulation_steps", 1)
    inputs = said(
        global_batch=micro * steps * reading.devices,
        seq_len=keys.count_or("cutoff_len", 2048, note=True),
        task="sft" if keys.document.get("stage") != "pt" else "pretrain",
        dtype=_dtype(keys),
        optimizer=optimizer_word(keys, "optim", "adamw_torch"),
        trainable=_trainable(keys),
        **_pure_bf16(keys),
    )
    recompute = "none" if keys.flag_or("disable_gradient_checkpointing") else "full"
    keys.has("gradient_checkpointing")
    if keys.has("deepspeed"):
        return named_deepspeed(reading, "deepspeed", inputs, recompute, micro)
    return Settings(
        stack="transformers",
        model=hub_model(keys, "model_name_or_path"),
        inputs=inputs,
        strategy=said(
            micro_batch=micro,
            recompute=recompute,
            shard="zero3" if "full_shard" in keys.text_or("fsdp", "") else "zero0",
        ),
    )


def _dtype(keys: FileKeys) -> str | None:
    if keys.flag_or("fp8"):
        return "fp8"
    return next((word for word in ("bf16", "fp16") if keys.flag_or(word)), None)


def _pure_bf16(keys: FileKeys) -> dict[str, str]:
    if not keys.flag_or("pure_bf16"):
        return {}
    return {
        "dtype": "bf16", "grad_dtype": "bf16", "master_dtype": "none", "moment_dtype": "bf16"
    }  # fmt: skip


def _trainable(keys: FileKeys) -> str:
    kind = keys.text_or("finetuning_type", "lora")
    if kind == "full":
        return "full"
    if kind != "lora":
        raise keys.unsupported("finetuning_type", "full or lora")
    rank = keys.count_or("lora_rank", 8)
    words = [f"r={rank}", f"alpha={keys.count_or('lora_alpha', 2 * rank)}"]
    targets = keys.text_or("lora_target", "all")
    names = "all-linear" if targets == "all" else targets.replace(" ", "")
    words.append(f"target_modules={names}")
    bits = {"4": "nf4", "8": "int8"}.get(keys.text_or("quantization_bit", ""))
    keys.has("quantization_method", "double_quantization")
    if bits:
        words.append(f"base_dtype={bits}")
    return "lora:" + ",".join(words)
