"""Dynamic loss scaling for fp16 (Micikevicius et al., arXiv:1710.03740, section 3.2).

Many gradients lie below fp16's smallest number, 6e-8. The loss is multiplied by a power of two,
which rounds nothing, and gradients are divided by it in the update, together with clipping. On
overflow (global norm not finite) the step changes no weight and the scale halves; after
``GROWTH_STEPS`` good steps it doubles.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

INITIAL = 2.0**16
GROWTH_STEPS = 2000
LARGEST = 2.0**24
LEAST = 1.0


@dataclass(slots=True)
class LossScale:
    """Loss scale, and the good steps since it changed.

    Equal on every rank, because it follows the global norm.
    """

    value: float = INITIAL
    good_steps: int = 0

    def to_tensor(self) -> Tensor:
        """Factor and count, (2,) float64, for a checkpoint."""
        return torch.tensor([self.value, self.good_steps], dtype=torch.float64)

    def take(self, state: Tensor) -> None:
        """Restore the value of :meth:`to_tensor`."""
        value, good_steps = state.tolist()
        self.value, self.good_steps = value, int(good_steps)

    def after(self, overflowed: bool) -> None:
        """Adjust the scale after a step."""
        if overflowed:
            self.value, self.good_steps = max(LEAST, self.value / 2), 0
            return
        self.good_steps += 1
        if self.good_steps == GROWTH_STEPS:
            self.value, self.good_steps = min(LARGEST, self.value * 2), 0


def scales_loss(param_dtype: str) -> bool:
    """True if a compute type needs loss scaling."""
    return param_dtype == "fp16"


__all__ = ["GROWTH_STEPS", "INITIAL", "LossScale", "scales_loss"]
