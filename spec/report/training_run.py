"""Training on a number of tokens at a plan's predicted speed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRun:
    """Time, device time and cost of a whole training.

    ``steps`` are whole optimizer steps; ``time_s`` is theirs alone, without failures, evaluations
    and checkpoints; ``device_s`` is that of all devices in stages together. ``cost``, in the
    prediction's currency, is None without prices.
    """

    tokens: int
    steps: int
    time_s: float
    device_s: float
    cost: float | None = None

    def to_document(self) -> dict[str, Any]:
        """JSON-ready form, with the cost where there is one."""
        from dataclasses import asdict

        return {key: value for key, value in asdict(self).items() if value is not None}
