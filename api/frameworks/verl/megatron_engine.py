"""The actor under verl's Megatron engine, by Megatron-LM's arguments.

Names and defaults: verl verl/trainer/config/engine/megatron.yaml, optim/megatron.yaml and
verl/utils/megatron_utils.py (make_ddp_config) at 0.9.1.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ....datasets.models.load import presets
from ....spec.model.experts import experts_of
from ..file_keys import FileKeys
from ..framework import Reading
from ..hub_names import hub_model
from ..megatron import read as megatron
from ..settings import Settings
from .normal import ACTOR, MEGATRON, MODEL, mini_batch

DEFAULTS = {
    "sequence_parallel": True,
    "use_distributed_optimizer": True,
    "attention_backend": "flash",
    "attention_dropout": 0.0,
    "hidden_dropout": 0.0,
}
"""What the engine says where the file does not; dropouts are those of the model's config.json."""
STATES = ("main_grads_dtype", "exp_avg_dtype")
UNSUPPORTED = {
    f"{MEGATRON}dynamic_context_parallel": "a ring of one size",
    f"{MEGATRON}qat.enable": "weights as they are",
    f"{MODEL}lora.rank": "training of all weights: adapters with --trainable lora",
    f"{MODEL}lora_rank": "training of all weights: adapters with --trainable lora",
}


def megatron_settings(reading: Reading, tokens: int) -> Settings:
    """The actor's update in the words of plan's flags.

    Args:
        reading: keys under Megatron-LM's names.
        tokens: of a sample.

    Raises:
        InputError: as Megatron-LM's arguments.
    """
    keys = reading.keys
    keys.refuse(UNSUPPORTED)
    split = {
        axis: keys.count_or(f"{name}_size", 1) or 1
        for axis, name in (
            ("tp", "tensor_model_parallel"),
            ("pp", "pipeline_model_parallel"),
            ("cp", "context_parallel"),
        )
    }
    ranks = split["tp"] * split["pp"] * split["cp"]
    batch, dp = mini_batch(keys), max(1, reading.devices // ranks)
    arguments: dict[str, Any] = {
        "micro_batch_size": _micro_batch(keys, batch, dp, tokens, split["cp"]),
        "global_batch_size": batch,
        "seq_length": tokens,
        **_formats(keys),
    }
    if keys.flag_or(f"{MODEL}use_fused_kernels"):
        arguments |= {"cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": "linear"}
    missing = {k: v for k, v in DEFAULTS.items() if keys.document.get(k) is None}
    keys.document = {**keys.document, **missing, **arguments, **_modules(keys)}
    model = hub_model(keys, f"{MODEL}path")
    settings = megatron.read(reading)
    strategy = {**settings.strategy, **_experts(keys, model, split["tp"])}
    return replace(settings, model=model, strategy=strategy)


def _micro_batch(keys: FileKeys, batch: int, dp: int, tokens: int, ranks: int) -> int:
    from .read import micro_batch

    return micro_batch(keys, batch, dp, tokens, ranks)


def _formats(keys: FileKeys) -> dict[str, Any]:
    """Arguments of the number formats and the optimizer."""
    words = ("bfloat16", "float16")
    half = keys.word_or(f"{MEGATRON}dtype", "bfloat16", words) == "float16"
    found: dict[str, Any] = {"fp16" if half else "bf16": True}
    if keys.has(f"{ACTOR}optim.optimizer"):
        found["optimizer"] = keys.text(f"{ACTOR}optim.optimizer")
    if keys.has("grad_reduce_in_fp32"):
        found["grad_reduce_in_bf16"] = not keys.flag("grad_reduce_in_fp32")
    if keys.flag_or(f"{ACTOR}optim.use_precision_aware_optimizer"):
        moments = [keys.text_or(f"{ACTOR}optim.{name}_dtype", "fp32")
                   for name in ("exp_avg", "exp_avg_sq")]  # fmt: skip
        found["exp_avg_sq_dtype"] = None if moments[0] == moments[1] else moments[1]
        for name in STATES:
            found[name] = keys.text_or(f"{ACTOR}optim.{name}", "fp32")
    return found


def _modules(keys: FileKeys) -> dict[str, Any]:
    """Modules to recompute as Megatron-LM's text of them."""
    modules = keys.document.get("recompute_modules")
    return {"recompute_modules": " ".join(modules)} if isinstance(modules, list) else {}


def _experts(keys: FileKeys, model: str | None, tp: int) -> dict[str, int]:
    """Degrees of experts, where the model that is named has some or they are above 1."""
    ep = keys.count_or("expert_model_parallel_size", 1) or 1
    etp = keys.count_if("expert_tensor_parallel_size") or tp
    if model is not None:
        has_experts = any(experts_of(layer) for layer in presets()[model].model.kinds())
        return {"ep": ep, "etp": etp} if has_experts else {}
    return {"ep": ep, "etp": etp} if ep > 1 else {}
