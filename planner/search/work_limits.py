"""Work limits of a search, as counts, for reproducible plans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ..candidates.evaluator import Evaluator


class Quota(NamedTuple):
    """Enumeration work: plans counted, simulations begun, and completed.

    Most simulations end once certainly too slow, after half a millisecond.
    """

    enumerated: int
    tries: int
    simulated: int


class WorkSpent:
    """Work done by a search.

    ``enumerated``: plans of enumerated shapes.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self.enumerated = 0

    def and_more(self, quota: Quota) -> Quota:
        """Work spent so far plus a quota."""
        spent = (self.enumerated, self._evaluator.tries, self._evaluator.count)
        return Quota(*(a + b for a, b in zip(spent, quota, strict=True)))

    def has_spent(self, quota: Quota) -> bool:
        """Return whether simulations have used up a quota."""
        evaluator = self._evaluator
        return evaluator.count >= quota.simulated or evaluator.tries >= quota.tries


PROOF = Quota(enumerated=4_000_000, tries=40_000, simulated=10_000)
REST = Quota(enumerated=1_000_000, tries=4000, simulated=1000)
LOCAL_SEARCH = Quota(enumerated=0, tries=800, simulated=600)
REST_OF_SHAPE = Quota(enumerated=1_000_000, tries=1000, simulated=250)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Work limits of a search; ``deadline_s`` is the only limit in seconds.

    Models of few layers are searched in more shapes, ``heuristic_layers`` layers in all, and in
    more layouts of each: a shape costs by its layers. Of large models ``relaxed`` shapes have
    plans made of their relaxed steps. The first are of the ``rough_widths`` best-estimated widths
    and half of each: ``rough_microbatches`` micro-batch counts of a width and ``rough_alike``
    shapes of a schedule get aggregated bounds, ``relaxed_cuts`` of them bounds in likely
    boundaries, and ``relaxed_first`` plans. Once a shape stays open, ``heuristic_shapes_open``
    more are searched. ``proof``: work of the proof; ``rest``: work for each device count after its
    failure, ``rest_of_shape`` of that on one shape. Then ``local_search`` is spent on each of the
    ``local_search_shapes`` best shapes and on as many likely ones of every device count. Without
    proof ``smaller_requests`` are searched too, each within these limits.
    """

    alternatives: int = 8
    estimates: int = 1500
    heuristic_shapes: int = 32
    heuristic_shapes_large: int = 8
    heuristic_shapes_alike: int = 4
    heuristic_layouts: int = 4
    heuristic_layers: int = 2560
    heuristic_passes: int = 8_000_000
    heuristic_shapes_open: int = 16
    rough_widths: int = 3
    rough_microbatches: int = 3
    rough_alike: int = 4
    relaxed_cuts: int = 32
    relaxed_first: int = 4
    relaxed: int = 12
    min_memory: int = 16
    min_memory_first: int = 4
    enumerated_shape: int = 600_000
    proof: Quota = PROOF
    rest: Quota = REST
    rest_of_shape: Quota = REST_OF_SHAPE
    local_search_shapes: int = 4
    local_search: Quota = LOCAL_SEARCH
    smaller_requests: bool = True
    deadline_s: float | None = None

    def small_model_factor(self, layers: int) -> int:
        """Multiple of searched shapes and layouts for models of few layers."""
        return max(1, self.heuristic_layers // (self.heuristic_shapes * layers))
