"""AdamW step (Loshchilov and Hutter, 2019, algorithm 2) over tensor lists.

The library's fused step is one kernel per type and device, and on CPU one pass per tensor; its
foreach form runs everywhere, in a dozen passes.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from ..dispatch import Dispatcher, Family, Request, Variant
from ..fused import FLOATS

FUSED_DEVICES = ("cpu", "cuda", "mps", "xpu", "hpu", "mtia")
"""Where the library has fused steps: ``torch.utils._foreach_utils``, alike in 2.11 and 2.13."""


class AdamWState(NamedTuple):
    """Tensors that a step reads and overwrites, as parallel lists.

    A parameter's tensors share its shape, type and device, except for its step count. The fused
    step takes contiguous tensors only; a list with any other uses the foreach form.
    """

    parameters: list[Tensor]
    gradients: list[Tensor]
    first_moments: list[Tensor]
    second_moments: list[Tensor]
    steps: list[Tensor]
    """Steps taken so far, () float32 each."""


def _fused_unsupported(request: Request) -> str | None:
    kind = request.device.type
    if kind not in FUSED_DEVICES:
        return f"no fused step for {kind}"
    if request.dtype not in (*FLOATS, torch.float64):
        return f"not for {str(request.dtype).removeprefix('torch.')}"
    return None


ADAMW = Family(
    "adamw",
    (
        Variant("fused", partial(adamw, fused=True), _fused_unsupported),
        Variant("foreach", partial(adamw, foreach=True), fused=False),
    ),
)
"""Decided by the first parameter."""


def fused_adamw(kernels: Dispatcher, parameter: Tensor) -> bool:
    """Return True if an optimizer takes the fused step, else foreach."""
    return kernels.pick(ADAMW, parameter) is ADAMW.variants[0].run


def adamw_step(
    kernels: Dispatcher,
    state: AdamWState,
    *,
    learning_rate: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
) -> None:
    """Take one step in place; gradients are left unchanged.

    Args:
        kernels: of the run.
        state: overwritten.
        learning_rate: of this step.
        beta1: decay of the first moment.
        beta2: decay of the second moment.
        eps: added to the root of the second moment.
        weight_decay: subtracted times the learning rate, apart from the gradient.
    """
    if not state.parameters:
        return
    lists = (state.parameters, state.gradients, state.first_moments, state.second_moments)
    run = kernels.pick(ADAMW, state.parameters[0])
    if not all(t.is_contiguous() for tensors in lists for t in tensors):
        # On cores the fused step reads memory straight through, whatever the strides, and on CUDA
        # devices it refuses such tensors.
        run = ADAMW.variants[-1].run
    with torch.no_grad():
        run(
            *lists,
            [],
            state.steps,
            amsgrad=False,
            maximize=False,
            lr=learning_rate,
            beta1=beta1,
            beta2=beta2,
            eps=eps,
            weight_decay=weight_decay,
        )


def adamw_reference(
    parameter: Tensor,
    gradient: Tensor,
    first_moment: Tensor,
    second_moment: Tensor,
    step: int,
    *,
    learning_rate: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Float64 reference: parameter and moments after step ``step``, from 1."""
    w, g, m, v = (t.double() for t in (parameter, gradient, first_moment, second_moment))
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g.square()
    direction = (m / (1 - beta1**step)) / ((v / (1 - beta2**step)).sqrt() + eps)
    return w - learning_rate * (direction + weight_decay * w), m, v


__all__ = ["ADAMW", "AdamWState", "adamw_reference", "adamw_step", "fused_adamw"]
