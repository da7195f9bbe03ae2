"""Keys of verl's YAML with its interpolations filled in.

OmegaConf's ``${a.b}`` and ``${oc.select:a.b,default}`` stand for other keys of the file, ``${.b}``
for one of the same section, ``???`` for a value to be given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..file_keys import FileKeys
from ..framework_file import DECIMAL, WHOLE, WORDS, FrameworkFile
from ..megatron_bridge.read import RENAMED

ROOT = "actor_rollout_ref."
ACTOR, MODEL = f"{ROOT}actor.", f"{ROOT}model."
MEGATRON = f"{ACTOR}megatron."
FIELDS = {
    "virtual_pipeline_model_parallel_size": "num_virtual_stages_per_pipeline_rank",
    **{
        name: name
        for name in (
            "tensor_model_parallel_size",
            "pipeline_model_parallel_size",
            "context_parallel_size",
            "expert_model_parallel_size",
            "expert_tensor_parallel_size",
            "sequence_parallel",
            "use_distributed_optimizer",
            "use_megatron_fsdp",
        )
    },
}
"""Fields of the Megatron engine, and Megatron-LM's arguments that they are."""
OVERRIDES = (
    f"{MEGATRON}override_transformer_config.",
    f"{MEGATRON}override_ddp_config.",
    f"{ACTOR}optim.override_optimizer_config.",
)
"""Sections whose fields are Megatron-LM's arguments."""
REFERENCE = re.compile(r"\$\{\s*(?:oc\.select:)?\s*(\.?[\w.]+)\s*(?:,(.*))?\}", re.DOTALL)
MOST_STEPS = 8


def recognizes(file: FrameworkFile) -> bool:
    """True if the keys are verl's."""
    return any(key.startswith(ACTOR) for key in file.keys)


def normal(file: FrameworkFile) -> Mapping[str, Any]:
    """Keys without interpolations; those of Megatron's engine as Megatron-LM's arguments."""
    keys = {key: _filled(key, value, file.keys) for key, value in file.keys.items()}
    if keys.get(f"{ACTOR}strategy") != "megatron":
        return keys
    return {_argument(key): value for key, value in keys.items()}


def _argument(key: str) -> str:
    for section in OVERRIDES:
        if key.startswith(section):
            name = key.removeprefix(section)
            return RENAMED.get(name, name)
    name = key.removeprefix(MEGATRON)
    return FIELDS.get(name, key) if name != key else key


def _filled(key: str, value: Any, keys: Mapping[str, Any]) -> Any:
    """A value whose reference, if it is one, is followed; a text where it leads nowhere."""
    for _ in range(MOST_STEPS):
        if value == "???":
            return None
        found = REFERENCE.fullmatch(value.strip()) if isinstance(value, str) else None
        if found is None:
            return value
        name, default = found.groups()
        if name.startswith("."):
            name = key.rpartition(".")[0] + name
        if name in keys:
            key, value = name, keys[name]
        elif default is not None:
            value = _scalar(default.strip())
        else:
            return value
    return value


def _scalar(text: str) -> Any:
    if WHOLE.fullmatch(text):
        return int(text)
    if DECIMAL.fullmatch(text):
        return float(text)
    return WORDS.get(text.casefold(), text.strip("\"'"))


def mini_batch(keys: FileKeys) -> int:
    """Samples of an optimizer's step: prompts times answers to each."""
    prompts = keys.count_or(f"{ACTOR}ppo_mini_batch_size", 256, note=True)
    return prompts * keys.count_or(f"{ROOT}rollout.n", 1)
