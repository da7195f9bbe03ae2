"""Overlap of communication and computation: hidden time, and the cost of sharing.

Five rules, all never decreasing in either duration.

A tensor-parallel collective beside its matrix product, cut into c chunks, is a two-step pipeline of
``max(P, C) + min(P, C)/c``, exposing ``that - P``.

A product and its collective that are both cut by a technique are two lanes in order: a
chunk's product waits for its gather, a chunk's scatter for its product (:class:`ChunkPipeline`).

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


class ChunkPipeline:
    """Two lanes of a product's chunks and of their collectives.

    ``_ahead_s``: seconds from now, on the lane of products, to the end of the wire's queued work.
    """

    def __init__(self) -> None:
        self._ahead_s = 0.0

    def compute(self, seconds: float) -> None:
        """Run a kernel beside what is on the wire."""
        self._ahead_s -= seconds

    def gather(self, seconds: float, chunk: int) -> float:
        """Exposed seconds of a gather before its products; all are issued with the first."""
        ahead_s = seconds if chunk == 0 else self._ahead_s + seconds
        self._ahead_s = min(0.0, ahead_s)
        return max(0.0, ahead_s)

    def queue(self, seconds: float) -> None:
        """Put a gather on the wire that is waited for with the scatters after it."""
        self._ahead_s = seconds + max(0.0, self._ahead_s)

    def scatter(self, seconds: float, last: bool) -> float:
        """Exposed seconds of a scatter after its products: at the last, all that is left."""
        self.queue(seconds)
        exposed_s = self._ahead_s if last else 0.0
        self._ahead_s -= exposed_s
        return exposed_s
