"""Averaging after four steps is tried where lossy values are allowed."""

from __future__ import annotations

from toys.programs.averaging_price import PRICE
from toys.programs.averaging_value import NAME, TECHNIQUE, AveragedWeights

from shardwright.planner.technique import KnownTechniques, TechniqueChoice

CHOICE = TechniqueChoice(
    name=NAME,
    tried_in_program=lambda place: (AveragedWeights(every=2), AveragedWeights(every=4)),
    device_reason=lambda value, device: "a device of this century" if device == "V100" else None,
)
KNOWN = KnownTechniques(values=(TECHNIQUE,), prices=(PRICE,), choices=(CHOICE,))
