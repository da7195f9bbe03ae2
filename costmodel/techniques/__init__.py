"""What each technique costs."""

from __future__ import annotations

from ..technique import Prices
from . import compile, cpu_offload

TECHNIQUES: Prices = (compile.TECHNIQUE, cpu_offload.TECHNIQUE)
"""One entry a module of this package, in the order of ``spec.techniques``."""
