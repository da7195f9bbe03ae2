"""The command that starts a script of transformers' Trainer under DeepSpeed."""

from __future__ import annotations

from ..exportable import ExportablePlan
from ..torchrun import torchrun_line

CONFIG_FILE = "ds_config.json"
ARGUMENTS_FILE = "training_arguments.json"


def launch(plan: ExportablePlan) -> str:
    """A torchrun line of a script that reads Trainer's arguments from a file."""
    return torchrun_line(plan, f"train.py {ARGUMENTS_FILE}")
