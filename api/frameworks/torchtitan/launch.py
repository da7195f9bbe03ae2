"""The command that starts torchtitan from its TOML."""

from __future__ import annotations

from ..exportable import ExportablePlan
from ..torchrun import torchrun_line

CONFIG_FILE = "torchtitan.toml"


def launch(plan: ExportablePlan) -> str:
    """A torchrun line; data and assets are the user's."""
    return torchrun_line(plan, f"-m torchtitan.train --job.config_file {CONFIG_FILE}")
