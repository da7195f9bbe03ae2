"""LearnedResidual: what timed programs of a machine say of its shipped prices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

KernelGroup = Literal["product", "attention", "scan", "pass"]
"""Kernels that one regression prices alike: products, attention, scans, passes over memory."""
MOST_POINTS = 2000
Values = tuple[float, ...]
Positive = Annotated[float, Field(gt=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedResidual:
    """A kernel ridge regression of log(measured / shipped price), one row a timed program.

    ``points``: features of ``costmodel.kernel_latency.refitted``, less ``center``, over ``scale``;
    ``weights``: one a row; far from all rows the value is ``mean``. ``groups`` has kernels of which
    programs were timed, ``prices`` those that the regression prices better than interpolation.
    ``error``: mean relative error on programs left out; 80 % of them are within ``half_width``.
    """

    points: Annotated[tuple[Values, ...], Field(min_length=1, max_length=MOST_POINTS)]
    weights: Values
    center: Values
    scale: tuple[Positive, ...]
    mean: float
    width: Positive
    groups: tuple[KernelGroup, ...]
    prices: tuple[KernelGroup, ...] = ()
    error: Annotated[float, Field(ge=0)]
    half_width: Annotated[float, Field(ge=0)]

    def __post_init__(self) -> None:
        """Refuse arrays that do not belong together."""
        sides = {len(self.center), len(self.scale), *map(len, self.points)}
        if len(sides) > 1 or len(self.weights) != len(self.points):
            raise ValueError("residual: points, weights, center and scale differ in length")
