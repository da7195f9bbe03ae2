"""Work limits of a search over several device groups."""

from __future__ import annotations

from dataclasses import dataclass

from ..search.work_limits import Quota


@dataclass(frozen=True, slots=True, kw_only=True)
class HeterogeneousLimits:
    """Work limits of a search; ``deadline_s`` is the only limit in seconds.

    ``estimates`` shapes are estimated, ``estimates_alike`` of one layout of devices and schedule;
    ``heuristic_shapes`` are searched, ``heuristic_shapes_alike`` of one layout, which together
    simulate ``heuristic_passes``. Beside the best plan of each of ``near_sorts`` sequences of stage
    types ``near`` more are estimated and ``near_looked`` searched, which together simulate
    ``near_passes``, again while they are faster, ``near_rounds`` times. Until the proof has counted
    ``enumerated`` plans, and the search has begun ``tries`` simulations and carried ``simulated``
    to the end, shapes of at most ``enumerated_shape`` plans are enumerated.
    """

    alternatives: int = 8
    estimates: int = 600
    estimates_alike: int = 6
    heuristic_shapes: int = 32
    heuristic_shapes_alike: int = 3
    heuristic_passes: int = 6_000_000
    near: int = 48
    near_looked: int = 8
    near_rounds: int = 3
    near_sorts: int = 3
    near_passes: int = 1_000_000
    enumerated: int = 4_000_000
    enumerated_shape: int = 600_000
    tries: int = 40_000
    simulated: int = 10_000
    deadline_s: float | None = None

    @property
    def proof(self) -> Quota:
        """Work of the whole search until which the proof enumerates shapes."""
        return Quota(enumerated=self.enumerated, tries=self.tries, simulated=self.simulated)
