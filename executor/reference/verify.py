"""Verification of a run against the single-process reference.

Gradient error: max|g - r| over the larger of max|r| of its tensor and a thousandth of the largest
gradient of all; loss error: relative. float32 bounds are far above rounding and far below any
mistake in a sum. bfloat16 keeps 8 bits, so its bounds come from correct runs with other summation
orders: 60 plans of small models were off by up to 5e-2 in a gradient and 4e-5 in a loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ...spec.errors import RunError
from ...spec.model.experts import experts_of
from ...spec.plan.plan import Plan
from ..engine.engine import Engine
from ..launch.consistency import gather_json
from ..stage.local_parameters import gather_full
from .model import Reference

SMALL_SHARE = 1e-3
"""A tensor whose gradients are below this share of the largest is held to that share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Largest relative differences of a correct run: gradients, first loss, any loss."""

    gradient: float
    first_loss: float
    loss: float


BOUNDS = {
    "fp32": Bounds(gradient=5e-6, first_loss=1e-6, loss=1e-5),
    "bf16": Bounds(gradient=1e-1, first_loss=1e-3, loss=1e-2),
    "fp16": Bounds(gradient=2e-2, first_loss=2e-4, loss=2e-3),
}
ROUTED_GRADIENT = 1.0
"""Bound of gradients in bfloat16 where experts are chosen: a sum that is doubled reaches it."""


def bounds_of(plan: Plan) -> Bounds:
    """Error bounds of a correct run.

    In bfloat16 a router's closest calls fall either way, and an expert with one token more or less
    has another gradient: in small models off by up to half of its largest element.
    """
    bounds = BOUNDS[plan.workload.dtype.param]
    routed = any(experts_of(layer) is not None for layer in plan.model.kinds())
    if plan.workload.dtype.param == "fp32" or not routed:
        return bounds
    return replace(bounds, gradient=ROUTED_GRADIENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Errors of a run against the reference, with their bounds."""

    max_rel_loss_diff: float
    max_rel_grad_diff: float
    worst_tensor: str
    first_rel_loss_diff: float
    bounds: Bounds

    def check(self) -> None:
        """Raise unless everything is within its bound.

        Raises:
            RunError: names the tensor or the loss that is off.
        """
        if not self.max_rel_grad_diff <= self.bounds.gradient:
            what = f"the gradient of {self.worst_tensor}"
            error, bound = self.max_rel_grad_diff, self.bounds.gradient
        elif not self.first_rel_loss_diff <= self.bounds.first_loss:
            what, error, bound = "the first loss", self.first_rel_loss_diff, self.bounds.first_loss
        elif not self.max_rel_loss_diff <= self.bounds.loss:
            what, error, bound = "a loss", self.max_rel_loss_diff, self.bounds.loss
        else:
            return
        raise RunError(f"verification: {what} is off by {error:.2e} (bound {bound:.0e})")


def gradient_difference(
    gradients: dict[str, Tensor],
    reference: dict[str, Tensor],
    name_of: Callable[[str], str] = str,
) -> tuple[float, str]:
    """Largest gradient difference in this module's norm, and its tensor.

    ``reference`` has every tensor; ``name_of`` maps a gradient's name to it.

    Raises:
        RunError: a tensor of the reference has no gradient.
    """
    missing = set(reference) - {name_of(name) for name in gradients}
    if missing:
        raise RunError(f"verification: {min(missing)} got no gradient")
    largest = max(value.abs().max().item() for value in reference.values())
    worst, name = 0.0, ""
    for key, value in gradients.items():
        expected = reference[name_of(key)].to(value.device)
        scale = max(expected.abs().max().item(), SMALL_SHARE * largest)
        off = (value - expected).abs().max().item() / scale
        if not off <= worst:  # a difference that is not a number is the worst
            worst, name = off, key
    return worst, name


def loss_differences(losses: list[float], reference: list[float]) -> list[float]:
    """Relative difference of each step's loss."""
    return [abs(a - b) / abs(b) for a, b in zip(losses, reference, strict=True)]


def gather_gradients(engine: Engine) -> dict[str, Tensor]:
    """Whole-model gradients on rank 0's host, empty elsewhere. Collective."""
    process_groups, device = engine.process_groups, engine.options.device
    mine: dict[str, Tensor] = {}
    speaks = process_groups.local_rank == 0
    for parameter in engine.parameters:
        if parameter.grad is None:
            raise RunError(f"{parameter.name} has no gradient")
        whole = gather_full(parameter, parameter.grad, process_groups)
        if speaks:
            mine[parameter.name] = whole.contiguous()
    shapes = {name: list(value.shape) for name, value in mine.items()}
    spoken = gather_json(shapes if speaks and process_groups.rank else {}, device)
    if process_groups.rank == 0:
        for source, theirs in enumerate(spoken):
            for name, shape in theirs.items():
                mine[name] = torch.empty(shape, device=device)
                dist.recv(mine[name], src=source)
        return {name: value.to("cpu", copy=True) for name, value in mine.items()}
    for value in mine.values():
        dist.send(value, dst=0)
    return {}


def verify(
    plan: Plan, reference: Reference, losses: list[float], gradients: dict[str, Tensor]
) -> Verification:
    """Rerun training on the reference and compare; rank 0 only.

    ``reference`` is not yet stepped; ``losses`` are of every step, ``gradients`` of the first
    (:func:`gather_gradients`).
    """
    expected: list[float] = []
    gradient_off, worst = 0.0, ""
    for step in range(len(losses)):
        expected.append(reference.backward_step())
        if step == 0:
            gradient_off, worst = gradient_difference(
                gradients, reference.gradients(), reference.name_of
            )
        reference.update()
    off = loss_differences(losses, expected)
    return Verification(
        max_rel_loss_diff=max(off),
        max_rel_grad_diff=gradient_off,
        worst_tensor=worst,
        first_rel_loss_diff=off[0],
        bounds=bounds_of(plan),
    )


def verification_document(verification: Verification) -> dict[str, Any]:
    """JSON-ready form."""
    return {
        "max_rel_loss_diff": verification.max_rel_loss_diff,
        "max_rel_grad_diff": verification.max_rel_grad_diff,
        "worst_tensor": verification.worst_tensor,
        "bounds": {
            "gradient": verification.bounds.gradient,
            "first_loss": verification.bounds.first_loss,
            "loss": verification.bounds.loss,
        },
    }
