"""The command that starts Galvatron from its JSON."""

from __future__ import annotations

from ..exportable import ExportablePlan
from ..torchrun import torchrun_line

CONFIG_FILE = "galvatron_config.json"


def launch(plan: ExportablePlan) -> str:
    """A torchrun line; model and data are train_dist.yaml's.

    ``async_grad_reduce`` off reduces gradients each micro-batch, as zero2 and zero3 do.
    """
    shards = any(taken.shard.gradients > 1 for taken in plan.plan.program.layer_strategies())
    values = {
        "parallel.galvatron_config_path": CONFIG_FILE,
        "parallel.mixed_precision": plan.workload.dtype.param,
        "parallel.async_grad_reduce": str(not shards).lower(),
        "train.seq_length": plan.workload.seq_len,
    }
    words = " ".join(f"runtime.{name}={value}" for name, value in values.items())
    return torchrun_line(plan, f"train_dist.py train_dist.yaml {words}")
