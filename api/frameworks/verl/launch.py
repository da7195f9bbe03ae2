"""The command that starts verl's trainer under a file of overrides."""

from __future__ import annotations

from ..exportable import ExportablePlan

CONFIG_FILE = "verl.yaml"
MEGATRON = "megatron"


def launch(plan: ExportablePlan) -> str:
    """A trainer's line; data, model and rollout are the user's.

    The file lies beside the trainer's own configuration, which it builds on.
    """
    return (
        f"python3 -m verl.trainer.main_ppo --config-dir . --config-name {CONFIG_FILE} "
        "actor_rollout_ref.model.path=MODEL data.train_files=DATA"
    )


def uses_megatron(plan: ExportablePlan) -> bool:
    """True if the plan's stack is Megatron-LM's, not FSDP's."""
    return plan.stack.name.partition(":")[0] == MEGATRON
