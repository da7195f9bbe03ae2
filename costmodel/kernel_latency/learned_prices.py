"""Learners of a device that nobody timed: a table that ships.

Written by :mod:`fitting.learner_scores` from errors on what was kept back. An architecture counts
as known where a device of it was timed.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Literal

from ...datasets.catalogue.device import Device

Learner = Literal["analytic", "trees", "leaf_trees"]
TABLE = Path(__file__).parents[2] / "datasets" / "measured" / "learned_prices.json"
ARCHITECTURES = {
    "Ampere A100": ("A100", "A800", "A30"),
    "Hopper": ("H100", "H800", "H200", "H20"),
    "Blackwell": ("B200", "B300", "GB200", "GB300"),
    "Ada": ("L40S", "L4", "L20", "RTX-4090", "RTX-6000-Ada"),
    "Blackwell cards": ("RTX-PRO-6000", "RTX-5090"),
}
"""Families of devices whose tensor cores are those of a timed device (NVIDIA, CUDA C++
Programming Guide, compute capabilities 8.0, 9.0, 10.x, 8.9, 12.0)."""


def learner_of(grid: str, on: Device) -> Learner:
    """The learner that prices a grid's kernels on an untimed device."""
    known = any(on.family in families for families in ARCHITECTURES.values())
    choices = _choices().get(grid, {})
    return choices.get("architecture known" if known else "architecture unseen", "trees")


@cache
def _choices() -> dict[str, dict[str, Learner]]:
    prices: dict[str, dict[str, Learner]] = json.loads(TABLE.read_text(encoding="utf-8"))["prices"]
    return prices
