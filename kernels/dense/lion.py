"""Lion step (Chen et al., 2023, arXiv:2302.06675, algorithm 2) over tensor lists.

One moment: the step is the sign of its average with the gradient, so it is as long for every
element; weights decay apart from it. Foreach operations, which run everywhere; a fused form of the
library does not exist.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


@torch.no_grad()
def lion_step(
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    moments: Sequence[Tensor],
    *,
    learning_rate: float,
    beta1: float,
    beta2: float,
    weight_decay: float,
) -> None:
    """Take one step in place; gradients are left unchanged.

    Args:
        parameters: overwritten.
        gradients: of the parameters.
        moments: averages of earlier gradients, overwritten.
        learning_rate: of this step.
        beta1: share of the moment in the step's direction.
        beta2: decay of the moment.
        weight_decay: subtracted times the learning rate.
    """
    if not parameters:
        return
    directions = torch._foreach_lerp(list(moments), list(gradients), 1 - beta1)
    torch._foreach_sign_(directions)
    if weight_decay:
        torch._foreach_mul_(list(parameters), 1 - learning_rate * weight_decay)
    torch._foreach_add_(list(parameters), directions, alpha=-learning_rate)
    torch._foreach_lerp_(list(moments), list(gradients), 1 - beta2)


def lion_reference(
    parameter: Tensor,
    gradient: Tensor,
    moment: Tensor,
    *,
    learning_rate: float,
    beta1: float,
    beta2: float,
    weight_decay: float,
) -> tuple[Tensor, Tensor]:
    """Float64 reference: parameter and moment after a step."""
    w, g, m = parameter.double(), gradient.double(), moment.double()
    direction = torch.sign(beta1 * m + (1 - beta1) * g)
    return w - learning_rate * (direction + weight_decay * w), beta2 * m + (1 - beta2) * g


__all__ = ["lion_reference", "lion_step"]
