"""Lowered pass: work and memory of a micro-batch through a layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ...spec.report.work_items import Collective, Kernel
from .tape import TapeEntry


class HostWork(NamedTuple):
    """Host work of a pass: launches, eager or generated, and the rest.

    ``generated_s``: host seconds per launch by generated code, where an eager one takes longer.
    """

    eager: int
    generated: int = 0
    generated_s: float = 0.0
    once_s: float = 0.0


@dataclass(frozen=True, slots=True)
class LoweredPass:
    """Work and memory of one micro-batch through one layer in one direction.

    ``peak_bytes`` and ``change_bytes`` are relative to the bytes alive at its start, with its input
    (an activation forward, a gradient backward). ``gradient_bytes`` of the change are parameter
    gradients. ``host``: host work if not all kernels are simple eager launches.
    """

    entries: tuple[TapeEntry, ...]
    peak_bytes: int
    change_bytes: int
    gradient_bytes: int = 0
    host: HostWork | None = None

    def kernels(self) -> list[Kernel]:
        """The kernels, in order."""
        return [e.work for e in self.entries if isinstance(e.work, Kernel)]

    def collectives(self) -> list[Collective]:
        """The collectives, in order."""
        return [e.work for e in self.entries if isinstance(e.work, Collective)]

    @property
    def flops(self) -> int:
        """Floating-point operations, recomputation included."""
        return sum(kernel.flops for kernel in self.kernels())

    @property
    def recomputed_flops(self) -> int:
        """Floating-point operations of recomputation."""
        return sum(
            e.work.flops for e in self.entries if e.recomputed and isinstance(e.work, Kernel)
        )


NO_PASS = LoweredPass((), 0, 0)


def chain_passes(first: LoweredPass, second: LoweredPass) -> LoweredPass:
    """Two passes in sequence as one."""
    return LoweredPass(
        entries=(*first.entries, *second.entries),
        peak_bytes=max(first.peak_bytes, first.change_bytes + second.peak_bytes),
        change_bytes=first.change_bytes + second.change_bytes,
        gradient_bytes=first.gradient_bytes + second.gradient_bytes,
        host=_merged_host_work(first, second),
    )


def _merged_host_work(first: LoweredPass, second: LoweredPass) -> HostWork | None:
    """Host work of two passes; None: all kernels are eager launches.

    Raises:
        ValueError: both launch generated code, in different times.
    """
    if first.host is None and second.host is None:
        return None
    one, other = (p.host or HostWork(len(p.kernels())) for p in (first, second))
    if one.generated and other.generated and one.generated_s != other.generated_s:
        raise ValueError("two kinds of generated code in one pass")
    return HostWork(
        one.eager + other.eager,
        one.generated + other.generated,
        max(one.generated_s, other.generated_s),
        one.once_s + other.once_s,
    )
