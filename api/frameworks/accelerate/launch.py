"""The command that starts a script under accelerate."""

from __future__ import annotations

from ..exportable import ExportablePlan

CONFIG_FILE = "accelerate.yaml"


def launch(plan: ExportablePlan) -> str:
    """An accelerate line; batch and accumulation are the script's own."""
    batch = f"--per_device_train_batch_size {plan.micro_batch}"
    steps = f"--gradient_accumulation_steps {plan.microbatches}"
    if plan.strategy.recompute == "full" and plan.replicas > plan.strategy.shard.gradients:
        steps += " --gradient_checkpointing true"
    more = "" if plan.nodes == 1 else "--machine_rank RANK --main_process_ip HOST "
    return f"accelerate launch --config_file {CONFIG_FILE} {more}train.py {batch} {steps}"
