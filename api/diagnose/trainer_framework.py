"""Arguments of transformers' Trainer as its log prints them, with or without DeepSpeed."""

from __future__ import annotations

from ..frameworks.deepspeed.read import read as read_deepspeed
from ..frameworks.deepspeed.read import trainer_arguments
from ..frameworks.framework import Framework, Reading
from ..frameworks.settings import Settings, said

FULL_SHARD = "full_shard"


def _read(reading: Reading) -> Settings:
    """The run of the arguments.

    Raises:
        InputError: a value that cannot be read, or that changes the price and has no counterpart.
    """
    keys = reading.keys
    if keys.has("deepspeed"):
        return read_deepspeed(reading)
    found = trainer_arguments(keys)
    micro = found["micro"]
    return Settings(
        stack="transformers",
        inputs=said(
            global_batch=micro * found["accumulation"] * reading.devices,
            dtype=found["dtype"],
            optimizer=found["optimizer"],
        ),
        strategy=said(
            micro_batch=micro,
            recompute=found["recompute"],
            shard="zero3" if FULL_SHARD in keys.text_or("fsdp", "") else "zero0",
        ),
    )


TRAINER = Framework(
    name="trainer",
    title="transformers' Trainer",
    stack="transformers",
    recognizes=lambda file: "per_device_train_batch_size" in file.keys,
    read=_read,
    narrow=lambda stack: stack,
    says_model=lambda model: False,
)
