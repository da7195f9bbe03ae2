"""Devices as known before any of their kernels was timed.

The catalogue takes some figures of a device from the tables that are scored: its streaming rate,
the least time of a kernel, for a few the ceiling of products. Zero-shot, its memory ceiling and
least time are the fitted devices' medians, its matmul ceiling is measured elsewhere or follows from
its power limit.

Graphics cards are limited by power, equal per multiply-add: RTX PRO 6000 (600 W) reaches 418 of 480
TFLOP/s, so a card of 350 W reaches 244 TFLOP/s, 0.67 of L40S's peak (0.62 was measured); seen from
L40S, RTX PRO 6000 reaches 0.80 (0.87 was measured).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection
from dataclasses import replace

from ...datasets.catalogue.device import Device, device

ELSEWHERE = {
    "A100-SXM-80GB": 0.869,
    "H100-SXM-80GB": 0.803,
    "H200-SXM-141GB": 0.803,
    "B200-SXM-180GB": 0.776,
    "GB200-186GB": 0.729,
    "GB300-279GB": 0.786,
}
"""Bekman, ML Engineering, 2026 (compute/accelerator): largest bf16 product over the peak. H200
as H100, as is said there; GB300 as B300.
"""
LIMIT_W = {"L40S-48GB": 350.0, "RTX-PRO-6000-96GB": 600.0}
"""NVIDIA data sheets of L40S (2023) and RTX PRO 6000 Blackwell Server Edition (2025)."""
OTHER_CARD = {"L40S-48GB": "RTX-PRO-6000-96GB", "RTX-PRO-6000-96GB": "L40S-48GB"}


def untimed_devices(targets: Collection[str], fitted: Collection[str]) -> Callable[[str], Device]:
    """Devices by name as known when nothing of ``targets`` was timed.

    Tables of ``fitted`` devices may be used.
    """
    timed = [device(name) for name in fitted if name not in targets]
    memory = statistics.median(entry.memory_ceiling for entry in timed)
    launch_s = statistics.median(entry.kernel_launch_s for entry in timed)

    def lookup(name: str) -> Device:
        entry = device(name)
        if name not in targets:
            return entry
        return replace(
            entry,
            matmul_ceiling=_ceiling(entry),
            memory_ceiling=memory,
            kernel_launch_s=launch_s,
        )

    return lookup


def _ceiling(card: Device) -> float:
    if card.name in ELSEWHERE:
        return ELSEWHERE[card.name]
    other = device(OTHER_CARD[card.name])
    watts = LIMIT_W[other.name] / (other.matmul_ceiling * other.peak_flops_per_s["bf16"])
    return min(0.87, LIMIT_W[card.name] / watts / card.peak_flops_per_s["bf16"])
