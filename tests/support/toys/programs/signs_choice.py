"""Sign updates are tried where lossy values are allowed."""

from __future__ import annotations

from toys.programs.signs_price import PRICE
from toys.programs.signs_value import NAME, TECHNIQUE, SignUpdates

from shardwright.planner.technique import KnownTechniques, TechniqueChoice

CHOICE = TechniqueChoice(name=NAME, tried_in_program=lambda place: (SignUpdates(),))
KNOWN = KnownTechniques(values=(TECHNIQUE,), prices=(PRICE,), choices=(CHOICE,))
