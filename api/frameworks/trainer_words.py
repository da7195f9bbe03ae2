"""Words of transformers' Trainer that several frameworks take over."""

from __future__ import annotations

from .file_keys import FileKeys

OPTIMIZERS = {
    "adamw_torch": "adamw",
    "adamw_torch_fused": "adamw",
    "adamw_hf": "adamw",
    "adamw_bnb_8bit": "adamw8bit",
    "adamw_8bit": "adamw8bit",
    "paged_adamw_8bit": "adamw8bit",
    "paged_adamw_32bit": "adamw",
    "lion_32bit": "lion",
    "adafactor": "adafactor",
    "muon": "muon",
    "sgd": "sgd",
}
"""Names of TrainingArguments.optim, and ours. Paged ones spill to the host only under pressure."""


def optimizer_word(keys: FileKeys, key: str, default: str) -> str:
    """The optimizer of a key.

    Raises:
        InputError: one that is not priced here.
    """
    name = keys.text_or(key, default)
    if name not in OPTIMIZERS:
        raise keys.error(key, "one of " + ", ".join(OPTIMIZERS))
    return OPTIMIZERS[name]
