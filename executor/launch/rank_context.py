"""Context of a job on a rank; loads no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class RankContext:
    """The rank that runs a job.

    ``emit`` reports a JSON-ready event to the job's owner.
    """

    rank: int
    world_size: int
    device: torch.device
    collective_timeout_s: float
    emit: Callable[[dict[str, Any]], None]
