"""Overlap of communication and computation: hidden time, and the cost of sharing.

Four rules, all never decreasing in either duration.

A tensor-parallel collective beside its matrix product, cut into c chunks, is a two-step pipeline of
``max(P, C) + min(P, C)/c``, exposing ``that - P``.

A gather or reduction beside a layer's computation slows both while they coexist (Galvatron, section
4.2; measured factor 1.1256 on A100, 1.3 on TITAN): with factor f each is longer by (f - 1) times
the shorter one.

A ring step (keys and values in flight beside attention: Liu et al., arXiv:2310.01889, section 3)
takes the longer of message and attention, each longer by that rule; the message exposes what
outlasts the attention alone.

Expert dispatch runs beside another micro-batch's equal computation (DeepSeek-V3, arXiv:2412.19437,
section 3.2.1): it exposes what outlasts its pass's kernels, by the same rule.
"""

from __future__ import annotations


def exposed_over_product(collective_s: float, product_s: float, chunks: int) -> float:
    """Seconds added by a chunked collective to its overlapped matrix product."""
    if product_s == 0.0:
        return collective_s
    joint_s = max(collective_s, product_s) + min(collective_s, product_s) / chunks
    return min(collective_s, joint_s - product_s)


def exposed_over_kernels(collective_s: float, work_s: float, factor: float) -> float:
    """Seconds added by a collective to overlapped kernels: 0 if fully hidden."""
    return max(slowed(collective_s, work_s, factor), slowed(work_s, collective_s, factor)) - work_s


def slowed(duration_s: float, overlapped_s: float, factor: float) -> float:
    """A duration sharing the device with ``overlapped_s`` of other work."""
    return duration_s + (factor - 1.0) * min(duration_s, overlapped_s)
