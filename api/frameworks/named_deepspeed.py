"""DeepSpeed's file that another framework's file names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .deepspeed.read import deepspeed_settings
from .file_keys import FileKeys
from .framework import Reading
from .framework_file import read_framework_file
from .hub_names import hub_model
from .settings import Settings

MODEL_KEYS = ("base_model", "model_name_or_path")


def named_deepspeed(
    reading: Reading, key: str, inputs: Mapping[str, Any], recompute: str, micro: int
) -> Settings:
    """Settings of the file of DeepSpeed that ``key`` names, batch and formats from around it.

    Raises:
        InputError: no such file, or a key of it without a counterpart.
    """
    keys = reading.keys
    named = keys.text_or(key, "")
    path = reading.file.folder_file(named.rpartition("/")[2])
    if not path.is_file():
        path = reading.file.folder_file(named)
    inner = read_framework_file(str(path)).keys
    outer = {"micro": micro, "recompute": recompute}
    read = deepspeed_settings(FileKeys(inner, str(path), "DeepSpeed"), reading.devices, outer)
    decided = {k: v for k, v in read.inputs.items() if k != "global_batch"}
    model = next((m for name in MODEL_KEYS if (m := hub_model(keys, name)) is not None), None)
    return replace(read, model=model, inputs={**decided, **inputs})
