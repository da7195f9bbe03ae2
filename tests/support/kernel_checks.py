"""Holding a kernel against its definition in float64, results and gradients."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from shardwright.kernels.dispatch import Choice, Family, Policy, Request, choose

TOLERANCE = {torch.float32: 4e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}
Function = Callable[..., Tensor]


def random_tensors(
    *shapes: tuple[int, ...], dtype: torch.dtype, seed: int = 0, device: str = "cpu"
) -> list[Tensor]:
    """Normal numbers of a seed; the same on every device."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).to(device, dtype) for shape in shapes]


def strided(x: Tensor) -> Tensor:
    """The same numbers, none of them next to another in memory."""
    wide = torch.zeros((*x.shape[:-1], 2 * x.shape[-1] + 1), dtype=x.dtype, device=x.device)
    out = wide[..., 1::2]
    out.copy_(x)
    return out


def results(function: Function, inputs: list[Tensor], grad: Tensor) -> list[Tensor]:
    """What a function gives, and the gradients of its inputs."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    out = function(*[leaf + 0 for leaf in leaves])  # a kernel may write to what it is given
    out.backward(grad.to(out.dtype))
    return [out.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]


def assert_equals_definition(ours: Function, definition: Function, inputs: list[Tensor]) -> None:
    """By the norm of runs: off by at most so much of the largest element.

    A tensor that all but vanishes is held to a thousandth of the largest one.
    """
    with torch.no_grad():
        shape = definition(*inputs).shape
    (grad,) = random_tensors(tuple(shape), dtype=inputs[0].dtype, device=str(inputs[0].device))
    found = results(ours, inputs, grad)
    expected = results(definition, [x.double() for x in inputs], grad)
    assert len(found) == len(inputs) + 1
    largest = [float(b.abs().max()) for b in expected]
    for number, (a, b) in enumerate(zip(found, expected, strict=True)):
        scale = max(largest[number], 1e-3 * max(largest))
        off = float((a.double() - b).abs().max()) / scale
        assert off <= TOLERANCE[inputs[0].dtype], (number, off)


def chosen(family: Family, x: Tensor, policy: Policy) -> Choice:
    """What a dispatcher of this policy picks for an operand."""
    request = Request(x.device, x.dtype, tuple(x.shape), policy == "fused")
    return choose(family, request, policy)
