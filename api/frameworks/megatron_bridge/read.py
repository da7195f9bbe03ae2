"""Read Megatron Bridge's YAML.

Names and defaults: Megatron-Bridge src/megatron/bridge/training/config.py, mixed_precision.py,
models/gpt_provider.py and docs/megatron-lm-to-megatron-bridge.md at 0.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....spec.errors import InputError
from ..framework import Reading
from ..framework_file import FrameworkFile
from ..megatron import read as megatron
from ..settings import Settings

SECTIONS = ("model", "optimizer", "ddp", "train", "comm_overlap", "mixed_precision")
"""Sections whose fields are Megatron-LM's arguments; of two, the later one is applied last."""
RENAMED = {
    "virtual_pipeline_model_parallel_size": "num_virtual_stages_per_pipeline_rank",
    "num_layers_in_first_pipeline_stage": "decoder_first_pipeline_num_layers",
    "num_layers_in_last_pipeline_stage": "decoder_last_pipeline_num_layers",
    "fp8": "fp8_format",
    "fp4": "fp4_format",
    "num_moe_experts": "num_experts",
}
PRECISIONS: dict[str, dict[str, Any]] = {
    "bf16_mixed": {"bf16": True},
    "fp16_mixed": {"fp16": True},
    "bf16_with_fp8_delayed_scaling_mixed": {"bf16": True, "fp8_recipe": "delayed"},
    "bf16_with_fp8_current_scaling_mixed": {"bf16": True, "fp8_recipe": "tensorwise"},
    "bf16_with_fp8_subchannel_scaling_mixed": {"bf16": True, "fp8_recipe": "blockwise"},
    "bf16_with_mxfp8_mixed": {"bf16": True, "fp8_recipe": "mxfp8"},
}
"""Recipes of mixed precision by name; fp16_with_… ones have no counterpart."""
BACKENDS = {1: "flash", 2: "fused", 3: "unfused", 4: "local", 5: "auto"}
"""Members of megatron.core.transformer.enums.AttnBackend, as a saved file numbers them."""
GATED = ("silu", "swiglu")
RELU2 = "squared_relu"
OVERRIDES = {"model.seq_length", "train.global_batch_size"}
"""Keys of a file that overrides a recipe, and leaves its degrees."""
SHARDED = {
    "dist.use_megatron_fsdp": "states as Megatron-LM's distributed optimizer lays them out",
    "dist.use_torch_fsdp2": "states as Megatron-LM's distributed optimizer lays them out",
}
RECIPE_FORMAT = "bf16_mixed"
FORMATS = ("mixed_precision", "mixed_precision.bf16", "mixed_precision.fp16", "model.bf16",
           "model.fp16", "model.params_dtype")  # fmt: skip
MARKS = tuple(f"model.{mark}" for mark in megatron.MARKS)


def recognizes(file: FrameworkFile) -> bool:
    """True if the keys are Megatron Bridge's."""
    keys = file.keys
    if not any(key.startswith(("train.", "ddp.", "dataset.")) for key in keys):
        return False
    if OVERRIDES.issubset(keys):
        return True
    return any(mark in keys for mark in MARKS) or "ConfigContainer" in str(keys.get("_target_"))


def normal(file: FrameworkFile) -> Mapping[str, Any]:
    """Fields under the names of Megatron-LM's arguments; keys of other sections as they are.

    Raises:
        InputError: a recipe of mixed precision, or an activation, without a counterpart.
    """
    given = {key: value for key, value in file.keys.items() if value is not None}
    keys: dict[str, Any] = {}
    for section in SECTIONS:
        for key, value in given.items():
            if key.startswith(f"{section}."):
                name = key.removeprefix(f"{section}.")
                keys[RENAMED.get(name, name)] = _plain(name, value)
    keys |= {k: v for k, v in given.items() if k.partition(".")[0] not in SECTIONS}
    keys |= _precision(given, file.path)
    if _leaves_precision(given):
        keys["bf16"] = True
    keys |= _positions(given)
    keys.pop("share_embeddings_and_output_weights", None)
    tied = given.get("model.share_embeddings_and_output_weights", True)
    keys["untie_embeddings_and_output_weights"] = tied is False
    keys.setdefault("cross_entropy_loss_fusion", True)
    sharded = ("ddp.use_distributed_optimizer", "optimizer.use_distributed_optimizer")
    if any(key in given for key in sharded):  # one of them sets the other
        keys["use_distributed_optimizer"] = any(given.get(key) is True for key in sharded)
    return _activation(keys, file.path) | _backend(keys)


