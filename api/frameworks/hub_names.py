"""Presets by the names that models have on the hub."""

from __future__ import annotations

import re

from ...datasets.models.load import presets
from .file_keys import FileKeys

ENDINGS = re.compile(
    r"-(instruct|base|hf|chat|it|text|bf16|fp8|bnb-4bit|unsloth|v\d(\.\d)?|\d{4})(?=-|$)"
)


def hub_preset(name: str) -> str | None:
    """The preset of a hub name, or None.

    Owner and endings such as ``-Instruct`` count for nothing.
    """
    short = name.rpartition("/")[2].casefold().removeprefix("meta-")
    short = re.sub(r"^(llama)(\d)", r"\1-\2", short)
    while (stripped := ENDINGS.sub("", short)) != short:
        short = stripped
    known = {preset.casefold(): preset for preset in presets()}
    return known.get(short)


def hub_model(keys: FileKeys, key: str) -> str | None:
    """The preset that a key names, noted as an assumption; None if there is none."""
    name = keys.text_or(key, "")
    preset = hub_preset(name) if name else None
    if preset is not None:
        keys.assume("model", preset, f"the preset of {name}")
    return preset
