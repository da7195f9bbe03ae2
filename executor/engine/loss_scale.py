"""Dynamic loss scaling for fp16 (Micikevicius et al., arXiv:1710.03740, section 3.2).

fp16 has no numbers below 6e-8, where many gradients lie. The loss is multiplied by a power of two,
so gradients are too; they are divided by it in the update, together with clipping. Where a
gradient has overflowed (the global norm is not finite) the step changes no weight and the scale
halves; after ``GROWTH_STEPS`` good steps it doubles. Powers of two round nothing.
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
    """Factor on the loss, and the number of good steps since it changed.

    Every rank has the same, for it follows the norm, which all know.
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
    """True if runs in a compute type need loss scaling."""
    return param_dtype == "fp16"


__all__ = ["GROWTH_STEPS", "INITIAL", "LossScale", "scales_loss"]
