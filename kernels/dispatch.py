"""Kernel dispatch by device, type and shape, with reasons.

A family is one operation with several implementations, best first; the last runs everywhere. Each
says in words why it cannot run a request, so a choice explains itself and always runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from ..spec.choices import KernelPolicy
from ..spec.errors import RunError

Policy = KernelPolicy
"""auto: the best that the device runs. portable: what runs everywhere. fused: one kernel where a
family has one, on cores by Triton's interpreter, which is for checks; an error where it cannot."""


IN_PARTS = "in parts"
"""What is picked where the caller does an operation's parts one after another instead."""


class Request(NamedTuple):
    """Request to a family: device, type, shape; ``interpret`` on CPU.

    ``shape`` is of the operand that the family's docstring names.
    """

    device: torch.device
    dtype: torch.dtype
    shape: tuple[int, ...]
    interpret: bool = False


@dataclass(frozen=True, slots=True)
class Variant:
    """One implementation; ``unsupported`` says why it cannot run a request, or None."""

    name: str
    run: Callable[..., Any]
    unsupported: Callable[[Request], str | None] = lambda request: None
    fused: bool = True


@dataclass(frozen=True, slots=True)
class Family:
    """One operation's implementations, best first; the last refuses nothing."""

    name: str
    variants: tuple[Variant, ...]


class Choice(NamedTuple):
    """Chosen implementation, and the reasons against better ones."""

    family: str
    request: Request
    variant: Variant
    passed_over: tuple[tuple[str, str], ...]

    def to_document(self) -> dict[str, Any]:
        """Family, type, shape, picked implementation and the reasons, for reports."""
        return {
            "family": self.family,
            "device": self.request.device.type,
            "dtype": str(self.request.dtype).removeprefix("torch."),
            "shape": list(self.request.shape),
            "picked": self.variant.name,
            "passed_over": dict(self.passed_over),
        }


def choose(family: Family, request: Request, policy: Policy = "auto") -> Choice:
    """Choose the first implementation that runs the request.

    Raises:
        RunError: the policy is ``fused``, the family has a fused form, and none runs this.
    """
    passed: list[tuple[str, str]] = []
    for variant in family.variants:
        reason = variant.unsupported(request)
        if reason is None and policy == "portable" and variant is not family.variants[-1]:
            reason = "portable kernels were asked for"
        if reason is None and policy == "fused" and not variant.fused and passed:
            break
        if reason is None:
            return Choice(family.name, request, variant, tuple(passed))
        passed.append((variant.name, reason))
    why = "; ".join(f"{name}: {reason}" for name, reason in passed)
    raise RunError(f"no fused {family.name} kernel for {_in_words(request)} ({why})")


def _in_words(request: Request) -> str:
    dtype = str(request.dtype).removeprefix("torch.")
    return f"{dtype} of shape {tuple(request.shape)} on {request.device.type}"


class Dispatcher:
    """Kernel choices of one run, cached.

    Args:
        policy: see :data:`Policy`.
    """

    def __init__(self, policy: Policy = "auto") -> None:
        self.policy: Policy = policy
        self._chosen: dict[tuple[str, Request], Choice] = {}

    def pick(self, family: Family, deciding: torch.Tensor) -> Callable[..., Any]:
        """Pick the implementation for operands like ``deciding``.

        Raises:
            RunError: see :func:`choose`.
        """
        return self._choice(family, deciding).variant.run

    def fuses(self, family: Family, deciding: torch.Tensor) -> bool:
        """Return True if operands like ``deciding`` get a fused form.

        Raises:
            RunError: see :func:`choose`.
        """
        return self._choice(family, deciding, or_parts=True).variant.fused

    def _choice(self, family: Family, deciding: torch.Tensor, or_parts: bool = False) -> Choice:
        interpret = self.policy == "fused"
        request = Request(deciding.device, deciding.dtype, tuple(deciding.shape), interpret)
        key = (family.name, request)
        choice = self._chosen.get(key)
        if choice is None:
            choice = choose(family, request, self.policy)
            if or_parts and not choice.variant.fused:
                choice = choice._replace(variant=replace(choice.variant, name=IN_PARTS))
            self._chosen[key] = choice
        return choice

    def choices(self) -> tuple[Choice, ...]:
        """Choices so far, in order of first use."""
        return tuple(self._chosen.values())


def explain(choices: Iterable[Choice]) -> list[str]:
    """One line per choice: request, pick, and reasons against better ones."""
    lines = []
    for choice in choices:
        reasons = "; ".join(f"not {name}: {why}" for name, why in choice.passed_over)
        picked = f"{choice.family}: {choice.variant.name} for {_in_words(choice.request)}"
        lines.append(f"{picked} ({reasons})" if reasons else picked)
    return lines
