"""Bytes by memory tier beyond the device's own."""

from __future__ import annotations

from typing import Literal

Tier = Literal["host", "nvme"]
TIERS: tuple[Tier, ...] = ("host", "nvme")
TierBytes = tuple[tuple[Tier, int], ...]


def total_bytes(sizes: TierBytes, tier: Tier) -> int:
    """The sum of ``sizes`` on a tier."""
    return sum(size for name, size in sizes if name == tier)
