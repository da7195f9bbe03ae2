"""Rounding is tried everywhere that lossy values are allowed."""

from __future__ import annotations

from toys.rounding_price import PRICE
from toys.rounding_value import NAME, TECHNIQUE, RoundedInputs

from shardwright.planner.technique import KnownTechniques, TechniqueChoice

CHOICE = TechniqueChoice(
    name=NAME,
    tried=lambda place: (RoundedInputs(),),
    device_reason=lambda value, device: "a device with bf16" if device.startswith("V100") else None,
)
KNOWN = KnownTechniques(values=(TECHNIQUE,), prices=(PRICE,), choices=(CHOICE,))
