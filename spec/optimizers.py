"""Names of the optimizers. Help and completion read them, so nothing slow is imported here."""

from __future__ import annotations

from typing import Literal

Optimizer = Literal["adamw", "adam", "adamw8bit", "muon", "sgd", "adafactor"]

OPTIMIZERS: tuple[Optimizer, ...] = ("adamw", "adam", "adamw8bit", "muon", "sgd", "adafactor")
