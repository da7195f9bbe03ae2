"""Figures on which sources disagree, and the catalogue's choice."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from .tables import read_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """One figure of a device or fabric, in SI units.

    ``values`` are pairs of a source and its value; ``taken`` is the catalogue's.
    """

    subject: str
    figure: str
    values: tuple[tuple[str, float], ...]
    taken: float
    why: str


@cache
def disagreements() -> tuple[Disagreement, ...]:
    """Every known disagreement, in the table's order."""
    return tuple(
        Disagreement(
            subject=row["subject"],
            figure=row["figure"],
            values=tuple((source, value) for source, value in row["values"]),
            taken=row["taken"],
            why=row["why"],
        )
        for row in read_table("disagreements")["disagreement"]
    )
