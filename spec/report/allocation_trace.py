"""Allocation requests of one rank's step: bytes, and from when until when each lives.

Times are numbers of events (a birth or a death), in order. Only what is born in a pass and dies
within the step is a request: what lives from step to step has no place among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


class Request(NamedTuple):
    """Bytes that are live from event ``birth`` until before event ``death``."""

    bytes: int
    birth: int
    death: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationTrace:
    """A step's requests in order of birth.

    Attributes:
        requests: all of them.
        passes: number of the first request of each pass, in the order of the plan.
        sections: events at which a layer's forward or backward begins, in order.
    """

    requests: tuple[Request, ...]
    passes: tuple[int, ...] = (0,)
    sections: tuple[int, ...] = ()

    def aligned(self, alignment: int) -> AllocationTrace:
        """The trace with bytes rounded up to a multiple."""
        rounded = tuple(
            r._replace(bytes=-(-r.bytes // alignment) * alignment) for r in self.requests
        )
        return AllocationTrace(requests=rounded, passes=self.passes, sections=self.sections)

    def pass_starts(self) -> tuple[int, ...]:
        """Number of the first request of each pass, and the number of all."""
        return (*self.passes, len(self.requests))

    def to_document(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "requests": [list(request) for request in self.requests],
            "passes": list(self.passes),
            "sections": list(self.sections),
        }

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> AllocationTrace:
        """The inverse of :meth:`to_document`."""
        return cls(
            requests=tuple(Request(*row) for row in document["requests"]),
            passes=tuple(document["passes"]),
            sections=tuple(document["sections"]),
        )


def most_live_bytes(requests: Sequence[Request]) -> int:
    """Most bytes live at once, below which no arena can be."""
    events = [(r.birth, 1, r.bytes) for r in requests] + [
        (r.death, 0, -r.bytes) for r in requests if r.death > r.birth
    ]
    live = most = 0
    for _, _, change in sorted(events):
        live += change
        most = max(most, live)
    return most
