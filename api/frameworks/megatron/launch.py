"""The command that starts Megatron-LM from its arguments."""

from __future__ import annotations

from ..exportable import ExportablePlan
from ..torchrun import torchrun_line

SCRIPT = "pretrain_gpt.py"
ARGUMENTS_FILE = "megatron.args"


def launch(plan: ExportablePlan) -> str:
    """A torchrun line; data and tokenizer are the user's."""
    return torchrun_line(plan, f"{SCRIPT} $(cat {ARGUMENTS_FILE}) --data-path DATA")
