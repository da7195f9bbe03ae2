"""Stragglers: a job runs at the pace of its slowest device.

Sinha et al., "Not All GPUs Are Created Equal" (SC22, arXiv:2208.11035, abstract), find that
identical GPUs of five clusters differ by 8 % on average, because power management sets each one's
clock. A job's step ends with its slowest device, half of that range behind the median.

Products and attention, which depend on that clock, take ``1 + 0.08 / 2`` of their time alone;
memory has a clock of its own.

Worked number: a product of 10 ms alone takes 10.4 ms in a job.

Limits: measured on V100 (and on MI60 and RTX 5000, which the catalogue lacks), assumed elsewhere; a
step of one device is up to 4 % too slow. A core is timed as it is.
"""

from __future__ import annotations

from ...spec.report.work_items import Kernel

SPEED_VARIATION = 0.08
"""Range from the fastest device to the slowest, relative to the median."""
PRINTED = "Sinha et al., Not All GPUs Are Created Equal, SC22, abstract: 8 % average variation"
FAMILIES = ("V100",)


def straggler_seconds(seconds: float, kernel: Kernel) -> float:
    """Seconds in a job, from ``seconds`` on a median device."""
    return (
        seconds * (1 + SPEED_VARIATION / 2) if kernel.term in ("matmul", "attention") else seconds
    )
