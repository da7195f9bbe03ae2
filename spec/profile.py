"""MachineProfile: what ``plan profile`` measured on one machine; the cost model reads it.

Every row is a minimum over repeats while all ranks work at once, so that shared memory
bandwidth is in the figure. Profiles of different machines are never mixed: a profile carries
the fingerprint of its machine and is only used where the fingerprint is the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

Seconds = Annotated[float, Field(gt=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """Seconds of one kernel: named, sized and counted as ``spec.kernels.Kernel`` is."""

    op: str
    shape: tuple[int, ...]
    dtype: str
    flops: Annotated[int, Field(ge=0)] = 0
    traffic_bytes: Annotated[int, Field(ge=0)]
    time_s: Seconds
    spread: Annotated[float, Field(ge=0)] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveRow:
    """Seconds of one collective of ``payload_bytes`` (the largest buffer a rank holds)."""

    kind: str
    ranks: Annotated[int, Field(ge=2)]
    payload_bytes: Annotated[int, Field(ge=1)]
    time_s: Seconds
    spread: Annotated[float, Field(ge=0)] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineProfile:
    """All measurements of one machine with ``ranks`` ranks at work.

    ``fingerprint`` identifies hardware, threads per rank and versions; ``machine`` is the
    readable form of it. ``host_s`` holds host-side seconds by name; ``kernel_slowdown`` is what
    a kernel takes inside a step, where caches are cold and ranks move apart, over what its row
    says.
    """

    schema_version: Literal[1] = 1
    fingerprint: str
    machine: dict[str, str]
    ranks: Annotated[int, Field(ge=1)]
    measured_at: str
    duration_s: Seconds
    kernels: tuple[KernelRow, ...]
    collectives: tuple[CollectiveRow, ...] = ()
    host_s: dict[str, float] = field(default_factory=dict)
    kernel_slowdown: Annotated[float, Field(ge=1)] = 1.0
