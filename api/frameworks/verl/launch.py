"""The command that starts verl's trainer under a file of overrides."""

from __future__ import annotations

from ..exportable import ExportablePlan

CONFIG_FILE = "verl.yaml"
MEGATRON = "megatron"
RAY_HEAD = "ray start --head --port 6379"


def launch(plan: ExportablePlan) -> str:
    """A trainer's line; data, model and rollout are the user's.

    The file lies beside the trainer's own configuration, which it builds on. Of several nodes the
    first starts Ray's head and, once the others have joined it (``ray start --address``), the
    trainer, which starts the ranks of all.
    """
    head = "" if plan.nodes == 1 else f"{RAY_HEAD} && "
    return (
        f"{head}python3 -m verl.trainer.main_ppo --config-dir . --config-name {CONFIG_FILE} "
        "actor_rollout_ref.model.path=MODEL data.train_files=DATA"
    )


def uses_megatron(plan: ExportablePlan) -> bool:
    """True if the plan's stack is Megatron-LM's, not FSDP's."""
    return plan.stack.name.partition(":")[0] == MEGATRON
