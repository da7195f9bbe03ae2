"""Allocation requests of one rank's step: bytes, and from when until when each lives.

Times are numbers of events (a birth or a death), in order. Requests are born in a pass; one that
outlives the step has no place in an arena, for the next step makes it again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
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
        lasting: numbers of those that outlive the step.
        sections: events at which passes, and layers in them, begin or end, in order.
        passes: number of the section that begins each pass, in the order of the plan.
    """

    requests: tuple[Request, ...]
    lasting: frozenset[int] = frozenset()
    sections: tuple[int, ...] = ()
    passes: tuple[int, ...] = ()

    def placed(self, alignment: int = 1) -> AllocationTrace:
        """The requests that have a place, with bytes rounded up to a multiple."""
        rounded = tuple(
            r._replace(bytes=-(-r.bytes // alignment) * alignment)
            for number, r in enumerate(self.requests)
            if number not in self.lasting
        )
        return AllocationTrace(requests=rounded, sections=self.sections)

    def numbered(self) -> AllocationTrace:
        """The trace with numbers of requests as times: what lives together is the same."""
        births = [request.birth for request in self.requests]
        return AllocationTrace(
            requests=tuple(
                Request(request.bytes, number, max(number + 1, bisect_left(births, request.death)))
                for number, request in enumerate(self.requests)
            ),
            lasting=self.lasting,
            sections=self.section_starts()[:-1],
            passes=self.passes,
        )

    def section_starts(self) -> tuple[int, ...]:
        """Number of the first request of each section, and the number of all."""
        births = [request.birth for request in self.requests]
        return (*(bisect_left(births, event) for event in self.sections), len(births))

    def to_document(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "requests": [list(request) for request in self.requests],
            "lasting": sorted(self.lasting),
            "passes": list(self.passes),
            "sections": list(self.sections),
        }

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> AllocationTrace:
        """The inverse of :meth:`to_document`."""
        return cls(
            requests=tuple(Request(*row) for row in document["requests"]),
            lasting=frozenset(document["lasting"]),
            passes=tuple(document["passes"]),
            sections=tuple(document["sections"]),
        )


def live_bytes(requests: Sequence[Request]) -> list[int]:
    """Bytes that live after each event, up to the last death."""
    changes = [0] * (max((max(r.birth, r.death) for r in requests), default=0) + 1)
    for request in requests:
        changes[request.birth] += request.bytes
        changes[max(request.death, request.birth)] -= request.bytes
    return list(accumulate(changes))


def most_live_bytes(requests: Sequence[Request]) -> int:
    """Most bytes live at once, below which no arena can be."""
    return max(live_bytes(requests), default=0)
