"""Bytes that plans may use: the device's, then those of each granted tier."""

from __future__ import annotations

from ...costmodel.symbolic.tier_bytes import TIERS, Tier
from ...spec.cluster.cluster_spec import MemoryTiers

Budget = tuple[float, ...]
"""Live bytes that certainly fit a device, then bytes of each granted tier, in that order."""


def tier_capacities(memory: MemoryTiers) -> dict[Tier, int]:
    """Bytes a device of the tiers that a person granted; the others are in no search."""
    sizes: dict[Tier, int | None] = {"host": memory.host_bytes, "nvme": memory.nvme_bytes}
    return {tier: size for tier in TIERS if (size := sizes[tier])}
