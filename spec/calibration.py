"""Calibration: six factors that bring prices nearer to what one cluster and stack measured.

A factor multiplies the shipped seconds of one kind of work, so 1 everywhere is no calibration, and
what a factor of 1.2 says can be read: that work takes a fifth longer there than shipped prices say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Literal

from pydantic import Field

LEAST_FACTOR, LARGEST_FACTOR = 0.05, 20.0
Factor = Annotated[float, Field(ge=LEAST_FACTOR, le=LARGEST_FACTOR)]
Share = Annotated[float, Field(ge=0)]
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
Name = Annotated[str, Field(pattern=NAME_PATTERN)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Factors:
    """How many times the shipped seconds each kind of work takes; see :data:`MEANINGS`."""

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
class Calibration:
    """Fitted factors, and what they were fitted to.

    ``device`` and ``stack`` are the names of the catalogue that it is for, ``products`` the format
    of products (``DtypeRecord.products``; "" is any): kernels of another format are others.
    ``fitted_on`` are the ids of the measured rows. The 80 % interval, for rows like these, goes
    from the prediction over (1 + ``half_width``) to the prediction times that. The errors are
    medians over these rows: shipped, fitted, and each predicted from the others.
    """

    schema_version: Literal[1] = 1
    name: Name
    device: str
    stack: str
    products: str = ""
    factors: Factors
    fitted_on: tuple[str, ...]
    half_width: Share
    shipped_error: Share
    fitted_error: Share
    left_out_error: Share


def unfitted(factors: Factors) -> Calibration:
    """Factors that are being tried: fitted to nothing."""
    return Calibration(
        name="unfitted",
        device="",
        stack="",
        factors=factors,
        fitted_on=(),
        half_width=0.0,
        shipped_error=0.0,
        fitted_error=0.0,
        left_out_error=0.0,
    )
