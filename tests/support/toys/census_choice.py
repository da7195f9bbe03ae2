"""Both modes of a census are tried for every block."""

from __future__ import annotations

from collections.abc import Iterable

from toys.census_price import PRICE
from toys.census_value import MODES, NAME, TECHNIQUE, GradientCensus

from shardwright.planner.technique import KnownTechniques, Place, TechniqueChoice


def tried(place: Place) -> Iterable[GradientCensus]:
    """Every mode."""
    return (GradientCensus(mode=mode) for mode in MODES)


CHOICE = TechniqueChoice(name=NAME, tried=tried)
KNOWN = KnownTechniques(values=(TECHNIQUE,), prices=(PRICE,), choices=(CHOICE,))
