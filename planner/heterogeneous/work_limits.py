"""Work limits of a search over several device groups."""

from __future__ import annotations

from dataclasses import dataclass

from ..search.work_limits import Quota


@dataclass(frozen=True, slots=True, kw_only=True)
class HeterogeneousLimits:
    """Work limits of a search; ``deadline_s`` is the only limit in seconds.

    ``estimates``: shapes estimated, ``estimates_alike`` of one device layout and schedule.
    ``heuristic_shapes``: shapes searched, ``heuristic_shapes_alike`` of one layout, with
    ``heuristic_passes`` simulated in all. Near the best plan of each of ``near_sorts`` stage-type
    sequences ``near`` more are estimated and ``near_looked`` searched, with ``near_passes``
    simulated, up to ``near_rounds`` times while faster. The proof enumerates shapes of at most
    ``enumerated_shape`` plans, until it counted ``enumerated`` plans and the search began
    ``tries`` simulations and completed ``simulated``.
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
        """Total work up to which the proof enumerates shapes."""
        return Quota(enumerated=self.enumerated, tries=self.tries, simulated=self.simulated)
