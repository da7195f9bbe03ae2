"""Bytes by memory tier beyond the device's own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

Tier = Literal["host", "nvme"]
TIERS: tuple[Tier, ...] = ("host", "nvme")
TierBytes = tuple[tuple[Tier, int], ...]
StateTerm = Literal["parameters", "gradients", "optimizer", "workspace"]


class StateBytes(NamedTuple):
    """Bytes on a tier from step to step; ``term``: their term in a memory row."""

    tier: Tier
    size_bytes: int
    term: StateTerm = "workspace"


def total_bytes(sizes: TierBytes | Iterable[StateBytes], tier: Tier) -> int:
    """The sum of ``sizes`` on a tier."""
    return sum(entry[1] for entry in sizes if entry[0] == tier)
