"""What a job is told of the rank that runs it; loads no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class RankContext:
    """What a job knows of the rank that runs it.

    ``emit`` reports an event (a JSON-ready dict) to whoever started the job.
    """

    rank: int
    world_size: int
    device: torch.device
    collective_timeout_s: float
    emit: Callable[[dict[str, Any]], None]
