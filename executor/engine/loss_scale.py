"""Dynamic loss scaling for fp16 (Micikevicius et al., arXiv:1710.03740, section 3.2).

fp16 has no numbers below 6e-8, where many gradients lie. The loss is multiplied by a power of
two, so gradients are too; they are divided by it in the update, together with clipping. Where
a gradient has overflowed (the global norm is not finite) the step changes no weight and the
scale halves; after ``GROWTH_STEPS`` good steps it doubles. Powers of two round nothing.
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
    """The factor on the loss, and how many good steps it has stood for.

    Every rank has the same, for it follows the norm, which all know.
    """

    value: float = INITIAL
    good_steps: int = 0

    def to_tensor(self) -> Tensor:
        """Factor and count, (2,) float64: what a checkpoint keeps."""
        return torch.tensor([self.value, self.good_steps], dtype=torch.float64)

    def take(self, kept: Tensor) -> None:
        """Go on from what :meth:`to_tensor` gave."""
        value, good_steps = kept.tolist()
        self.value, self.good_steps = value, int(good_steps)

    def after(self, overflowed: bool) -> None:
        """Follow a step's end."""
        if overflowed:
            self.value, self.good_steps = max(LEAST, self.value / 2), 0
            return
        self.good_steps += 1
        if self.good_steps == GROWTH_STEPS:
            self.value, self.good_steps = min(LARGEST, self.value * 2), 0


def scales_loss(param_dtype: str) -> bool:
    """Whether runs in a compute type need it."""
    return param_dtype == "fp16"


__all__ = ["GROWTH_STEPS", "INITIAL", "LossScale", "scales_loss"]
