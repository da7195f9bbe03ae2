"""Conversions of checkpoints before a run goes on under another plan."""

from __future__ import annotations

from collections.abc import Mapping

ANY = "*"
CONVERTED: Mapping[str, Mapping[str, str]] = {
    "megatron": {
        "tp": "unless saved as torch_dist, which is split again when loaded",
        "pp": "unless saved as torch_dist, which is split again when loaded",
        "ep": "unless saved as torch_dist, which is split again when loaded",
        "schedule": "unless saved as torch_dist: chunks of a stage are files of their own",
        "shard": "the optimizer's states, unless saved as torch_dist and fully reshardable",
    },
    "torchtitan": {},
    "deepspeed": dict.fromkeys(
        ("tp", "pp", "cp", "ep", "shard"), "to a universal checkpoint (ds_to_universal.py)"
    ),
    "accelerate": {"shard": "between a whole state dict and a sharded one"},
    ANY: {"tp": "weights are split otherwise", "pp": "stages hold other layers",
          "ep": "experts lie elsewhere", "shard": "states are split otherwise"},
}  # fmt: skip
"""Axes whose change asks for a conversion, by framework, and when.

Sources: Megatron-LM docs (dist_checkpointing: torch_dist loads under another tensor or pipeline
parallelism; --dist-ckpt-optim-fully-reshardable), torchtitan docs/checkpoint.md (torch distributed
checkpoint reshards on load), DeepSpeed's Universal Checkpointing tutorial, accelerate's FSDP guide
(SHARDED_STATE_DICT). The executor here reshards on load, as torch's does.
"""
RESHARDS = ("shardwright",)
"""Stacks whose checkpoints load under any plan."""


def conversion(framework: str | None, stack: str, axes: tuple[str, ...]) -> str:
    """The conversion that a change of axes asks for; empty if none."""
    if framework is None and stack.partition(":")[0] in RESHARDS:
        return ""
    table = CONVERTED.get(framework or ANY, CONVERTED[ANY])
    return next((table[axis] for axis in axes if axis in table), "")
