"""CheckpointPrice: what saving and loading a run's state take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPrice:
    """Seconds and bytes of a checkpoint.

    ``stall_s``: what a step waits; ``end_to_end_s``: from there to the commit; ``bytes``: of all
    ranks together, each once; ``rank_bytes``: those that the fullest rank writes, with
    ``largest_over_mean``; ``source``: of the rates, ``measured`` in a folder or ``analytic``.
    """

    stall_s: float
    end_to_end_s: float
    load_s: float
    bytes: int
    rank_bytes: int
    largest_over_mean: float
    source: str
