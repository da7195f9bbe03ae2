"""MachineProfile: the measurements of ``plan profile`` on one machine.

Every row was taken while all ranks work at once, so that shared memory bandwidth is in the figure:
on cores the minimum over repeats, on other devices the median. Profiles of different machines are
never mixed: a profile is used only where the fingerprint is that of its machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from .learned_residual import LearnedResidual

PositiveSeconds = Annotated[float, Field(gt=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """Seconds of one kernel, with op, shape and counts of ``spec.report.work_items.Kernel``."""

    op: str
    shape: tuple[int, ...]
    dtype: str
    flops: Annotated[int, Field(ge=0)] = 0
    traffic_bytes: Annotated[int, Field(ge=0)]
    time_s: PositiveSeconds
    spread: Annotated[float, Field(ge=0)] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveRow:
    """Seconds of one collective of ``payload_bytes`` (the largest buffer on a rank).

    ``beside_product``: taken while matrix products ran on the same devices.
    """

    kind: str
    ranks: Annotated[int, Field(ge=2)]
    payload_bytes: Annotated[int, Field(ge=1)]
    time_s: PositiveSeconds
    spread: Annotated[float, Field(ge=0)] = 0.0
    beside_product: bool = False


CopyKind = Literal[
    "host_to_device",
    "device_to_host",
    "device_copy",
    "nvme_read",
    "nvme_write",
    "nvme_read_cached",
    "nvme_write_cached",
    "checkpoint_copy",
    "checkpoint_digest",
    "checkpoint_write",
    "checkpoint_read",
]
"""Source and target of a copy; cached: through the page cache, for want of direct I/O.

Those of a checkpoint are of one folder: what a rank copies to host memory and digests, and what all
ranks together write to storage and read from it.
"""
CHECKPOINT_KINDS: tuple[CopyKind, ...] = (
    "checkpoint_copy",
    "checkpoint_digest",
    "checkpoint_write",
    "checkpoint_read",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRow:
    """Seconds of a copy of ``payload_bytes``.

    ``pinned``: the host memory is page-locked. ``both_ways``: taken while as many bytes went the
    other way.
    """

    kind: CopyKind
    payload_bytes: Annotated[int, Field(ge=1)]
    time_s: PositiveSeconds
    spread: Annotated[float, Field(ge=0)] = 0.0
    pinned: bool = False
    both_ways: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A measurement left out, and why.

    Out of memory, or a device without the path.
    """

    op: str
    shape: tuple[int, ...] = ()
    dtype: str = ""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineProfile:
    """All measurements of one machine with ``ranks`` ranks at work.

    ``fingerprint`` identifies hardware, threads per rank and versions; ``machine`` is its readable
    form. ``device`` is the catalogue name of each rank's device. ``host_s`` holds host-side seconds
    by name. ``kernel_slowdown`` is the factor of a kernel's time inside a step, where caches are
    cold and ranks drift apart, over its row. ``overlap_slowdown`` is the factor by which kernels
    and
    communication that share the device slow one another (``costmodel.pricing.overlap``), None if
    they were not run together. ``residual`` is what chosen programs say of the shipped prices.
    """

    schema_version: Literal[1] = 1
    device: Annotated[str, Field(min_length=1)] = "cpu"
    fingerprint: str
    machine: dict[str, str]
    ranks: Annotated[int, Field(ge=1)]
    measured_at: str
    duration_s: PositiveSeconds
    kernels: tuple[KernelRow, ...]
    collectives: tuple[CollectiveRow, ...] = ()
    host_s: dict[str, float] = field(default_factory=dict)
    kernel_slowdown: Annotated[float, Field(ge=1)] = 1.0
    copies: tuple[CopyRow, ...] = ()
    overlap_slowdown: Annotated[float, Field(ge=1, le=2)] | None = None
    skipped: tuple[Skipped, ...] = ()
    residual: LearnedResidual | None = None
