"""Addresses of a step: the smallest arena that heuristics and integer programs find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...spec.report.allocation_trace import AllocationTrace, Request, most_live_bytes
from .bi_level import bi_level
from .heuristics import ORDERS, best_fit, first_fit, greedy, local_search
from .mip import solve_mip
from .placement import Placement, overlapping_pair

FEW, MANY = 400, 3_000
"""Requests of a part, and of a step, up to which orders of greedy placement are changed."""
SLACK = 1.002
"""A placement within this factor of the bound is good enough to stop at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressSolution:
    """Offsets of a step's requests in an arena.

    ``live_bytes``: most bytes live at once, the lower bound of any arena; ``by``: the algorithm.
    """

    offsets: tuple[int, ...]
    arena_bytes: int
    live_bytes: int
    by: str

    def to_document(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "arena_bytes": self.arena_bytes,
            "live_bytes": self.live_bytes,
            "by": self.by,
            "offsets": list(self.offsets),
        }

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> AddressSolution:
        """The inverse of :meth:`to_document`."""
        return cls(**{**document, "offsets": tuple(document["offsets"])})


def solve_addresses(trace: AllocationTrace) -> AddressSolution:
    """Place all requests of a step, no two live ones over each other."""
    requests, least = trace.requests, most_live_bytes(trace.requests)
    best = solve_flat(requests)
    if best.arena_bytes > least * SLACK and trace.sections:
        best = _smaller(best, bi_level(trace, solve_flat, solve_flat))
    if best.arena_bytes > least * SLACK and FEW < len(requests) <= MANY:
        best = _smaller(best, local_search(requests, least))
    if (pair := overlapping_pair(requests, best.offsets)) is not None:
        raise RuntimeError(f"requests {pair} were placed over each other")
    return AddressSolution(
        offsets=best.offsets, arena_bytes=best.arena_bytes, live_bytes=least, by=best.by
    )


def solve_flat(requests: Sequence[Request]) -> Placement:
    """Place requests without regard to sections.

    Greedy placement first; where it is not at the bound, first and best fit, other orders, and an
    integer program.
    """
    least = most_live_bytes(requests)
    best = greedy(requests)
    for name in ORDERS:
        if best.arena_bytes <= least * SLACK:
            break
        best = _smaller(best, greedy(requests, name))
    for heuristic in (first_fit, best_fit):
        if best.arena_bytes > least:
            best = _smaller(best, heuristic(requests))
    if best.arena_bytes > least * SLACK and len(requests) <= FEW:
        best = _smaller(best, local_search(requests, least))
        best = solve_mip(requests, best) or best
    return best


def _smaller(first: Placement, second: Placement) -> Placement:
    return second if second.arena_bytes < first.arena_bytes else first
