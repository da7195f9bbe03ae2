"""What each technique costs."""

from __future__ import annotations

from ..technique import TechniquePrices
from . import compile, cpu_offload

TECHNIQUES: TechniquePrices = (compile.TECHNIQUE, cpu_offload.TECHNIQUE)
"""One entry a module of this package, in the order of ``spec.techniques``."""
