"""Which technique values are legal and best."""

from __future__ import annotations

from ...costmodel.techniques import TECHNIQUES as PRICES
from ...spec.techniques import TECHNIQUES as VALUES
from ..technique import Choices, KnownTechniques
from . import compile, cpu_offload

TECHNIQUES: Choices = (compile.TECHNIQUE, cpu_offload.TECHNIQUE)
"""One entry a module of this package, in the order of ``spec.techniques``."""

SHIPPED = KnownTechniques(values=VALUES, prices=PRICES, choices=TECHNIQUES)
"""What a question knows unless it says otherwise."""
