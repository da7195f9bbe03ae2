"""Calibration: constants that correct predictions for one cluster and stack.

Six factors of time and three constants of memory, each set fitted to a table of its own. A factor
multiplies the shipped seconds of one kind of work, or the shipped bytes of one kind of tensors:
1 everywhere is no calibration, and 1.2 means that the work takes a fifth longer than shipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from .learned_residual import LearnedResidual

LEAST_FACTOR, LARGEST_FACTOR = 0.05, 20.0
Factor = Annotated[float, Field(ge=LEAST_FACTOR, le=LARGEST_FACTOR)]
Share = Annotated[float, Field(ge=0)]
LARGEST_LIBRARY_BYTES = 64 * 2**30
LibraryBytes = Annotated[int, Field(ge=-LARGEST_LIBRARY_BYTES, le=LARGEST_LIBRARY_BYTES)]
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
RESERVED_NAMES = ("none", "fit")
"""Words with another meaning for ``--calibration``."""


class CalibrationScope(NamedTuple):
    """Scope: device, stack and, for times, product format ("" is any)."""

    device: str
    stack: str
    products: str = ""

    def __str__(self) -> str:
        text = f"{self.device} with {self.stack}"
        return f"{text} in {self.products}" if self.products else text

    @property
    def in_any_format(self) -> CalibrationScope:
        """The same for products of any format, as constants of memory are."""
        return self._replace(products="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Factors:
    """Factors on the shipped seconds of each kind of work; see :data:`MEANINGS`."""

    matmul: Factor = 1.0
    attention: Factor = 1.0
    elementwise: Factor = 1.0
    inner_links: Factor = 1.0
    outer_links: Factor = 1.0
    host: Factor = 1.0


SHIPPED = Factors()
FACTOR_NAMES = tuple(f.name for f in fields(Factors))
MEANINGS: Mapping[str, str] = {
    "matmul": "matrix products, of experts too",
    "attention": "core attention in one kernel, and chunked scans",
    "elementwise": "kernels bound by memory, the optimizer's too",
    "inner_links": "collectives and messages inside a node",
    "outer_links": "collectives and messages between nodes",
    "host": "launches, and what the host adds to a pass and a step",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryConstants:
    """Corrections of predicted bytes; see :data:`MEMORY_MEANINGS`."""

    states: Factor = 1.0
    activations: Factor = 1.0
    library_bytes: LibraryBytes = 0


MEMORY_AS_SHIPPED = MemoryConstants()
MEMORY_MEANINGS: Mapping[str, str] = {
    "states": "x parameters, gradients and optimizer states",
    "activations": "x activations, and buffers of operations, gathers and messages",
    "library_bytes": "bytes that libraries take beyond the stack's workspaces (negative: less)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCalibration:
    """Fitted constants of memory, and the ids of their rows.

    ``deviation`` is the relative standard deviation of rows, each predicted from the others; the
    upper bound that has to fit a device rests on it. The errors are medians over the rows: shipped,
    fitted, and each predicted from the others.
    """

    constants: MemoryConstants
    fitted_on: tuple[str, ...]
    deviation: Share
    shipped_error: Share
    fitted_error: Share
    left_out_error: Share


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Fitted factors and their scope, data and errors.

    ``device`` and ``stack`` are catalogue names, ``products`` is the format of products
    (``DtypeRecord.products``; "" is any), for each format has kernels of its own.
    ``profile`` is the fingerprint of the machine profile that the factors correct; "" where they
    correct shipped prices.
    ``pricing_version`` is that of the prices that were fitted; files without it are of the first.
    ``fitted_on`` are the ids of the measured rows; it is empty where only ``memory`` was fitted, so
    that times and their interval are as shipped. The 80 % interval, for rows like these, goes from
    the prediction over (1 + ``half_width``) to the prediction times that. The errors are medians
    over these rows: shipped, fitted, and each predicted from the others. ``residual`` is what timed
    kernels of the device say of their shipped prices.
    """

    schema_version: Literal[1] = 1
    name: Name
    device: str
    stack: str
    products: str = ""
    profile: str = ""
    pricing_version: Annotated[int, Field(ge=1)] = 1
    factors: Factors
    fitted_on: tuple[str, ...]
    half_width: Share
    shipped_error: Share
    fitted_error: Share
    left_out_error: Share
    memory: MemoryCalibration | None = None
    residual: LearnedResidual | None = None

    @property
    def scope(self) -> CalibrationScope:
        """The scope of the factors."""
        return CalibrationScope(self.device, self.stack, self.products)

    def with_memory(self, memory: MemoryCalibration) -> Calibration:
        """The calibration with other constants of memory."""
        return replace(self, memory=memory)


def unfitted(
    factors: Factors = SHIPPED, name: str = "unfitted", device: str = "", stack: str = ""
) -> Calibration:
    """A calibration fitted to nothing: factors on trial, or times as shipped."""
    return Calibration(
        name=name,
        device=device,
        stack=stack,
        factors=factors,
        fitted_on=(),
        half_width=0.0,
        shipped_error=0.0,
        fitted_error=0.0,
        left_out_error=0.0,
    )