def _plain(name: str, value: Any) -> Any:
    """A list as Megatron-LM's text of it."""
    if not isinstance(value, list):
        return value
    if name == "moe_layer_freq" and set(map(str, value)) <= {"0", "1"} and value == sorted(value):
        zeros = sum(not item for item in value)
        runs = [f"[{bit}]*{n}" for bit, n in ((0, zeros), (1, len(value) - zeros)) if n]
        return "(" + "+".join(runs) + ")"
    return " ".join(map(str, value))


def _leaves_precision(given: Mapping[str, Any]) -> bool:
    """True for overrides of a recipe that leave its precision, which is bf16_mixed."""
    word = given.get("mixed_precision.dtype")
    is_recipe = "model.num_layers" not in given
    return is_recipe and word in (None, "bf16") and not any(key in given for key in FORMATS)


def _precision(given: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Formats of the recipe of mixed precision, and of gradients."""
    name = given.get("mixed_precision")
    found: dict[str, Any] = {}
    if isinstance(name, str):
        if name not in PRECISIONS:
            allowed = "one of " + ", ".join(PRECISIONS)
            raise InputError(f"{path}: mixed_precision", name, allowed)
        found = dict(PRECISIONS[name])
        if "fp8_recipe" in found:
            found["fp8_format"] = "hybrid"
    whole = given.get("mixed_precision.grad_reduce_in_fp32")
    if whole is None and not any(key.startswith("mixed_precision") for key in given):
        whole = given.get("ddp.grad_reduce_in_fp32")
    if whole is False and not given.get("mixed_precision.fp16"):
        found["grad_reduce_in_bf16"] = True
    return found


def _positions(given: Mapping[str, Any]) -> dict[str, Any]:
    """Tokens of a sample, and positions that the model has."""
    longest = given.get("model.seq_length")
    tokens = next(
        (given[k] for k in ("dataset.sequence_length", "dataset.seq_length") if k in given),
        longest,
    )
    found = {"seq_length": tokens, "max_position_embeddings": longest or tokens}
    return {name: value for name, value in found.items() if value is not None}


def _activation(keys: dict[str, Any], path: str) -> dict[str, Any]:
    """Keys with the activation's function as an argument.

    Raises:
        InputError: a function that Megatron-LM has no argument for.
    """
    name = str(keys.pop("activation_func._target_", "")).rpartition(".")[2]
    keys.pop("activation_func._call_", None)
    gated = keys.get("gated_linear_unit") is True
    if name == RELU2 and not gated:
        keys["squared_relu"] = True
    elif name and name not in (GATED if gated else ("gelu", "fast_gelu")):
        allowed = "silu with gated_linear_unit, gelu or squared_relu without"
        raise InputError(f"{path}: model.activation_func", name, f"only {allowed}")
    return keys


def _backend(keys: dict[str, Any]) -> dict[str, Any]:
    """The attention's backend where a saved file has it as a member of an enumeration."""
    number = keys.pop("attention_backend._args_", None)
    keys = {k: v for k, v in keys.items() if not k.startswith("attention_backend.")}
    if number is not None:
        found = BACKENDS.get(int(number)) if str(number).isdecimal() else None
        keys["attention_backend"] = found or str(number)
    return keys


def read(reading: Reading) -> Settings:
    """The run of a configuration.

    Raises:
        InputError: a value that cannot be read, or that changes the price and has no counterpart.
    """
    keys = reading.keys
    for key in keys.document:
        if key.startswith("peft.") and keys.document[key] is not None:
            raise keys.unsupported(key, "training of all weights: adapters with --trainable lora")
    keys.refuse(SHARDED)
    keys.has("_target_")
    if "bf16" in keys.document and not any(key in reading.file.keys for key in FORMATS):
        keys.assume("mixed_precision", RECIPE_FORMAT, "that of the recipe, which the file leaves")
    return megatron.read(reading)
