"""The command that starts a recipe of Megatron Bridge under a file of overrides."""

from __future__ import annotations

from ..exportable import ExportablePlan
from ..torchrun import torchrun_line

CONFIG_FILE = "megatron_bridge.yaml"


def launch(plan: ExportablePlan) -> str:
    """A torchrun line; the recipe gives data, tokenizer and activation."""
    return torchrun_line(plan, f"RECIPE.py --config-file {CONFIG_FILE}")
