"""The ends of parking's family are tried for every block."""

from __future__ import annotations

from collections.abc import Iterable

from toys.parking_price import PRICE
from toys.parking_value import FAMILY, NAME, TECHNIQUE, ParkedOutputs

from shardwright.planner.technique import KnownTechniques, Place, TechniqueChoice


def tried(place: Place) -> Iterable[ParkedOutputs]:
    """Nothing and everything."""
    return FAMILY.ends


CHOICE = TechniqueChoice(name=NAME, tried=tried)
KNOWN = KnownTechniques(values=(TECHNIQUE,), prices=(PRICE,), choices=(CHOICE,))
